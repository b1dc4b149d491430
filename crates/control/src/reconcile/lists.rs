//! Lists and switches: from the store to what is enforced.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use tollgate_runtime::task_slot::TaskSlot;

use crate::{
    Action, AuditEntry, Control, ControlError, RulesStatus,
    bounds::shortened,
    compile_overrides, metrics,
    stored::{Head, KeptRuntime, PutBack, Reach, now_ms},
};
use tollgate_rules::OverrideTarget;

/// The longest wait for an end: one that is further away is looked at again then.
const LONGEST_WAIT: u64 = 3_600_000;
/// Between two fetches, however many changes there are.
const FETCH_EVERY: Duration = Duration::from_millis(200);
/// Before what failed is tried again, where nothing else says when.
const PAUSE: Duration = Duration::from_secs(1);

/// What follows lists and switches.
pub(super) struct Lists {
    control: Control,
    status: RulesStatus,
    snapshot: Arc<dyn OverrideTarget>,
    /// What is enforced.
    known: Arc<KeptRuntime>,
    /// What had ended by then was left out.
    enforced_at_ms: u64,
    task: TaskSlot<Result<Done, ControlError>>,
    /// When one of them ends.
    end: Option<Instant>,
    fetched: Option<Instant>,
    /// What of what is enforced was left out, and why.
    left_out: Option<String>,
    problem: Option<String>,
}

/// What was put in force.
#[derive(Debug)]
pub(super) struct Done {
    kept: Arc<KeptRuntime>,
    at_ms: u64,
    /// What of it was left out, and why.
    left_out: Option<String>,
}

impl Lists {
    pub(super) fn new(control: Control, status: RulesStatus, snapshot: Arc<dyn OverrideTarget>) -> Self {
        Self {
            control,
            status,
            snapshot,
            known: Arc::default(),
            enforced_at_ms: 0,
            task: TaskSlot::default(),
            end: None,
            fetched: None,
            left_out: None,
            problem: None,
        }
    }

    /// Fetches what is other than what is known, and puts back what the store has lost.
    pub(super) fn consider(&mut self, head: &Head, reach: Reach) {
        let known = &self.known.runtime;
        let is_known = head.generation == known.generation && head.runtime_token == self.known.token;
        if !self.task.is_idle() {
            return;
        }
        if is_known {
            // What failed before was about something that is not there any more.
            self.tell(self.left_out.clone());
            return;
        }
        let (control, status, snapshot) = (self.control.clone(), self.status.clone(), self.snapshot.clone());
        let lost = (head.generation < known.generation).then(|| Arc::clone(&self.known));
        let now = Instant::now();
        let begin = self.fetched.and_then(|at| at.checked_add(FETCH_EVERY)).map_or(now, |at| at.max(now));
        self.fetched = Some(begin);
        self.task.start(async move {
            sleep_until(begin).await;
            if let Some(lost) = lost {
                put_back(&control, &lost, reach).await?;
            }
            let kept = Arc::new(control.store().runtime().await?);
            enforce(kept, status, snapshot).await
        });
    }

    /// Compiles what is known again, for what has ended.
    pub(super) fn compile(&mut self) {
        self.end = None;
        if self.task.is_idle() {
            let (known, status, snapshot) = (self.known.clone(), self.status.clone(), self.snapshot.clone());
            self.task.start(async move { enforce(known, status, snapshot).await });
        }
    }

    /// Waits for what is under way, and says whether something newer is in force.
    pub(super) async fn finished(&mut self) -> bool {
        let panicked = || Err(ControlError::Unavailable("a task ended".to_owned()));
        let done = self.task.finished().await.unwrap_or_else(panicked);
        match done {
            Ok(done) => {
                let is_news = done.kept.token != self.known.token
                    || done.kept.runtime.generation != self.known.runtime.generation;
                (self.known, self.enforced_at_ms) = (done.kept, done.at_ms);
                self.end = self.next_end(Duration::ZERO);
                self.left_out.clone_from(&done.left_out);
                self.tell(done.left_out);
                is_news
            }
            Err(error) => {
                self.end = self.next_end(PAUSE);
                let reason = format!("the lists and switches are not in force as they are: {error}");
                self.tell(Some(reason));
                false
            }
        }
    }

    /// When the next of them ends; `overdue` from now where that should have been seen to already.
    fn next_end(&self, overdue: Duration) -> Option<Instant> {
        let end = self.known.runtime.next_end(self.enforced_at_ms)?;
        let wait = match end.saturating_sub(now_ms()) {
            0 => overdue,
            wait => Duration::from_millis(wait.min(LONGEST_WAIT)),
        };
        let now = Instant::now();
        Some(now.checked_add(wait).unwrap_or(now))
    }

    /// Tells why something of them is not in force, if something is not.
    fn tell(&mut self, problem: Option<String>) {
        let problem = problem.map(shortened);
        if problem == self.problem {
            return;
        }
        if let Some(problem) = &problem {
            tracing::error!("{problem}");
        }
        self.problem.clone_from(&problem);
        self.status.update(|state| state.lists_problem.clone_from(&problem));
    }

    /// When one of them ends.
    pub(super) const fn end(&self) -> Option<Instant> {
        self.end
    }

    /// Tells the last change that is enforced from all others.
    pub(super) fn token(&self) -> &str {
        &self.known.token
    }
}

/// Puts back what the store has lost, unless somebody went on without it: then what is there is taken.
async fn put_back(control: &Control, lost: &KeptRuntime, reach: Reach) -> Result<(), ControlError> {
    metrics::store_error("lost");
    let subject = format!("lists and switches after {} changes", lost.runtime.generation);
    let audit = AuditEntry::put_back(Action::AddEntry, subject);
    match control.store().put_runtime_back(lost, audit, reach).await? {
        PutBack::Made => tracing::error!("the store had lost lists and switches: they were put back"),
        PutBack::Kept | PutBack::Other => {
            tracing::error!("the store has other lists and switches than it had: they are taken from it");
        }
    }
    Ok(())
}

async fn enforce(
    kept: Arc<KeptRuntime>,
    status: RulesStatus,
    snapshot: Arc<dyn OverrideTarget>,
) -> Result<Done, ControlError> {
    let at_ms = now_ms();
    let compiled = spawn_blocking(move || {
        let (overrides, mut problems) = compile_overrides(&kept.runtime, at_ms);
        problems.extend(kept.problems.iter().cloned());
        snapshot.override_with(Arc::new(overrides));
        let generation = kept.runtime.generation;
        status.update(|state| state.generation = generation);
        metrics::overrides(&kept.runtime, at_ms);
        let left_out = (!problems.is_empty()).then(|| problems.join("; "));
        Done { kept, at_ms, left_out }
    });
    // Fails by a panic only, which is logged.
    compiled.await.map_err(|error| ControlError::Unavailable(error.to_string()))
}
