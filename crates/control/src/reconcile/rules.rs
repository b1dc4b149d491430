//! Versions of the rules: from the store to what is enforced.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_runtime::{
    backoff::{Backoff, Jitter},
    task_slot::TaskSlot,
};

use super::load::{Outcome, Trouble, Wanted, import, load, put_back};
use crate::{
    Control, Version,
    bounds::shortened,
    stored::{Content, Current, Head, Kept, Reach},
};
use tollgate_rules::config::{LoadError, Loaded, Options};

/// Between two attempts to make a first version of the directory's files.
const IMPORT_EVERY: Duration = Duration::from_secs(5);
/// Pauses between attempts to activate a version; each attempt fetches all of it.
const RETRY_BACKOFF: Backoff =
    Backoff::with_jitter(Duration::from_secs(1), Duration::from_secs(30), Jitter::None);

/// Puts a version in force if it is good. Called on threads that may wait.
pub(super) type Take = dyn Fn(Result<Loaded, LoadError>, &Version) + Send + Sync;

/// How rules are read, and what takes them.
#[derive(Clone)]
pub struct Rules {
    /// Where the first version's files are, if there are any.
    pub directory: PathBuf,
    pub options: Options,
    pub take: Arc<Take>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// What follows the versions.
pub(super) struct Versions {
    control: Control,
    rules: Rules,
    task: TaskSlot<Outcome>,
    enforced: Option<Arc<Kept>>,
    /// The version that was found to be bad last.
    refused: Option<Current>,
    /// One from which the store has gone on without what is in force.
    stands: Option<Current>,
    /// The one that could not be fetched last.
    retry: Option<Retry>,
    problem: Option<String>,
    /// When the directory was looked at.
    imported: Option<Instant>,
}

/// A version that could not be had, and when to try again.
#[derive(Debug)]
struct Retry {
    of: Current,
    at: Instant,
    backoff: Backoff,
    /// Attempts that failed.
    failed: u32,
}

impl Versions {
    pub(super) fn new(control: Control, rules: Rules) -> Self {
        let task = TaskSlot::default();
        Self {
            control,
            rules,
            task,
            enforced: None,
            refused: None,
            stands: None,
            retry: None,
            problem: None,
            imported: None,
        }
    }

    /// The version in force.
    pub(super) fn enforced(&self) -> Option<Current> {
        self.enforced.as_ref().map(|kept| kept.current())
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.task.is_idle()
    }

    /// Why the current version is not in force, if that is not for want of a store.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Waits for what is under way.
    pub(super) async fn finished(versions: &mut Option<Self>) -> Option<Outcome> {
        match versions {
            Some(versions) => versions.task.finished().await,
            None => std::future::pending().await,
        }
    }

    /// Begins what there is to do about what is current.
    pub(super) fn consider(&mut self, head: &Head, reach: Reach) {
        if !self.task.is_idle() {
            return;
        }
        match (&head.current, &self.enforced) {
            (None, None) => self.import(),
            (Some(current), None) => self.fetch(current, head.size),
            (Some(current), Some(enforced)) if *current == enforced.current() => {
                if head.content == Content::Lost {
                    self.put_back(Arc::clone(enforced), head.current.clone(), reach);
                } else {
                    self.problem = None;
                }
            }
            (Some(current), Some(enforced))
                if current.number >= enforced.version.number || self.stands.as_ref() == Some(current) =>
            {
                self.fetch(current, head.size);
            }
            (current, Some(enforced)) => self.put_back(Arc::clone(enforced), current.clone(), reach),
        }
    }

    /// Has this be in force, unless that was found to be in vain.
    fn fetch(&mut self, current: &Current, size: u64) {
        let retry = self.retry.as_ref().filter(|retry| retry.of == *current);
        if self.refused.as_ref() == Some(current) || retry.is_some_and(|retry| Instant::now() < retry.at) {
            return;
        }
        let failed = retry.map_or(0, |retry| retry.failed);
        let wanted = Wanted { current: current.clone(), size, failed, enforced: self.enforced() };
        let (control, rules) = (self.control.clone(), self.rules.clone());
        self.task.start(async move { load(&control, rules, wanted).await });
    }

    /// Puts back what is enforced.
    fn put_back(&mut self, enforced: Arc<Kept>, current: Option<Current>, reach: Reach) {
        let control = self.control.clone();
        self.task.start(async move { put_back(&control, &enforced, current, reach).await });
    }

    fn import(&mut self) {
        if self.imported.is_some_and(|at| at.elapsed() < IMPORT_EVERY) {
            return;
        }
        self.imported = Some(Instant::now());
        let (control, rules) = (self.control.clone(), self.rules.clone());
        self.task.start(async move { import(&control, rules).await });
    }

    /// Takes note of what came of it, and says whether to look at once for what else there is.
    pub(super) fn note(&mut self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::InForce(kept) => {
                (self.enforced, self.refused, self.retry, self.problem) = (Some(kept), None, None, None);
                true
            }
            Outcome::Earlier(kept, trouble) => {
                self.enforced = Some(kept);
                self.note_trouble(trouble);
                true
            }
            Outcome::Trouble(trouble) => self.note_trouble(trouble),
            Outcome::Failed(reason) => {
                self.tell(reason);
                false
            }
            Outcome::Changed => true,
            Outcome::Stands(current) => {
                self.stands = current;
                true
            }
            Outcome::Nothing => {
                self.problem = Some("there is no version yet".to_owned());
                false
            }
        }
    }

    fn note_trouble(&mut self, trouble: Trouble) -> bool {
        match trouble {
            Trouble::Refused(current, reason) => {
                (self.refused, self.problem) = (Some(current), Some(shortened(reason)));
                true
            }
            Trouble::Missing(current, reason) => {
                let before = self.retry.take().filter(|retry| retry.of == current);
                let (mut backoff, failed) =
                    before.map_or((RETRY_BACKOFF, 0), |retry| (retry.backoff, retry.failed));
                let now = Instant::now();
                let at = now.checked_add(backoff.pause()).unwrap_or(now);
                self.retry = Some(Retry { of: current, at, backoff, failed: failed.saturating_add(1) });
                self.tell(reason);
                false
            }
        }
    }

    fn tell(&mut self, reason: String) {
        let reason = shortened(reason);
        if self.problem.as_ref() != Some(&reason) {
            tracing::error!("the current rules are not in force: {reason}");
        }
        self.problem = Some(reason);
    }
}
