//! Steps that make a book of an instance and that of the store equal.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::sleep;
use tokio::{sync::mpsc, task::spawn_blocking};
use tollgate_core::clock::now_ms;

use crate::book::{Book, BookHead, BookName, BookReplica};
use crate::redis::Redis;
use crate::redis::book::{self, ChangesPage};
use crate::{
    AuditEntry, Control, ControlError, ControlResult, RecordKey, handle::Backend, metrics, stored::Restore,
};

/// Number of records for each millisecond over which instances spread the restoration of lost ones, and the longest
/// spread.
const CHANGES_PER_SPREAD_MS: usize = 100;
const MAX_SPREAD_MS: u64 = 500;
/// Number of attempts to restore and fetch everything, each after the store has lost something meanwhile.
const MAX_EXCHANGES: usize = 2;
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
            spread(control, name).await;
            exchange_everything(control, redis, name, None, store).await
        }
        Plan::Restore(from) => {
            spread(control, name).await;
            exchange_everything(control, redis, name, Some(from), store).await
        }
    }
}

/// Waits, the longer the more records this instance holds: all instances do this at the same time.
async fn spread(control: &Control, name: BookName) {
    let count = control.0.book(name).with(Book::len);
    let most = MAX_SPREAD_MS.min((count / CHANGES_PER_SPREAD_MS) as u64);
    sleep(Duration::from_millis(fastrand::u64(0..=most))).await;
}

/// Restores what this instance holds with later revisions than `from`, if that is stated, and fetches everything.
///
/// If the store then lacks something that this instance holds, as after a failover between two steps of the restoration, all is
/// restored.
async fn exchange_everything(
    control: &Control,
    redis: &Redis,
    name: BookName,
    mut from: Option<u64>,
    store: &BookHead,
) -> ControlResult<Vec<String>> {
    for _ in 0..MAX_EXCHANGES {
        let least = match from {
            Some(from) => restore(control, redis, name, from, store).await?,
            None => Some(store.revision),
        };
        if let Some(problems) = fetch_everything(control, redis, name, store, least).await? {
            return Ok(problems);
        }
        from = Some(store.floor);
    }
    Err(lost_meanwhile())
}

fn lost_meanwhile() -> ControlError {
    ControlError::Unavailable("the store has lost records meanwhile".to_owned())
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
    let (mut next, mut pages, mut before) = (Some(held.revision), Vec::new(), held.clone());
    while let Some(from) = next {
        let page = book::since(&redis.client, name, from, from == held.revision).await?;
        if let Some(common) = page.common {
            let from = Some(restored_from(common, &held, store));
            return exchange_everything(control, redis, name, from, store).await;
        }
        before = continued(&before, &page)?;
        next = page.next;
        pages.push(page);
    }
    // All at once: of what only some pages have, it would not be known whether the store has lost it meanwhile.
    let (control, head) = (control.clone(), before.in_epoch_of(&held));
    let recorded = spawn_blocking(move || {
        let (changes, omitted): (Vec<_>, Vec<_>) = pages.into_iter().map(ChangesPage::changes).unzip();
        let mut problems: Vec<String> = problems_of(omitted.into_iter().flatten()).collect();
        problems.extend(control.0.book(name).record(&changes.concat(), |book| book.head = head));
        problems
    });
    Ok(recorded.await?)
}

/// The state of a page, if it continues the one before. Otherwise the store has lost changes meanwhile, and what was read is
/// incomplete.
fn continued(before: &BookHead, page: &ChangesPage) -> ControlResult<BookHead> {
    if page.head.lineage != before.lineage || page.head.revision < before.revision {
        return Err(lost_meanwhile());
    }
    Ok(page.head.clone())
}

/// Fetches everything in place of what is held, from a store that has at least the revision `least`, and what is held, unless it
/// has lost some meanwhile: `None` if something is missing. Without `least`, it need not have what is held.
async fn fetch_everything(
    control: &Control,
    redis: &Redis,
    name: BookName,
    store: &BookHead,
    least: Option<u64>,
) -> ControlResult<Option<Vec<String>>> {
    let (pages, fetched) = mpsc::channel(PAGES_AHEAD);
    let (control, requires_all) = (control.clone(), least.is_some());
    // A page is read while the store makes the next one.
    let replaced = spawn_blocking(move || replace_by(fetched, control.0.book(name), requires_all));
    let (mut next, mut before) = (Some(0), None);
    while let Some(from) = next {
        let page = book::since(&redis.client, name, from, false).await?;
        let expected = before
            .unwrap_or_else(|| BookHead { revision: least.unwrap_or(store.revision), ..page.head.clone() });
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

/// Replaces all that is held by the pages of a store, and returns why some records are omitted; `None` if it `requires_all` that
/// is held, and some is missing. Replaces nothing if the store did not reply to the end. Slow.
fn replace_by(
    mut pages: mpsc::Receiver<ChangesPage>,
    held: &BookReplica,
    requires_all: bool,
) -> Option<Vec<String>> {
    let (mut omitted, mut book, mut is_first) = (BTreeMap::new(), Book::default(), true);
    while let Some(page) = pages.blocking_recv() {
        let (head, is_last) = (page.head.clone(), page.next.is_none());
        let (changes, unreadable) = page.changes();
        omitted.extend(unreadable);
        for change in changes {
            let key = change.key;
            // An invalid one, which a newer release may have written, is omitted.
            if let Err(reason) = book.apply(change) {
                omitted.insert(key.to_string(), reason);
            }
        }
        book.head = if is_first { head } else { head.in_epoch_of(&book.head) };
        is_first = false;
        if is_last {
            // One that is omitted may be later than the one that is held.
            let is_omitted = |key: RecordKey| omitted.contains_key(&key.to_string());
            let has_all = |held: &Book| book.missing_of(held, now_ms()).all(is_omitted);
            if requires_all && !held.with(has_all) {
                return None;
            }
            return Some(problems_of(omitted).chain(held.replace(book)).collect());
        }
    }
    Some(Vec::new())
}

/// Why records are omitted, by their keys, as problems.
fn problems_of(omitted: impl IntoIterator<Item = (String, String)>) -> impl Iterator<Item = String> {
    omitted.into_iter().map(|(key, reason)| format!("the record {key} is omitted: {reason}"))
}

/// Restores what the store has lost, or what was set over another store, without what has a later revision there: all with
/// later revisions than `from`. Returns the least revision that the store then has; `None` if it does not have what this instance
/// holds, because it is a copy of another region's, or nothing is held.
async fn restore(
    control: &Control,
    redis: &Redis,
    name: BookName,
    from: u64,
    store: &BookHead,
) -> ControlResult<Option<u64>> {
    let (count, head, changes) = control
        .0
        .book(name)
        .with(|book| (book.len(), book.head.clone(), book.changes_since(from, now_ms()).collect::<Vec<_>>()));
    if changes.is_empty() && count == 0 {
        return Ok(None);
    }
    let changed = changes.len();
    if !store.lineage.is_empty() && store.lineage != head.lineage {
        let control = control.clone();
        let keep = spawn_blocking(move || control.0.book(name).keep_file());
        if let Some(kept) = keep.await? {
            tracing::warn!(%kept, "kept the records file before a merge");
        }
    }
    let audit = AuditEntry::restored(format!("{changed} changes of {}", name.name()));
    match book::restore(&redis.client, name, &head, from, &changes, audit).await? {
        Restore::Restored => {
            metrics::STORE_ERRORS.increment(["lost"]);
            tracing::error!(changes = changed, "restored records that the store lacked");
        }
        Restore::Present => {}
        Restore::Superseded => {
            tracing::error!("control store was reset; adopting its records");
            return Ok(None);
        }
    }
    Ok(Some(store.revision.max(head.revision)))
}
