//! Reconciles the books with the store, and activates their records.

mod plan;

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::Instant};
use tollgate_core::clock::now_ms;
use tollgate_rules::OverrideTarget;
use tollgate_runtime::task_slot::TaskSlot;
use tollgate_store::local::recheck_bans;

use self::plan::{Plan, apply};
use crate::book::{Book, BookHead, BookName, Stamps};
use crate::{
    Control, ControlError, ControlResult, RulesStatus, compile_lists, handle::Backend, metrics,
    stored::StoreHead,
};

/// Longest wait for an end; a later one is checked again then.
const MAX_END_WAIT_MS: u64 = 3_600_000;
/// Shortest time between two activations, and a multiple of the time that one takes: ends may be close to each other, and
/// each request checks the end of its override anyway.
const ACTIVATION_INTERVAL: Duration = Duration::from_millis(100);
const ACTIVATION_PART: u32 = 20;

/// Heartbeats in a row at which an instance waits for the end of a restoration, which are 100 ms apart.
const MAX_HOLDS: u8 = 10;

/// Reconciles the books.
pub(super) struct BookReconciler {
    control: Control,
    status: RulesStatus,
    snapshot: Arc<dyn OverrideTarget>,
    task: TaskSlot<ControlResult<Activated>>,
    active: Active,
    /// Time of the next activation because of an end.
    pub(super) next_end: Option<Instant>,
    /// Earliest time of that activation.
    rested: Option<Instant>,
    /// Number of lifted bans after which cached bans were requested again.
    lifted_bans: Option<u64>,
    /// Epoch of each book at the last heartbeat.
    epochs: [Option<u64>; 2],
    /// Number of heartbeats in a row since which a new epoch is not acted on.
    holds: u8,
    /// Whether a heartbeat was ignored, because the task was in progress.
    is_behind: bool,
}

/// Records that are active.
#[derive(Clone, Debug, Default)]
struct Active {
    /// State of each book.
    stamps: [Stamps; 2],
    /// Number of overrides without effect.
    unmatched: usize,
    /// Why list entries or switches are omitted.
    omitted: Vec<String>,
    /// Why records that were read last are omitted.
    unreadable: Vec<String>,
    /// Why a book could not be read.
    failures: Vec<String>,
}

/// Step of one book that a heartbeat calls for.
struct Step {
    name: BookName,
    plan: Plan,
    held: BookHead,
    store: BookHead,
}

/// Records that were activated.
#[derive(Debug)]
struct Activated {
    active: Active,
    /// Reason why an override has no effect, if there is one.
    unmatched: Option<String>,
    took: Duration,
    /// Whether the store was read.
    was_read: bool,
}

impl BookReconciler {
    /// Activates the records of the file at once, whether the store responds or not.
    pub(super) fn new(control: Control, status: RulesStatus, snapshot: Arc<dyn OverrideTarget>) -> Self {
        let (task, active) = (TaskSlot::default(), Active::default());
        let mut new = Self {
            control,
            status,
            snapshot,
            task,
            active,
            next_end: None,
            rested: None,
            lifted_bans: None,
            epochs: [None; 2],
            holds: 0,
            is_behind: false,
        };
        if new.stamps() != new.active.stamps {
            new.activate();
        }
        new
    }

    fn stamps(&self) -> [Stamps; 2] {
        self.control.0.books().map(|book| book.with(|book| book.stamps))
    }

    /// Fetches changes that this instance lacks, and restores those that the store has lost. Whether to send another heartbeat
    /// soon.
    pub(super) fn reconcile(&mut self, head: &StoreHead) -> bool {
        if self.lifted_bans.replace(head.lifted_bans).is_some_and(|before| before != head.lifted_bans) {
            recheck_bans();
        }
        let steps = self.steps(head);
        self.is_behind = !self.task.is_idle();
        if self.is_behind {
            return false;
        }
        let is_held = steps.len() < BookName::ALL.len();
        self.holds = if is_held { self.holds.saturating_add(1) } else { 0 };
        if steps.iter().all(|step| step.plan == Plan::Nothing) {
            if !is_held {
                self.control.0.books().iter().for_each(|book| book.loaded());
                self.active.failures.clear();
            }
            if self.stamps() != self.active.stamps {
                self.activate();
            } else {
                self.report();
            }
            return is_held;
        }
        let (control, status, snapshot) = (self.control.clone(), self.status.clone(), self.snapshot.clone());
        let mut active = self.active.clone();
        (active.unreadable, active.failures) = Default::default();
        self.task.start(async move {
            for Step { name, plan, held, store } in steps {
                match apply(&control, name, plan, held, &store).await {
                    Ok(problems) => {
                        control.0.book(name).loaded();
                        active.unreadable.extend(problems);
                    }
                    Err(error) => {
                        active.failures.push(format!("the current records are not active: {error}"));
                    }
                }
            }
            let activated = activate(control, status, snapshot, active).await?;
            Ok(Activated { was_read: true, ..activated })
        });
        is_held
    }

    /// The step of each book that a heartbeat calls for, without a book that is being restored: each step of a restoration begins
    /// an epoch, and all is fetched after the last one, or after some heartbeats.
    fn steps(&mut self, head: &StoreHead) -> Vec<Step> {
        let before =
            std::mem::replace(&mut self.epochs, head.books.each_ref().map(|store| Some(store.epoch)));
        let step = |((name, store), before): ((BookName, &BookHead), Option<u64>)| {
            let held = self.control.0.book(name).head();
            let plan = match &self.control.0.backend {
                Backend::Redis(_) => Plan::of(&held, store),
                // A store in this process is what the instance holds.
                Backend::Memory(_) => Plan::Nothing,
            };
            let is_new_epoch = held.revision > 0 && before.is_some_and(|before| before != store.epoch);
            let is_held = plan == Plan::Everything && is_new_epoch && self.holds < MAX_HOLDS;
            (!is_held).then(|| Step { name, plan, held, store: store.clone() })
        };
        BookName::ALL.into_iter().zip(&head.books).zip(before).filter_map(step).collect()
    }

    /// Activates the records of this instance again, without those that have ended.
    pub(super) fn activate(&mut self) {
        self.next_end = None;
        if self.task.is_idle() {
            let (control, status) = (self.control.clone(), self.status.clone());
            let (snapshot, before) = (Arc::clone(&self.snapshot), self.active.clone());
            self.task.start(activate(control, status, snapshot, before));
        }
    }

    /// Waits for the task in progress; whether to send another heartbeat.
    pub(super) async fn finished(&mut self) -> bool {
        let panicked = || Err(ControlError::Unavailable("a task panicked".to_owned()));
        let finished = self.task.finished().await.unwrap_or_else(panicked);
        let now = Instant::now();
        let mut is_current = false;
        match finished {
            Ok(Activated { active, unmatched, took, was_read }) => {
                is_current = was_read && active.failures.is_empty();
                let rest = ACTIVATION_INTERVAL.max(took * ACTIVATION_PART);
                self.rested = Some(now + rest);
                if let (true, Some(reason)) = (active.unmatched != self.active.unmatched, unmatched) {
                    tracing::warn!(overrides = active.unmatched, %reason, "overrides without effect");
                }
                self.active = active;
            }
            Err(error) => self.active.failures = vec![error.to_string()],
        }
        self.report();
        let ends = self.control.0.books().into_iter().filter_map(|book| book.with(Book::next_end));
        self.next_end = ends.min().and_then(|end| {
            // One that has passed meanwhile is due at once.
            let wait = Duration::from_millis(end.saturating_sub(now_ms()).min(MAX_END_WAIT_MS));
            Some(now + wait).max(self.rested)
        });
        is_current || self.is_behind && self.active.failures.is_empty()
    }

    /// Reports why some records are not active, if so.
    fn report(&self) {
        let Active { omitted, unreadable, failures, .. } = &self.active;
        let problems = [&**failures, unreadable, omitted].concat();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        if let Some(problem) = self.status.set_problem(|state| &mut state.records_problem, problem) {
            tracing::error!(%problem, "records are not active");
        }
    }
}

/// Activates the parts of the books that have changed.
async fn activate(
    control: Control,
    status: RulesStatus,
    snapshot: Arc<dyn OverrideTarget>,
    before: Active,
) -> ControlResult<Activated> {
    let activated = spawn_blocking(move || {
        let (begun, now_ms) = (Instant::now(), now_ms());
        let books = control.0.books();
        books.iter().for_each(|book| book.sweep(now_ms));
        // What changes from here on is activated again.
        let read = books.map(|book| book.with(|book| (book.stamps, book.head.revision)));
        let [(operators, revision), (system, system_revision)] = read;
        let mut active = Active { stamps: [operators, system], ..before.clone() };
        let mut unmatched = None;
        if operators.overrides != before.stamps[0].overrides {
            let overrides = Arc::new(control.0.book(BookName::Operators).with(Book::compiled));
            let overridden = snapshot.override_rules(overrides);
            metrics::rule_overrides(&*snapshot);
            active.unmatched = overridden.counts.unmatched;
            unmatched = overridden.unmatched.first().map(|found| format!("{}: {}", found.id, found.reason));
        }
        let are_own_changed = operators.lists != before.stamps[0].lists;
        if are_own_changed || system.lists != before.stamps[1].lists {
            let runtime = control.held_runtime();
            let (lists, omitted) = compile_lists(&runtime, now_ms);
            snapshot.set_lists(Arc::new(lists));
            metrics::lists(&runtime);
            active.omitted = omitted;
            // Automatic entries come with bans.
            if are_own_changed {
                recheck_bans();
            }
        }
        status.update(|state| state.generation = revision);
        metrics::records_revisions(revision, system_revision);
        let [operators, system] = books;
        operators.activated(revision);
        system.activated(system_revision);
        Activated { active, unmatched, took: begun.elapsed(), was_read: false }
    });
    Ok(activated.await?)
}

#[cfg(test)]
mod tests;
