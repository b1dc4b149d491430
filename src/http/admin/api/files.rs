//! The files of a version, or of the rules directory where the rules have no versions.

use std::sync::Arc;

use tollgate_control::{Files, RulesSource, Version};
use tollgate_rules::{Rules, config};

use super::{draft, error::ApiError, extract::VersionSelector, limits::Lane, state::Api, timeouts};

/// Rule files, and the version that they belong to, if any.
#[derive(Debug)]
pub(super) struct RuleFiles {
    pub(super) version: Option<Version>,
    pub(super) files: Files,
}

impl RuleFiles {
    /// The number of the version.
    pub(super) fn number(&self) -> Option<u64> {
        self.version.as_ref().map(|version| version.number)
    }
}

/// Reads the files of a version. The current one has none before the first version is applied.
pub(super) async fn read(
    api: &Api,
    lane: Lane<'_>,
    selector: VersionSelector,
) -> Result<RuleFiles, ApiError> {
    match selector {
        VersionSelector::Current if api.parts.status.now().source == RulesSource::Xds => {
            Err(ApiError::NotFound("the rules come from an xDS control plane and have no files".to_owned()))
        }
        VersionSelector::Current if !api.has_versions() => read_directory(api, lane).await,
        VersionSelector::Current => match timeouts::read(api.parts.control.current()).await? {
            Some(number) => read_version(api, number).await,
            None => Ok(RuleFiles { version: None, files: Files::new() }),
        },
        VersionSelector::Number(number) => read_version(api, number).await,
    }
}

async fn read_version(api: &Api, number: u64) -> Result<RuleFiles, ApiError> {
    match timeouts::read(api.parts.control.version(number)).await? {
        Some((version, files)) => Ok(RuleFiles { version: Some(version), files }),
        None => Err(ApiError::NotFound(format!("version {number} does not exist or has been pruned"))),
    }
}

async fn read_directory(api: &Api, lane: Lane<'_>) -> Result<RuleFiles, ApiError> {
    let directory = api.parts.directory.clone();
    let read = api.limits.scan(lane, move || config::read(&directory)).await?;
    let files = read.map_err(|error| {
        tracing::warn!(%error, "failed to read the rules directory");
        ApiError::NotFound("failed to read the rules directory; see the server log".to_owned())
    })?;
    Ok(RuleFiles { version: None, files })
}

/// The current rules, if any. Usually the active rules of this instance; the rules of the current version if that one is
/// not active here yet.
pub(super) async fn current_rules(api: &Api, lane: Lane<'_>) -> Result<Option<Arc<Rules>>, ApiError> {
    let active = api.parts.rules.load();
    if !api.has_versions() {
        return Ok(active);
    }
    let current = timeouts::read(api.parts.control.current()).await?;
    if current == api.parts.status.now().version {
        return Ok(active);
    }
    let Some(number) = current else { return Ok(None) };
    let RuleFiles { files, .. } = read_version(api, number).await?;
    let options = api.parts.options;
    let loaded = api.limits.load(lane, move || draft::load(&files, options)).await?;
    Ok(loaded.map_or(active, |loaded| Some(Arc::new(loaded.rules))))
}
