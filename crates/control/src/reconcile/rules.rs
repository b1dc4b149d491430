//! Reconciles versions of the rules with the store.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_rules::config::{LoadError, Loaded, Options};
use tollgate_runtime::{
    backoff::{Backoff, Jitter},
    task_slot::TaskSlot,
};

use super::load::{LoadProblem, LoadRequest, LoadResult, import, load, restore};
use crate::{
    Control, Version,
    bounds::truncated,
    stored::{Connectivity, FilesPresence, StoreHead, StoredVersion, VersionId},
};

/// Time between two attempts to import the directory's files as the first version.
const IMPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Pauses between attempts to activate a version; each attempt fetches all of it.
const RETRY_BACKOFF: Backoff =
    Backoff::with_jitter(Duration::from_secs(1), Duration::from_secs(30), Jitter::None);

/// Activates a version if it is valid. Called on blocking threads.
pub(super) type Activate = dyn Fn(Result<Loaded, LoadError>, &Version) + Send + Sync;

/// Options for reading rules, and their activation.
#[derive(Clone)]
pub struct Rules {
    /// Directory of the first version's files.
    pub directory: PathBuf,
    pub options: Options,
    pub activate: Arc<Activate>,
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
    pub(super) fn new(control: Control, rules: Rules) -> Self {
        let task = TaskSlot::default();
        Self {
            control,
            rules,
            task,
            active: None,
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

    /// Starts the task that the head of the store calls for.
    pub(super) fn reconcile(&mut self, head: &StoreHead, connectivity: Connectivity) {
        if !self.task.is_idle() {
            return;
        }
        match (&head.current, &self.active) {
            (None, None) => match self.control.require_writable() {
                Ok(()) => self.import(),
                Err(_) => self.problem = Some("no version is copied from the writing region yet".to_owned()),
            },
            (Some(current), None) => self.fetch(current, head.size),
            (Some(current), Some(active)) if *current == active.id() => {
                if head.files == FilesPresence::Lost {
                    self.restore(Arc::clone(active), head.current.clone(), connectivity);
                } else {
                    self.problem = None;
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
        let request = LoadRequest { id: current.clone(), size, failed, active: self.active() };
        let (control, rules) = (self.control.clone(), self.rules.clone());
        self.task.start(async move { load(&control, rules, request).await });
    }

    /// Restores the active version.
    fn restore(
        &mut self,
        active: Arc<StoredVersion>,
        current: Option<VersionId>,
        connectivity: Connectivity,
    ) {
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
                (self.active, self.invalid, self.retry, self.problem) = (Some(stored), None, None, None);
                true
            }
            LoadResult::Fallback(stored, problem) => {
                self.active = Some(stored);
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
                let now = Instant::now();
                let at = now.checked_add(backoff.pause()).unwrap_or(now);
                self.retry = Some(Retry { id: current, at, backoff, failed: failed.saturating_add(1) });
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
