//! Loads versions, restores lost ones, and imports the first one.

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};
use tollgate_rules::config;

use super::rules::Rules;
use crate::{
    Action, AuditEntry, Control, ControlError, Draft, Files, metrics,
    stored::{Connectivity, Restore, SYSTEM_AUTHOR, StoredVersion, VersionId},
};

/// Size of a version above which instances spread their fetches, and the longest delay.
const LARGE_BYTES: u64 = 256 << 10;
const MAX_SPREAD_MS: u64 = 500;
/// Versions before the current one that are tried in its place while no rules are active.
const MAX_EARLIER_VERSIONS: u64 = 10;
/// Failed fetches of a lost version before an earlier one is activated: another instance may restore it.
const MAX_FETCH_FAILURES: u32 = 2;

/// Request to activate a version.
#[derive(Debug)]
pub(super) struct LoadRequest {
    pub(super) id: VersionId,
    /// Size of its files in bytes, if known.
    pub(super) size: u64,
    /// Failed attempts so far.
    pub(super) failed: u32,
    /// The active version.
    pub(super) active: Option<VersionId>,
}

/// Result of loading, restoring or importing a version.
#[derive(Debug)]
pub(super) enum LoadResult {
    Activated(Arc<StoredVersion>),
    /// No rules were active, and the current version cannot be loaded, so this earlier version was activated.
    Fallback(Arc<StoredVersion>, LoadProblem),
    /// The active version stays active.
    Problem(LoadProblem),
    /// Nothing was done, for this reason.
    Failed(String),
    /// The store has other versions now.
    Changed,
    /// An operator has continued from this version, which is to be activated.
    Superseded(Option<VersionId>),
    /// The directory has no files for a first version.
    NoFiles,
}

/// Reason why a version is not active.
#[derive(Debug)]
pub(super) enum LoadProblem {
    Invalid(VersionId, String),
    Unavailable(VersionId, String),
}

/// Fetches and activates a version, or an earlier one if it is invalid or lost and no rules are active.
pub(super) async fn load(control: &Control, rules: Rules, request: LoadRequest) -> LoadResult {
    let LoadRequest { id, size, failed, active } = request;
    if size > LARGE_BYTES && active.is_some() {
        sleep(Duration::from_millis(fastrand::u64(..MAX_SPREAD_MS))).await;
    }
    let number = id.number;
    let (problem, is_permanent) = match control.backend().version(number).await {
        Ok(Some(stored)) if stored.token == id.token => match activate(stored, rules.clone()).await {
            Ok(Ok(stored)) => return LoadResult::Activated(stored),
            Ok(Err(reason)) => (LoadProblem::Invalid(id, reason), true),
            Err(reason) => (LoadProblem::Unavailable(id, reason), false),
        },
        Ok(Some(_)) => (LoadProblem::Unavailable(id, format!("version {number} was replaced")), false),
        Ok(None) => {
            let reason = format!("the store has lost version {number}");
            (LoadProblem::Unavailable(id, reason), failed >= MAX_FETCH_FAILURES)
        }
        Err(error) => (LoadProblem::Unavailable(id, error.to_string()), false),
    };
    if active.is_none() && is_permanent {
        return activate_earlier(control, rules, number, problem).await;
    }
    LoadResult::Problem(problem)
}

/// Activates the latest valid version before this one, if there is one.
async fn activate_earlier(control: &Control, rules: Rules, number: u64, problem: LoadProblem) -> LoadResult {
    let first = number.saturating_sub(MAX_EARLIER_VERSIONS).max(1);
    for before in (first..number).rev() {
        let Ok(Some(stored)) = control.backend().version(before).await else { continue };
        if let Ok(Ok(stored)) = activate(stored, rules.clone()).await {
            tracing::error!(version = before, current = number, "activated an earlier version of the rules");
            return LoadResult::Fallback(stored, problem);
        }
    }
    LoadResult::Problem(problem)
}

/// Activates a version if it is valid. Otherwise returns why it is invalid, or why that is unknown.
async fn activate(
    stored: Arc<StoredVersion>,
    rules: Rules,
) -> Result<Result<Arc<StoredVersion>, String>, String> {
    let activated = spawn_blocking(move || {
        let number = stored.version.number;
        let files = stored.files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
        let loaded = config::load_files(files, rules.options);
        let invalid = loaded.as_ref().err().map(|error| format!("version {number} is not valid: {error}"));
        (rules.activate)(loaded, &stored.version);
        invalid.map_or(Ok(stored), Err)
    });
    activated.await.map_err(|error| error.to_string())
}

/// Restores a version that the store has lost; `current` is the one that the store has instead.
pub(super) async fn restore(
    control: &Control,
    active: &StoredVersion,
    current: Option<VersionId>,
    connectivity: Connectivity,
) -> LoadResult {
    let number = active.version.number;
    let audit = AuditEntry::restored(Action::Apply, format!("version {number}"));
    match control.backend().restore_version(active, audit, connectivity).await {
        Ok(Restore::Restored) => {
            metrics::store_error("lost");
            tracing::error!(version = number, "restored a version that the store lost");
            LoadResult::Changed
        }
        // Another instance restored it.
        Ok(Restore::Present) => LoadResult::Changed,
        Ok(Restore::Superseded) => {
            metrics::store_error("lost");
            tracing::error!(version = number, "control store was reset; adopting its version");
            LoadResult::Superseded(current)
        }
        Err(error) => LoadResult::Failed(format!("the store has lost version {number}: {error}")),
    }
}

/// Imports the directory's files as the first version, if there are any.
pub(super) async fn import(control: &Control, rules: Rules) -> LoadResult {
    let directory = rules.directory.clone();
    let read = spawn_blocking(move || config::read_valid_finished(&rules.directory, rules.options)).await;
    let files: Files = match read {
        Ok(Ok(Some(files))) => files,
        Ok(Ok(None)) => return LoadResult::NoFiles,
        Ok(Err(error)) => return LoadResult::Failed(format!("there is no version yet, and {error}")),
        Err(error) => return LoadResult::Failed(error.to_string()),
    };
    let comment = format!("imported from {}", directory.display());
    let author = SYSTEM_AUTHOR.to_owned();
    let draft = Draft { files, based_on: None, rollback_to: None, author, comment };
    match control.apply(draft).await {
        Ok(_) | Err(ControlError::Stale { .. }) => LoadResult::Changed,
        Err(error) => LoadResult::Failed(error.to_string()),
    }
}
