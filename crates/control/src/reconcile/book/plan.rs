//! Steps that make a book of an instance and that of the store equal.

use std::time::Duration;

use tokio::time::sleep;
use tokio::{sync::mpsc, task::spawn_blocking};
use tollgate_core::clock::now_ms;

use crate::book::{Book, BookHead, BookName};
use crate::redis::Redis;
use crate::redis::book::{self, ChangesPage};
use crate::{AuditEntry, Control, ControlError, ControlResult, handle::Backend, metrics, stored::Restore};

/// Number of records for each millisecond over which instances spread the restoration of lost ones, and the longest
/// spread.
const CHANGES_PER_SPREAD_MS: usize = 100;
const MAX_SPREAD_MS: u64 = 500;
/// Pages of changes that are fetched before earlier ones are read.
const PAGES_AHEAD: usize = 2;

/// Steps that a state of the store calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
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
    pub(super) fn of(held: &BookHead, store: &BookHead) -> Self {
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
pub(super) async fn apply(
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
            let least = match common {
                Some(common) => {
                    let from = restored_from(common, &held, store);
                    restore(control, redis, name, from, store).await?
                }
                None => store.revision,
            };
            fetch_everything(control, redis, name, least).await
        }
        Plan::Restore(from) => {
            let least = restore(control, redis, name, from, store).await?;
            fetch_everything(control, redis, name, least).await
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
            let least = restore(control, redis, name, restored_from(common, &held, store), store).await?;
            return fetch_everything(control, redis, name, least).await;
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

/// Fetches everything in place of what is held, from a store that has at least this revision, unless it has lost it meanwhile.
async fn fetch_everything(
    control: &Control,
    redis: &Redis,
    name: BookName,
    least: u64,
) -> ControlResult<Vec<String>> {
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
        let expected = before.unwrap_or_else(|| BookHead { revision: least, ..page.head.clone() });
        before = Some(continued(&expected, &page)?);
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
/// later revisions than `from`. Returns the least revision that the store has then.
async fn restore(
    control: &Control,
    redis: &Redis,
    name: BookName,
    from: u64,
    store: &BookHead,
) -> ControlResult<u64> {
    let count = control.0.book(name).with(Book::len);
    let spread = MAX_SPREAD_MS.min((count / CHANGES_PER_SPREAD_MS) as u64);
    sleep(Duration::from_millis(fastrand::u64(0..=spread))).await;
    let (head, changes) = control
        .0
        .book(name)
        .with(|book| (book.head.clone(), book.changes_since(from, now_ms()).collect::<Vec<_>>()));
    if changes.is_empty() && count == 0 {
        return Ok(store.revision);
    }
    let (changed, mut kept) = (changes.len(), None);
    if !store.lineage.is_empty() && store.lineage != head.lineage {
        let control = control.clone();
        let keep = spawn_blocking(move || control.0.book(name).keep_file());
        kept = keep.await?;
    }
    let audit = AuditEntry::restored(format!("{changed} changes of {}", name.name()));
    match book::restore(&redis.client, name, &head, from, &changes, audit).await? {
        Restore::Restored => {
            metrics::STORE_ERRORS.increment(["lost"]);
            tracing::error!(changes = changed, kept, "restored records that the store lacked");
        }
        Restore::Present => {}
        Restore::Superseded => {
            tracing::error!(kept, "control store was reset; adopting its records");
            return Ok(store.revision);
        }
    }
    Ok(store.revision.max(head.revision))
}
