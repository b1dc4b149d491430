//! `/versions`: the versions of the rules, applying files as a new one, and rolling back to an earlier one. Rule files are
//! those of a version, or of the rules directory where the rules have no versions, or those in requests.

use std::{collections::btree_map::Entry, fmt, sync::Arc};

use axum::{http::StatusCode, response::IntoResponse as _};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use tollgate_control::{ControlError, Draft, Files, RulesSource, Version, check_files};
use tollgate_rules::Rules;
use tollgate_rules::config::{self, LoadError, Loaded, Options};
use tollgate_runtime::redact::is_printable;

use super::Api;
use super::extract::{Integer, JsonBody, PathParam, QueryParams, VersionSelector, page_size};
use super::guardrails::{self, Traffic};
use super::limits::{self, Lane};
use super::response::{self, ApiError, ApiResult, Invalid};
use crate::caller::Caller;

const DEFAULT_VERSIONS: usize = 50;
const MAX_VERSIONS: usize = 500;

/// Maximum attempts of a rollback that does not state `based_on`, while concurrent requests make versions.
const ROLLBACK_ATTEMPTS: usize = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionsQuery {
    before: Option<u64>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyRequest {
    /// Required, but may be `null`.
    #[serde(deserialize_with = "Option::deserialize")]
    based_on: Option<Integer>,
    files: DraftFiles,
    comment: String,
    #[serde(default)]
    force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackRequest {
    based_on: Option<Integer>,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    force: bool,
}

/// Lists the latest versions.
pub(super) async fn list(api: Api, QueryParams(query): QueryParams<VersionsQuery>) -> ApiResult {
    let limit = page_size(query.limit, DEFAULT_VERSIONS, MAX_VERSIONS)?;
    let control = &api.parts.control;
    let read = async { Ok((control.current().await?, control.versions(query.before, limit).await?)) };
    let (current, versions) = limits::read(read).await?;
    response::json(&json!({ "current": current, "versions": versions }))
}

/// Returns one version with its files.
pub(super) async fn show(api: Api, caller: Caller, selector: PathParam<VersionSelector>) -> ApiResult {
    let PathParam(selector) = selector;
    let permit = api.limits.large_response().await?;
    let lane = Lane::Read(&caller);
    let files = read(&api, lane, selector).await?;
    limits::large(&api, lane, permit, || files).await
}

/// Makes a version of files, and makes it current.
pub(super) async fn apply(api: Api, caller: Caller, body: JsonBody<ApplyRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    api.require_editable()?;
    let files = Arc::new(request.files.0);
    check(&api, &files, request.force).await?;
    let draft = Draft {
        files: Arc::unwrap_or_clone(files),
        based_on: request.based_on.map(|Integer(number)| number),
        rollback_to: None,
        author: caller.name.to_string(),
        comment: request.comment,
    };
    created(&limits::write(api.parts.control.apply(draft)).await?)
}

/// Makes the files of an earlier version current again.
pub(super) async fn rollback(
    api: Api,
    caller: Caller,
    PathParam(number): PathParam<u64>,
    JsonBody(request, _permit): JsonBody<RollbackRequest>,
) -> ApiResult {
    api.require_editable()?;
    let files = Arc::new(read(&api, Lane::Write, VersionSelector::Number(number)).await?.files);
    let mut attempts = if request.based_on.is_some() { 1 } else { ROLLBACK_ATTEMPTS };
    loop {
        check(&api, &files, request.force).await?;
        let based_on = match request.based_on {
            Some(Integer(number)) => Some(number),
            None => limits::read(api.parts.control.current()).await?,
        };
        let draft = Draft {
            files: Files::clone(&files),
            based_on,
            rollback_to: Some(number),
            author: caller.name.to_string(),
            comment: request.comment.clone(),
        };
        attempts -= 1;
        match limits::write(api.parts.control.apply(draft)).await {
            Err(ControlError::Stale { .. }) if attempts > 0 => {}
            applied => return created(&applied?),
        }
    }
}

fn created(version: &Version) -> ApiResult {
    Ok((StatusCode::CREATED, response::json(&json!({ "version": version }))?).into_response())
}

/// Checks that files may become current: they are valid, and pass the guardrails.
async fn check(api: &Api, files: &Arc<Files>, force: bool) -> Result<(), ApiError> {
    let (options, files) = (api.parts.options, Arc::clone(files));
    let compared = if force {
        None
    } else {
        Some((current_rules(api, Lane::Write).await?, Traffic::of_all_instances(api).await?))
    };
    let checked = api.limits.load(Lane::Write, move || {
        check_files(&files)?;
        let loaded = load_valid(&files, options)?;
        let violations = compared
            .map(|(current, traffic)| guardrails::violations(current.as_deref(), &loaded.rules, &traffic));
        response::require_force(violations.unwrap_or_default())
    });
    checked.await?
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidateRequest {
    files: DraftFiles,
}

/// Returns the report of `tollgate check` and the guardrails that applying these files would violate.
pub(super) async fn validate(api: Api, caller: Caller, body: JsonBody<ValidateRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let (options, files) = (api.parts.options, request.files.0);
    let (lane, has_versions) = (Lane::Read(&caller), api.has_versions());
    // The control store may be down. Then the active rules and the traffic of this instance stand in.
    let current = match current_rules(&api, lane).await {
        Ok(rules) => rules,
        Err(_) => api.parts.rules.load(),
    };
    let traffic = match Traffic::of_all_instances(&api).await {
        Ok(traffic) => traffic,
        Err(_) => Traffic::of_this_instance().await?,
    };
    let load = if has_versions { load_version } else { load };
    let validated = api.limits.load(lane, move || match load(&files, options) {
        Ok(loaded) => json!({
            "is_valid": true,
            "domains": loaded.rules.domains().count(),
            "rules": loaded.rules.rule_count(),
            "problems": loaded.warnings.problems,
            "report": loaded.report(),
            "reasons": guardrails::violations(current.as_deref(), &loaded.rules, &traffic),
        }),
        Err(Invalid { problems, report }) => json!({
            "is_valid": false, "domains": 0, "rules": 0, "problems": problems, "report": report, "reasons": [],
        }),
    });
    response::json(&validated.await?)
}

/// Rule files, and the version that they belong to, if any.
#[derive(Debug, Serialize, Deserialize)]
pub struct RuleFiles {
    pub version: Option<Version>,
    pub files: Files,
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
        VersionSelector::Current => match limits::read(api.parts.control.current()).await? {
            Some(number) => read_version(api, number).await,
            None => Ok(RuleFiles { version: None, files: Files::new() }),
        },
        VersionSelector::Number(number) => read_version(api, number).await,
    }
}

async fn read_version(api: &Api, number: u64) -> Result<RuleFiles, ApiError> {
    match limits::read(api.parts.control.version(number)).await? {
        Some((version, files)) => Ok(RuleFiles { version: Some(version), files }),
        None => Err(ApiError::NotFound(format!("version {number} does not exist or has been pruned"))),
    }
}

async fn read_directory(api: &Api, lane: Lane<'_>) -> Result<RuleFiles, ApiError> {
    let directory = api.parts.directory.clone();
    let read = api.limits.scan(lane, move || tollgate_directory::read(&directory)).await?;
    let files = read.map_err(|error| {
        tracing::warn!(%error, "failed to read the rules directory");
        ApiError::NotFound("failed to read the rules directory; see the server log".to_owned())
    })?;
    Ok(RuleFiles { version: None, files: files.texts() })
}

/// The current rules, if any. Usually the active rules of this instance; the rules of the current version if that one is
/// not active here yet.
pub(super) async fn current_rules(api: &Api, lane: Lane<'_>) -> Result<Option<Arc<Rules>>, ApiError> {
    let active = api.parts.rules.load();
    if !api.has_versions() {
        return Ok(active);
    }
    let current = limits::read(api.parts.control.current()).await?;
    if current == api.parts.status.now().version {
        return Ok(active);
    }
    let Some(number) = current else { return Ok(None) };
    let RuleFiles { files, .. } = read_version(api, number).await?;
    let options = api.parts.options;
    let loaded = api.limits.load(lane, move || load(&files, options)).await?;
    Ok(loaded.map_or(active, |loaded| Some(Arc::new(loaded.rules))))
}

const MAX_FILES: usize = 1_000;

const MAX_NAME_BYTES: usize = 255;

/// Rule files by name. Duplicate names are refused.
#[derive(Debug)]
pub(super) struct DraftFiles(pub(super) Files);

impl<'de> Deserialize<'de> for DraftFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FilesVisitor;
        impl<'de> Visitor<'de> for FilesVisitor {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of file contents by file name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
                let mut files = Files::new();
                while let Some((name, text)) = map.next_entry()? {
                    match files.entry(name) {
                        Entry::Vacant(entry) => drop(entry.insert(text)),
                        Entry::Occupied(entry) => {
                            return Err(A::Error::custom(format!("duplicate file {}", entry.key())));
                        }
                    }
                    if files.len() > MAX_FILES {
                        return Err(A::Error::custom(format!("expected at most {MAX_FILES} files")));
                    }
                }
                Ok(files)
            }
        }
        deserializer.deserialize_map(FilesVisitor).map(Self)
    }
}

/// Loads files as from a directory. Slow for many files.
pub(super) fn load(files: &Files, options: Options) -> Result<Loaded, Invalid> {
    if let Some(name) = files.keys().find(|name| !is_name(name)) {
        let expected = "expected a relative path below the rules directory that ends in .yaml or .yml";
        return Err(Invalid::of_file(name, expected));
    }
    let contents = files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
    config::load_files(contents, options).map_err(|error: LoadError| Invalid::from(&error))
}

/// Loads files; invalid ones are an API error.
pub(super) fn load_valid(files: &Files, options: Options) -> Result<Loaded, ApiError> {
    load(files, options).map_err(|invalid| ApiError::Invalid(Box::new(invalid)))
}

/// Loads files of a version to be, whose size is bounded.
pub(super) fn load_version(files: &Files, options: Options) -> Result<Loaded, Invalid> {
    match (check_files(files), files.iter().max_by_key(|(_, text)| text.len())) {
        (Err(error), Some((name, _))) => Err(Invalid::of_file(name, &error.to_string())),
        _ => load(files, options),
    }
}

/// Whether this is the relative path of a file that would be loaded from a directory.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.');
    let is_forbidden = |c: char| !is_printable(c) || c == '\\';
    name.len() <= MAX_NAME_BYTES
        && (name.ends_with(".yaml") || name.ends_with(".yml"))
        && name.split('/').all(is_part)
        && !name.contains(is_forbidden)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn only_relative_paths_of_yaml_files_are_accepted() {
        for name in ["a.yaml", "a.yml", "teams/search.yaml", "a b.yaml", "ä.yaml"] {
            assert!(is_name(name), "{name}");
        }
        for name in
            ["", "a", ".yaml", "/a.yaml", "../a.yaml", "a/../b.yaml", "a//b.yaml", ".a/b.yaml", "a\\b.yaml"]
        {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_name("a\n.yaml") && !is_name(&format!("{}.yaml", "x".repeat(MAX_NAME_BYTES))));
    }

    #[test]
    fn duplicate_names_are_refused() {
        let read = |text: &str| serde_json::from_str::<DraftFiles>(text).map(|files| files.0.len());
        assert_eq!(read(r#"{"a.yaml": "", "b.yaml": ""}"#).ok(), Some(2));
        assert!(read(r#"{"a.yaml": "", "a.yaml": ""}"#).is_err());
        assert!(read(r#"{"a.yaml": 1}"#).is_err());
    }
}
