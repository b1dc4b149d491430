//! Reconciles the books with the store, and activates their records.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tokio::{sync::mpsc, task::spawn_blocking};
use tollgate_core::clock::now_ms;
use tollgate_rules::OverrideTarget;
use tollgate_runtime::task_slot::TaskSlot;
use tollgate_store::local::recheck_bans;

use crate::book::{Book, BookHead, BookName, Stamps};
use crate::redis::Redis;
use crate::redis::book::{self, ChangesPage};
use crate::{
    Action, AuditEntry, Control, ControlError, ControlResult, RulesStatus, compile_lists,
    handle::Backend,
    metrics,
    stored::{Restore, StoreHead},
};

/// Longest wait for an end; a later one is checked again then.
const MAX_END_WAIT_MS: u64 = 3_600_000;
/// Shortest time between two activations, and a multiple of the time that one takes: ends may be close to each other, and
/// each request checks the end of its override anyway.
const ACTIVATION_INTERVAL: Duration = Duration::from_millis(100);
const ACTIVATION_PART: u32 = 20;
/// Number of records for each millisecond over which instances spread the restoration of lost ones, and the longest
/// spread.
const CHANGES_PER_SPREAD_MS: usize = 100;
const MAX_SPREAD_MS: u64 = 500;
/// Pages of changes that are fetched before earlier ones are read.
const PAGES_AHEAD: usize = 2;

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
    /// Why the books of the store are not all read.
    unread: Vec<String>,
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
        let (next_end, rested, lifted_bans) = (None, None, None);
        let mut new = Self { control, status, snapshot, task, active, next_end, rested, lifted_bans };
        if new.stamps() != new.active.stamps {
            new.activate();
        }
        new
    }

    fn stamps(&self) -> [Stamps; 2] {
        self.control.0.books().map(|book| book.with(|book| book.stamps))
    }

    /// Fetches changes that this instance lacks, and restores those that the store has lost.
    pub(super) fn reconcile(&mut self, head: &StoreHead) {
        if self.lifted_bans.replace(head.lifted_bans).is_some_and(|before| before != head.lifted_bans) {
            recheck_bans();
        }
        if !self.task.is_idle() {
            return;
        }
        let plan = |(name, store): (BookName, &BookHead)| {
            let held = self.control.0.book(name).head();
            let plan = match &self.control.0.backend {
                Backend::Redis(_) => Plan::of(&held, store),
                // A store in this process is what the instance holds.
                Backend::Memory(_) => Plan::Nothing,
            };
            (name, plan, held, store.clone())
        };
        let steps: Vec<_> = BookName::ALL.into_iter().zip(&head.books).map(plan).collect();
        if steps.iter().all(|(_, plan, ..)| *plan == Plan::Nothing) {
            self.control.0.books().iter().for_each(|book| book.loaded());
            self.active.unread.clear();
            if self.stamps() != self.active.stamps {
                self.activate();
            } else {
                self.report();
            }
            return;
        }
        let (control, status, snapshot) = (self.control.clone(), self.status.clone(), self.snapshot.clone());
        let mut active = Active { unread: Vec::new(), ..self.active.clone() };
        self.task.start(async move {
            for (name, plan, held, store) in steps {
                match apply(&control, name, plan, held, &store).await {
                    Ok(problems) => {
                        control.0.book(name).loaded();
                        active.unread.extend(problems);
                    }
                    Err(error) => active.unread.push(format!("the current records are not active: {error}")),
                }
            }
            let activated = activate(control, status, snapshot, active).await?;
            Ok(Activated { was_read: true, ..activated })
        });
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
                is_current = was_read && active.unread.is_empty();
                let rest = ACTIVATION_INTERVAL.max(took * ACTIVATION_PART);
                self.rested = Some(now + rest);
                if let (true, Some(reason)) = (active.unmatched != self.active.unmatched, unmatched) {
                    tracing::warn!(overrides = active.unmatched, %reason, "overrides without effect");
                }
                self.active = active;
            }
            Err(error) => self.active.unread = vec![error.to_string()],
        }
        self.report();
        let ends = self.control.0.books().into_iter().filter_map(|book| book.with(Book::next_end));
        self.next_end = ends.min().and_then(|end| {
            // One that has passed meanwhile is due at once.
            let wait = Duration::from_millis(end.saturating_sub(now_ms()).min(MAX_END_WAIT_MS));
            Some(now + wait).max(self.rested)
        });
        is_current
    }

    /// Reports why some records are not active, if so.
    fn report(&self) {
        let problems = [&*self.active.unread, &*self.active.omitted].concat();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        if let Some(problem) = self.status.set_problem(|state| &mut state.records_problem, problem) {
            tracing::error!(%problem, "records are not active");
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
            // What was set over another store stays; removals up to the floor are forgotten.
            () if store.lineage != held.lineage && held.revision > 0 => Self::Restore(store.floor),
            () if store.lineage != held.lineage => Self::Everything,
            () if store.revision < held.revision => Self::Restore(restored_from(store.revision, held, store)),
            () if store.epoch != held.epoch || store.floor > held.revision => Self::Everything,
            () if store.revision > held.revision => Self::Changes,
            () => Self::Nothing,
        }
    }
}

/// The revision after which an instance restores what it holds to a store with which it has one in common: that one, unless
/// the last restoration was later, which may have restored records with earlier revisions.
///
/// Removals up to the floor are forgotten.
fn restored_from(common: u64, held: &BookHead, store: &BookHead) -> u64 {
    if common >= held.epoch { common.max(store.floor) } else { store.floor }
}

/// Makes a book of this instance and that of the store equal. Returns why some were omitted.
async fn apply(
    control: &Control,
    name: BookName,
    plan: Plan,
    held: BookHead,
    store: &BookHead,
) -> ControlResult<Vec<String>> {
    let Backend::Redis(redis) = &control.0.backend else { return Ok(Vec::new()) };
    match plan {
        Plan::Nothing => Ok(Vec::new()),
        Plan::Changes => fetch_changes(control, redis, name, held, store).await,
        Plan::Everything => {
            let is_same = held.revision > 0 && held.lineage == store.lineage;
            let common = match is_same {
                true => book::since(&redis.client, name, held.revision, true).await?.common,
                false => None,
            };
            if let Some(common) = common {
                let from = restored_from(common, &held, store);
                restore(control, redis, name, from, store).await?;
            }
            fetch_everything(control, redis, name).await
        }
        Plan::Restore(from) => {
            restore(control, redis, name, from, store).await?;
            fetch_everything(control, redis, name).await
        }
    }
}

/// Fetches what has later revisions. If the store has lost changes that this instance holds, and others were made since, restores
/// these before.
async fn fetch_changes(
    control: &Control,
    redis: &Redis,
    name: BookName,
    held: BookHead,
    store: &BookHead,
) -> ControlResult<Vec<String>> {
    let (mut next, mut problems, mut before) = (Some(held.revision), Vec::new(), held.clone());
    while let Some(from) = next {
        let page = book::since(&redis.client, name, from, from == held.revision).await?;
        if let Some(common) = page.common {
            restore(control, redis, name, restored_from(common, &held, store), store).await?;
            return fetch_everything(control, redis, name).await;
        }
        before = continued(&before, &page)?;
        next = page.next;
        // Until the last page the state is the one before: its revision is one that the store had.
        let head = if next.is_none() { before.clone().in_epoch_of(&held) } else { held.clone() };
        let control = control.clone();
        let recorded = spawn_blocking(move || {
            let (changes, mut problems) = page.changes();
            problems.extend(control.0.book(name).record(&changes, |book| book.head = head));
            problems
        });
        problems.extend(recorded.await?);
    }
    Ok(problems)
}

/// The state of a page, if it continues the one before. Otherwise the store has lost changes meanwhile, and what was read is
/// incomplete.
fn continued(before: &BookHead, page: &ChangesPage) -> ControlResult<BookHead> {
    if page.head.lineage != before.lineage || page.head.revision < before.revision {
        return Err(ControlError::Unavailable("the store has lost records meanwhile".to_owned()));
    }
    Ok(page.head.clone())
}

/// Fetches everything in place of what is held.
async fn fetch_everything(control: &Control, redis: &Redis, name: BookName) -> ControlResult<Vec<String>> {
    let (pages, mut fetched) = mpsc::channel::<ChangesPage>(PAGES_AHEAD);
    let control = control.clone();
    // A page is read while the store makes the next one.
    let replaced = spawn_blocking(move || {
        let (mut problems, mut book, mut is_first) = (Vec::new(), Book::default(), true);
        while let Some(page) = fetched.blocking_recv() {
            let (head, is_last) = (page.head.clone(), page.next.is_none());
            let (changes, unreadable) = page.changes();
            problems.extend(unreadable);
            // An invalid one, which a newer release may have written, is omitted.
            let invalid = changes.into_iter().filter_map(|change| book.apply(change).err());
            problems.extend(invalid.map(|error| format!("a record is omitted: {error}")));
            book.head = if is_first { head } else { head.in_epoch_of(&book.head) };
            is_first = false;
            if is_last {
                problems.extend(control.0.book(name).replace(book));
                return problems;
            }
        }
        // The store did not respond.
        problems
    });
    let (mut next, mut before) = (Some(0), None);
    while let Some(from) = next {
        let page = book::since(&redis.client, name, from, false).await?;
        before = Some(continued(before.as_ref().unwrap_or(&page.head), &page)?);
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
async fn restore(
    control: &Control,
    redis: &Redis,
    name: BookName,
    from: u64,
    store: &BookHead,
) -> ControlResult<()> {
    let count = control.0.book(name).with(Book::len);
    let spread = MAX_SPREAD_MS.min((count / CHANGES_PER_SPREAD_MS) as u64);
    sleep(Duration::from_millis(fastrand::u64(0..=spread))).await;
    let (head, changes) = control
        .0
        .book(name)
        .with(|book| (book.head.clone(), book.changes_since(from, now_ms()).collect::<Vec<_>>()));
    if changes.is_empty() && count == 0 {
        return Ok(());
    }
    let (changed, mut kept) = (changes.len(), None);
    if !store.lineage.is_empty() && store.lineage != head.lineage {
        let control = control.clone();
        let keep = spawn_blocking(move || control.0.book(name).keep_file());
        kept = keep.await?;
    }
    let audit = AuditEntry::restored(Action::SetOverride, format!("{changed} changes of {}", name.name()));
    match book::restore(&redis.client, name, &head, &changes, audit).await? {
        Restore::Restored => {
            metrics::STORE_ERRORS.increment(["lost"]);
            tracing::error!(changes = changed, kept, "restored records that the store lacked");
        }
        Restore::Present => {}
        Restore::Superseded => {
            tracing::error!(kept, "control store was reset; adopting its records");
        }
    }
    Ok(())
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
            metrics::lists(&runtime, now_ms);
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
