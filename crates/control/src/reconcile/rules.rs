//! Reconciles versions of the rules with the store.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tollgate_rules::config::{self, LoadError, Loaded, Options};
use tollgate_runtime::backoff::{Backoff, Jitter};
use tollgate_runtime::task_slot::TaskSlot;

use crate::last_version::{LastVersion, VersionFile, VersionOrigin};
use crate::stored::{Connectivity, FilesPresence, Restore, StoreHead, StoredVersion, VersionId};
use crate::{
    AuditEntry, Control, ControlError, Draft, Files, Version, bounds::truncated, handle::Backend, metrics,
    model::SYSTEM_AUTHOR, redis::versions,
};

/// Time between two attempts to import the directory's files as the first version.
const IMPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Pauses between attempts to activate a version; each attempt fetches all of it.
const RETRY_BACKOFF: Backoff =
    Backoff::with_jitter(Duration::from_secs(1), Duration::from_secs(30), Jitter::None);

/// Activates a version if it is valid. Called on blocking threads.
pub(super) type Activate = dyn Fn(Result<Loaded, LoadError>, &Version, VersionOrigin) + Send + Sync;

/// Options for reading rules, and their activation.
#[derive(Clone)]
pub struct Rules {
    /// Directory of the first version's files.
    pub directory: PathBuf,
    pub options: Options,
    pub activate: Arc<Activate>,
    /// File of the last active version, if the store is shared.
    pub last: Option<VersionFile>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Reconciles versions of the rules.
pub(super) struct RulesReconciler {
    control: Control,
    rules: Rules,
    task: TaskSlot<LoadResult>,
    active: Option<Arc<StoredVersion>>,
    last: Option<LastVersion>,
    /// A version from the disk, until the store has it.
    from_disk: Option<VersionId>,
    /// The last invalid version.
    invalid: Option<VersionId>,
    /// A version from which an operator continued without the active one.
    adopted: Option<VersionId>,
    /// The last version that could not be fetched.
    retry: Option<Retry>,
    problem: Option<String>,
    /// Time of the last import.
    imported: Option<Instant>,
}

/// Retry of a version that could not be fetched.
#[derive(Debug)]
struct Retry {
    id: VersionId,
    at: Instant,
    backoff: Backoff,
    /// Failed attempts so far.
    failed: u32,
}

impl RulesReconciler {
    pub(super) fn new(control: Control, mut rules: Rules) -> Self {
        Self {
            control,
            last: rules.last.take().map(LastVersion::start),
            rules,
            task: TaskSlot::default(),
            active: None,
            from_disk: None,
            invalid: None,
            adopted: None,
            retry: None,
            problem: None,
            imported: None,
        }
    }

    /// The active version.
    pub(super) fn active(&self) -> Option<VersionId> {
        self.active.as_ref().map(|stored| stored.id())
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.task.is_idle()
    }

    /// Reason why the current version is not active, other than an outage of the store.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Waits for the task in progress.
    pub(super) async fn finished(rules: &mut Option<Self>) -> Option<LoadResult> {
        match rules {
            Some(rules) => rules.task.finished().await,
            None => std::future::pending().await,
        }
    }

    /// Starts from the version on disk, if there is one and none is active. Whether there is one.
    pub(super) fn start_from_disk(&mut self) -> bool {
        if self.active.is_some() || !self.task.is_idle() {
            return false;
        }
        let Some(stored) = self.last.as_mut().and_then(LastVersion::take) else { return false };
        let (id, rules) = (stored.id(), self.rules.clone());
        self.from_disk = Some(id.clone());
        self.task.start(async move {
            match activate(stored, rules, VersionOrigin::Disk).await {
                Ok(Ok(stored)) => LoadResult::Activated(stored),
                Ok(Err(reason)) | Err(reason) => LoadResult::Problem(LoadProblem::Invalid(id, reason)),
            }
        });
        true
    }

    /// Starts the task that the head of the store calls for.
    pub(super) fn reconcile(&mut self, head: &StoreHead, connectivity: Connectivity) {
        if !self.task.is_idle() {
            return;
        }
        match (&head.current, &self.active) {
            (None, None) => match self.control.require_writable() {
                Ok(()) if self.start_from_disk() => {}
                Ok(()) => self.import(),
                Err(_) => self.problem = Some("no version is copied from the writing region yet".to_owned()),
            },
            (Some(current), None) => self.fetch(current, head.size),
            (Some(current), Some(active)) if *current == active.id() => {
                if head.files == FilesPresence::Lost {
                    self.restore(Arc::clone(active), head.current.clone(), connectivity);
                } else {
                    (self.problem, self.from_disk) = (None, None);
                }
            }
            (Some(current), Some(active))
                if current.number >= active.version.number
                    || self.adopted.as_ref() == Some(current)
                    // The writing region has lost the active version.
                    || self.control.require_writable().is_err() =>
            {
                self.fetch(current, head.size);
            }
            (current, Some(active)) => self.restore(Arc::clone(active), current.clone(), connectivity),
        }
    }

    /// Fetches and activates a version, unless that failed recently.
    fn fetch(&mut self, current: &VersionId, size: u64) {
        let retry = self.retry.as_ref().filter(|retry| retry.id == *current);
        if self.invalid.as_ref() == Some(current) || retry.is_some_and(|retry| Instant::now() < retry.at) {
            return;
        }
        let failed = retry.map_or(0, |retry| retry.failed);
        let (id, has_active) = (current.clone(), self.active.is_some());
        let (control, rules) = (self.control.clone(), self.rules.clone());
        self.task.start(async move {
            if size > LARGE_BYTES && has_active {
                sleep(Duration::from_millis(fastrand::u64(..MAX_SPREAD_MS))).await;
            }
            load(&control, rules, id, failed, has_active).await
        });
    }

    /// Restores the active version.
    fn restore(
        &mut self,
        active: Arc<StoredVersion>,
        current: Option<VersionId>,
        connectivity: Connectivity,
    ) {
        // Others may have continued since it was written.
        let is_from_disk = self.from_disk == Some(active.id());
        let connectivity = if is_from_disk { Connectivity::Interrupted } else { connectivity };
        let control = self.control.clone();
        self.task.start(async move { restore(&control, &active, current, connectivity).await });
    }

    fn import(&mut self) {
        if self.imported.is_some_and(|at| at.elapsed() < IMPORT_INTERVAL) {
            return;
        }
        self.imported = Some(Instant::now());
        let (control, rules) = (self.control.clone(), self.rules.clone());
        self.task.start(async move { import(&control, rules).await });
    }

    /// Handles the result of a task; whether to send another heartbeat at once.
    pub(super) fn handle(&mut self, result: LoadResult) -> bool {
        match result {
            LoadResult::Activated(stored) => {
                self.activated(stored);
                (self.invalid, self.retry, self.problem) = (None, None, None);
                true
            }
            LoadResult::Fallback(stored, problem) => {
                self.activated(stored);
                self.handle_problem(problem);
                true
            }
            LoadResult::Problem(problem) => self.handle_problem(problem),
            LoadResult::Failed(reason) => {
                self.report(reason);
                false
            }
            LoadResult::Changed => true,
            LoadResult::Superseded(current) => {
                self.adopted = current;
                true
            }
            LoadResult::NoFiles => {
                self.problem = Some("there is no version yet".to_owned());
                false
            }
        }
    }

    fn activated(&mut self, stored: Arc<StoredVersion>) {
        self.last.iter_mut().for_each(|last| last.activated(&stored));
        self.active = Some(stored);
    }

    fn handle_problem(&mut self, problem: LoadProblem) -> bool {
        match problem {
            LoadProblem::Invalid(current, reason) => {
                (self.invalid, self.problem) = (Some(current), Some(truncated(reason)));
                true
            }
            LoadProblem::Unavailable(current, reason) => {
                let before = self.retry.take().filter(|retry| retry.id == current);
                let (mut backoff, failed) =
                    before.map_or((RETRY_BACKOFF, 0), |retry| (retry.backoff, retry.failed));
                let at = Instant::now() + backoff.pause();
                self.retry = Some(Retry { id: current, at, backoff, failed: failed + 1 });
                self.report(reason);
                false
            }
        }
    }

    fn report(&mut self, reason: String) {
        let reason = truncated(reason);
        if self.problem.as_ref() != Some(&reason) {
            tracing::error!(%reason, "current version of the rules is not active");
        }
        self.problem = Some(reason);
    }
}

/// Size of a version above which instances spread their fetches, and the longest delay.
const LARGE_BYTES: u64 = 256 << 10;
const MAX_SPREAD_MS: u64 = 500;
/// Versions before the current one that are tried in its place while no rules are active.
const MAX_EARLIER_VERSIONS: u64 = 10;
/// Failed fetches of a lost version before an earlier one is activated: another instance may restore it.
const MAX_FETCH_FAILURES: u32 = 2;

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

/// Fetches and activates a version after some failed attempts, or an earlier one if it is invalid or lost and no rules are
/// active.
async fn load(control: &Control, rules: Rules, id: VersionId, failed: u32, has_active: bool) -> LoadResult {
    let number = id.number;
    let (problem, is_permanent) = match control.0.backend.version(number).await {
        Ok(Some(stored)) if stored.token == id.token => {
            match activate(stored, rules.clone(), VersionOrigin::Store).await {
                Ok(Ok(stored)) => return LoadResult::Activated(stored),
                Ok(Err(reason)) => (LoadProblem::Invalid(id, reason), true),
                Err(reason) => (LoadProblem::Unavailable(id, reason), false),
            }
        }
        Ok(Some(_)) => (LoadProblem::Unavailable(id, format!("version {number} was replaced")), false),
        Ok(None) => {
            let reason = format!("the store has lost version {number}");
            (LoadProblem::Unavailable(id, reason), failed >= MAX_FETCH_FAILURES)
        }
        Err(error) => (LoadProblem::Unavailable(id, error.to_string()), false),
    };
    if is_permanent && !has_active {
        return activate_earlier(control, rules, number, problem).await;
    }
    LoadResult::Problem(problem)
}

/// Activates the latest valid version before this one, if there is one.
async fn activate_earlier(control: &Control, rules: Rules, number: u64, problem: LoadProblem) -> LoadResult {
    let first = number.saturating_sub(MAX_EARLIER_VERSIONS).max(1);
    for before in (first..number).rev() {
        let Ok(Some(stored)) = control.0.backend.version(before).await else { continue };
        if let Ok(Ok(stored)) = activate(stored, rules.clone(), VersionOrigin::Store).await {
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
    origin: VersionOrigin,
) -> Result<Result<Arc<StoredVersion>, String>, String> {
    let activated = spawn_blocking(move || {
        let number = stored.version.number;
        let files = stored.files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
        let loaded = config::load_files(files, rules.options);
        let invalid = loaded.as_ref().err().map(|error| format!("version {number} is not valid: {error}"));
        (rules.activate)(loaded, &stored.version, origin);
        invalid.map_or(Ok(stored), Err)
    });
    activated.await.map_err(|error| error.to_string())
}

/// Restores a version that the store has lost; `current` is the one that the store has instead.
async fn restore(
    control: &Control,
    active: &StoredVersion,
    current: Option<VersionId>,
    connectivity: Connectivity,
) -> LoadResult {
    // A store in this process loses nothing.
    let Backend::Redis(redis) = &control.0.backend else { return LoadResult::Changed };
    let number = active.version.number;
    let audit = AuditEntry::restored(format!("version {number}"));
    match versions::restore_version(redis, active, audit, connectivity).await {
        Ok(Restore::Restored) => {
            metrics::STORE_ERRORS.increment(["lost"]);
            tracing::error!(version = number, "restored a version that the store lost");
            LoadResult::Changed
        }
        // Another instance restored it.
        Ok(Restore::Present) => LoadResult::Changed,
        Ok(Restore::Superseded) => {
            metrics::STORE_ERRORS.increment(["lost"]);
            tracing::error!(version = number, "control store was reset; adopting its version");
            LoadResult::Superseded(current)
        }
        Err(error) => LoadResult::Failed(format!("the store has lost version {number}: {error}")),
    }
}

/// Imports the directory's files as the first version, if there are any.
async fn import(control: &Control, rules: Rules) -> LoadResult {
    let directory = rules.directory.clone();
    let read = move || {
        let files = tollgate_directory::read_finished(&rules.directory)?;
        config::compile_files(files.clone(), rules.options)?;
        Ok::<Files, LoadError>(files.texts())
    };
    let files = match spawn_blocking(read).await {
        Ok(Ok(files)) => files,
        Ok(Err(LoadError::Directory(error))) if error.is_not_found() => return LoadResult::NoFiles,
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
