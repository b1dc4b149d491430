//! Reconciles overrides of rules with the store.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tokio::{sync::mpsc, task::spawn_blocking};
use tollgate_core::clock::now_ms;
use tollgate_rules::{OverriddenCounts, OverrideTarget};
use tollgate_runtime::task_slot::TaskSlot;

use crate::redis::Redis;
use crate::redis::overrides::{self, ChangesPage};
use crate::rule_overrides::{BookHead, OverrideBook};
use crate::{
    Action, AuditEntry, Control, ControlError, ControlResult, RulesStatus, handle::Backend, metrics,
    stored::StoreHead,
};

/// Longest wait for an end; a later one is checked again then.
const MAX_END_WAIT_MS: u64 = 3_600_000;
/// Shortest time between two activations, and a multiple of the time that one takes: ends may be close to each other, and
/// each request checks the end of its override anyway.
const ACTIVATION_INTERVAL: Duration = Duration::from_millis(100);
const ACTIVATION_PART: u32 = 20;
/// Number of overrides for each millisecond over which instances spread the restoration of lost ones, and the longest
/// spread.
const CHANGES_PER_SPREAD_MS: usize = 100;
const MAX_SPREAD_MS: u64 = 500;
/// Pages of changes that are fetched before earlier ones are read.
const PAGES_AHEAD: usize = 2;

/// Reconciles overrides of rules.
pub(super) struct OverridesReconciler {
    control: Control,
    status: RulesStatus,
    snapshot: Arc<dyn OverrideTarget>,
    task: TaskSlot<ControlResult<Activated>>,
    pub(super) next_end: Option<Instant>,
    /// Earliest time of the next activation because of an end.
    rested: Option<Instant>,
    unmatched: usize,
}

/// Overrides that were activated.
#[derive(Debug)]
struct Activated {
    counts: OverriddenCounts,
    /// Reason why one has no effect, if there is one.
    unmatched: Option<String>,
    took: Duration,
    problems: Vec<String>,
}

impl OverridesReconciler {
    /// Activates the overrides of the file at once, whether the store responds or not.
    pub(super) fn new(control: Control, status: RulesStatus, snapshot: Arc<dyn OverrideTarget>) -> Self {
        let (task, next_end, rested) = (TaskSlot::default(), None, None);
        let mut new = Self { control, status, snapshot, task, next_end, rested, unmatched: 0 };
        if !new.control.0.overrides.with(OverrideBook::is_empty) {
            new.activate();
        }
        new
    }

    /// Fetches changes that this instance lacks, and restores those that the store has lost.
    pub(super) fn reconcile(&mut self, head: &StoreHead) {
        if !self.task.is_idle() {
            return;
        }
        let held = self.control.0.overrides.head();
        let plan = match &self.control.0.backend {
            Backend::Redis(_) => Plan::of(&held, &head.overrides),
            // A store in this process is what the instance holds.
            Backend::Memory(_) => Plan::Nothing,
        };
        if plan == Plan::Nothing {
            if held.revision != self.control.0.overrides.active() {
                self.activate();
            }
            return;
        }
        let (control, snapshot) = (self.control.clone(), Arc::clone(&self.snapshot));
        let store = head.overrides.clone();
        self.task.start(async move {
            let problems = follow(&control, plan, held, &store).await?;
            activate(control, snapshot, problems).await
        });
    }

    /// Activates the overrides of this instance again, without those that have ended.
    pub(super) fn activate(&mut self) {
        self.next_end = None;
        if self.task.is_idle() {
            let (control, snapshot) = (self.control.clone(), Arc::clone(&self.snapshot));
            self.task.start(activate(control, snapshot, Vec::new()));
        }
    }

    /// Waits for the task in progress; whether to send another heartbeat.
    pub(super) async fn finished(&mut self) -> bool {
        let panicked = || Err(ControlError::Unavailable("a task panicked".to_owned()));
        let finished = self.task.finished().await.unwrap_or_else(panicked);
        let now = Instant::now();
        let is_activated = finished.is_ok();
        match finished {
            Ok(Activated { counts, unmatched, took, problems }) => {
                let rest = ACTIVATION_INTERVAL.max(took * ACTIVATION_PART);
                self.rested = Some(now + rest);
                if let (true, Some(reason)) = (counts.unmatched != self.unmatched, unmatched) {
                    tracing::warn!(overrides = counts.unmatched, %reason, "overrides without effect");
                }
                self.unmatched = counts.unmatched;
                self.report((!problems.is_empty()).then(|| problems.join("; ")));
            }
            Err(error) => self.report(Some(format!("the current overrides are not active: {error}"))),
        }
        let now_ms = now_ms();
        self.next_end = self.control.0.overrides.with(|book| book.next_end(now_ms)).and_then(|end| {
            let wait = Duration::from_millis(end.saturating_sub(now_ms).min(MAX_END_WAIT_MS));
            Some(now + wait).max(self.rested)
        });
        is_activated
    }

    fn report(&self, problem: Option<String>) {
        if let Some(problem) = self.status.set_problem(|state| &mut state.overrides_problem, problem) {
            tracing::error!(%problem, "overrides are not active");
        }
    }
}

/// Steps that a state of the store calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    Nothing,
    /// Fetch what has later revisions.
    Changes,
    /// Fetch everything in place of what is held.
    Everything,
    /// Restore what has later revisions than this one and the store lacks, then fetch everything.
    Restore(u64),
}

impl Plan {
    /// The steps of an instance that holds `held`.
    fn of(held: &BookHead, store: &BookHead) -> Self {
        match () {
            () if store.lineage.is_empty() && held.revision == 0 => Self::Nothing,
            // What was set over another store stays; of removals up to the floor, the store does not know.
            () if store.lineage != held.lineage && held.revision > 0 => Self::Restore(store.floor),
            () if store.lineage != held.lineage => Self::Everything,
            () if store.revision < held.revision => Self::Restore(store.revision),
            () if store.epoch != held.epoch || store.floor > held.revision => Self::Everything,
            () if store.revision > held.revision => Self::Changes,
            () => Self::Nothing,
        }
    }
}

/// Makes the overrides of this instance and those of the store equal. Returns why some were omitted.
async fn follow(
    control: &Control,
    plan: Plan,
    held: BookHead,
    store: &BookHead,
) -> ControlResult<Vec<String>> {
    let Backend::Redis(redis) = &control.0.backend else { return Ok(Vec::new()) };
    match plan {
        Plan::Nothing => Ok(Vec::new()),
        Plan::Changes => fetch_changes(control, redis, held).await,
        Plan::Everything => fetch_everything(control, redis).await,
        Plan::Restore(from) => {
            restore(control, redis, from, store).await?;
            fetch_everything(control, redis).await
        }
    }
}

/// Fetches what has later revisions.
async fn fetch_changes(control: &Control, redis: &Redis, held: BookHead) -> ControlResult<Vec<String>> {
    let (mut next, mut problems) = (Some(held.revision), Vec::new());
    while let Some(from) = next {
        let page = overrides::since(&redis.client, from).await?;
        next = page.next;
        // Until the last page the revision is that of the last change.
        let head = next.is_none().then(|| page.head.clone().in_epoch_of(&held));
        let control = control.clone();
        let recorded = spawn_blocking(move || {
            let (changes, mut problems) = page.changes();
            let finish = |book: &mut OverrideBook| head.into_iter().for_each(|head| book.head = head);
            problems.extend(control.0.overrides.record(&changes, finish));
            problems
        });
        problems.extend(recorded.await?);
    }
    Ok(problems)
}

/// Fetches everything in place of what is held.
async fn fetch_everything(control: &Control, redis: &Redis) -> ControlResult<Vec<String>> {
    let (pages, mut fetched) = mpsc::channel::<ChangesPage>(PAGES_AHEAD);
    let control = control.clone();
    // A page is read while the store makes the next one.
    let replaced = spawn_blocking(move || {
        let (mut problems, mut book, mut is_first) = (Vec::new(), OverrideBook::default(), true);
        while let Some(page) = fetched.blocking_recv() {
            let (head, is_last) = (page.head.clone(), page.next.is_none());
            let (changes, unreadable) = page.changes();
            problems.extend(unreadable);
            // An invalid one, which a newer release may have written, is omitted.
            let invalid = changes.into_iter().filter_map(|change| book.apply(change).err());
            problems.extend(invalid.map(|error| format!("an override is omitted: {error}")));
            book.head = if is_first { head } else { head.in_epoch_of(&book.head) };
            is_first = false;
            if is_last {
                problems.extend(control.0.overrides.replace(book));
                return problems;
            }
        }
        // The store did not respond.
        problems
    });
    let mut next = Some(0);
    while let Some(from) = next {
        let page = overrides::since(&redis.client, from).await?;
        next = page.next;
        if pages.send(page).await.is_err() {
            // The thread has panicked.
            break;
        }
    }
    drop(pages);
    Ok(replaced.await?)
}

/// Restores what the store has lost, or what was set over another store, without what has a later revision there: all with
/// later revisions than `from`.
async fn restore(control: &Control, redis: &Redis, from: u64, store: &BookHead) -> ControlResult<()> {
    let count = control.0.overrides.with(OverrideBook::len);
    let spread = MAX_SPREAD_MS.min((count / CHANGES_PER_SPREAD_MS) as u64);
    sleep(Duration::from_millis(fastrand::u64(0..=spread))).await;
    let (head, changes) = control
        .0
        .overrides
        .with(|book| (book.head.clone(), book.changes_since(from, now_ms()).collect::<Vec<_>>()));
    if changes.is_empty() && count == 0 {
        return Ok(());
    }
    let (changed, mut kept) = (changes.len(), None);
    if !store.lineage.is_empty() && store.lineage != head.lineage {
        let control = control.clone();
        let keep = spawn_blocking(move || control.0.overrides.keep_file());
        kept = keep.await?;
    }
    let audit = AuditEntry::restored(Action::SetOverride, format!("{changed} changes of overrides"));
    if overrides::restore(&redis.client, &head, &changes, audit).await? {
        metrics::STORE_ERRORS.increment(["lost"]);
        tracing::error!(changes = changed, kept, "restored overrides that the store lacked");
    } else {
        tracing::error!(kept, "control store was reset; adopting its overrides");
    }
    Ok(())
}

async fn activate(
    control: Control,
    snapshot: Arc<dyn OverrideTarget>,
    problems: Vec<String>,
) -> ControlResult<Activated> {
    let activated = spawn_blocking(move || {
        let begun = Instant::now();
        control.0.overrides.sweep(now_ms());
        let overrides = Arc::new(control.0.overrides.with(OverrideBook::compiled));
        let revision = overrides.revision;
        let overridden = snapshot.override_rules(overrides);
        let counts = overridden.counts;
        metrics::rule_overrides(&*snapshot);
        control.0.overrides.activated(revision);
        let unmatched = overridden.unmatched.first().map(|found| format!("{}: {}", found.id, found.reason));
        Activated { counts, unmatched, took: begun.elapsed(), problems }
    });
    Ok(activated.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lineage: &str, revision: u64, epoch: u64, floor: u64) -> BookHead {
        BookHead { lineage: lineage.to_owned(), revision, epoch, floor }
    }

    #[test]
    fn an_instance_fetches_what_it_lacks_and_restores_what_the_store_lost() {
        let held = head("a", 5, 1, 0);
        for (store, plan) in [
            (head("a", 5, 1, 0), Plan::Nothing),
            (head("a", 9, 1, 5), Plan::Changes),
            (head("a", 9, 1, 6), Plan::Everything),
            (head("a", 9, 2, 0), Plan::Everything),
            (head("a", 4, 0, 0), Plan::Restore(4)),
            (head("", 0, 0, 0), Plan::Restore(0)),
            (head("b", 3, 1, 0), Plan::Restore(0)),
            (head("b", 9, 1, 2), Plan::Restore(2)),
        ] {
            assert_eq!(Plan::of(&held, &store), plan, "{store:?}");
        }
        let of_memory = head("", 5, 0, 0);
        assert_eq!(Plan::of(&of_memory, &head("", 0, 0, 0)), Plan::Restore(0));
        assert_eq!(Plan::of(&of_memory, &head("a", 9, 1, 3)), Plan::Restore(3));
        assert_eq!(Plan::of(&head("", 0, 0, 0), &head("", 0, 0, 0)), Plan::Nothing);
        assert_eq!(Plan::of(&head("", 0, 0, 0), &head("a", 1, 0, 0)), Plan::Everything);
    }
}
