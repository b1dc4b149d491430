//! The records of an instance, with their file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{collections::HashSet, path::PathBuf, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use super::journal::Journal;
use super::{Book, BookHead, BookName, ChangeResult, NewChange, RecordChange, Stamps};
use crate::metrics;

/// Longest wait for this instance to enforce a change that it has made.
const MAX_ACTIVATION_WAIT: Duration = Duration::from_secs(1);

/// The records of this instance, with its file.
#[derive(Debug, Default)]
pub(crate) struct BookReplica {
    book: Mutex<Book>,
    /// Held during a change, and locked before the book, which is free while the file is written.
    journal: Mutex<Option<Journal>>,
    /// The active revision.
    active: watch::Sender<u64>,
    /// Whether the records of the store or of a file were read.
    is_loaded: AtomicBool,
}

impl BookReplica {
    /// Opens a file, whose records replace those held so far.
    pub(crate) fn open(&self, file: PathBuf, now_ms: u64) -> Result<(), String> {
        let mut journal = self.journal.lock();
        let (opened, mut book) = Journal::open(file)?;
        book.sweep(now_ms);
        let is_loaded = book.head.revision > 0;
        *self.book.lock() = book;
        self.is_loaded.store(is_loaded, Ordering::Relaxed);
        *journal = Some(opened);
        Ok(())
    }

    /// Identity of the state.
    pub(crate) fn head(&self) -> BookHead {
        self.book.lock().head.clone()
    }

    /// Drops the records that have ended.
    pub(crate) fn sweep(&self, now_ms: u64) {
        self.book.lock().sweep(now_ms);
    }

    /// Whether the records of the store or of a file were read.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Relaxed)
    }

    /// Records that the store was read.
    pub(crate) fn loaded(&self) {
        self.is_loaded.store(true, Ordering::Relaxed);
    }

    /// Reads the records.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&Book) -> T) -> T {
        read(&self.book.lock())
    }

    /// Applies `changes`, which `finish` completes, and writes them to the file. Returns why some were omitted. Slow with a
    /// file.
    pub(crate) fn record(&self, changes: &[RecordChange], finish: impl FnOnce(&mut Book)) -> Vec<String> {
        let mut journal = self.journal.lock();
        self.apply(changes, finish, journal.as_mut())
    }

    /// Makes changes that only this instance makes, all or none, or with `is_partial` each that can be made. Returns the last
    /// revision and the result of each. Slow with a file.
    pub(crate) fn change(
        &self,
        changes: &[NewChange],
        is_partial: bool,
        now_ms: u64,
    ) -> (u64, Vec<ChangeResult>) {
        let mut journal = self.journal.lock();
        let (mut new, most) = (HashSet::new(), BookName::System.max_records());
        let mut result = |book: &Book, change: &NewChange| {
            let known = book.revision_of(change.key, now_ms);
            if !change.expected.is_met(known) {
                ChangeResult::Unlike
            } else if !is_partial || known.is_some() {
                ChangeResult::Made
            } else if book.len() + new.len() >= most {
                ChangeResult::Full
            } else if new.insert(change.key) {
                ChangeResult::Made
            } else {
                ChangeResult::Unlike
            }
        };
        let results: Vec<_> = self.with(|book| changes.iter().map(|change| result(book, change)).collect());
        let is_made = |result: &ChangeResult| *result == ChangeResult::Made;
        let last = self.head().revision;
        if !is_partial && !results.iter().all(is_made) {
            return (last, results);
        }
        let made = changes.iter().zip(&results).filter(|(_, result)| is_made(result));
        let made: Vec<_> = (last.saturating_add(1).max(now_ms * 1_000)..)
            .zip(made)
            .map(|(revision, (NewChange { key, record, .. }, _))| RecordChange {
                revision,
                key: *key,
                record: record.clone(),
            })
            .collect();
        // No store in Redis has these changes.
        let finish = |book: &mut Book| book.head.lineage.clear();
        // Each was validated, and a failure of the file was logged.
        let _ = self.apply(&made, finish, journal.as_mut());
        (made.last().map_or(last, |change| change.revision), results)
    }

    fn apply(
        &self,
        changes: &[RecordChange],
        finish: impl FnOnce(&mut Book),
        journal: Option<&mut Journal>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let (head, whole) = {
            let mut book = self.book.lock();
            for change in changes {
                if let Err(error) = book.apply(change.clone()) {
                    problems.push(format!("record {}: {error}", change.key));
                }
            }
            finish(&mut book);
            let is_outdated = journal.as_ref().is_some_and(|journal| journal.is_outdated(book.changes_len()));
            let whole = is_outdated.then(|| book.changes_since(0, 0).collect::<Vec<_>>());
            (book.head.clone(), whole)
        };
        let written = journal.map(|journal| match whole {
            Some(whole) => journal.replace(whole, &head),
            None => journal.append(changes, &head),
        });
        problems.extend(failure(written));
        problems
    }

    /// Replaces all records by those of another book. Slow with a file.
    pub(crate) fn replace(&self, mut other: Book) -> Vec<String> {
        let mut journal = self.journal.lock();
        let written = journal.as_mut().map(|journal| journal.replace(other.changes_since(0, 0), &other.head));
        let mut book = self.book.lock();
        let Stamps { overrides, lists } = book.stamps;
        other.stamps = Stamps { overrides: overrides + 1, lists: lists + 1 };
        *book = other;
        drop(book);
        failure(written).into_iter().collect()
    }

    /// Keeps a copy of the file, if there is one, before its content is replaced by that of another store; returns its path.
    /// Slow.
    pub(crate) fn keep_file(&self) -> Option<String> {
        let revision = self.head().revision;
        let kept = self.journal.lock().as_ref()?.keep(revision);
        kept.inspect_err(|error| tracing::error!(%error, "cannot keep the records file")).ok()
    }

    /// Reports that the records of a revision are active.
    pub(crate) fn activated(&self, revision: u64) {
        self.active.send_replace(revision);
    }

    /// Waits until this instance enforces a revision, though not for ever: the change is made, and reaches it later.
    pub(crate) async fn wait_for(&self, revision: u64) {
        let mut active = self.active.subscribe();
        let _ = timeout(MAX_ACTIVATION_WAIT, active.wait_for(|active| *active >= revision)).await;
    }
}

fn failure(written: Option<std::io::Result<()>>) -> Option<String> {
    let error = written?.err()?;
    metrics::STORE_ERRORS.increment(["records_file"]);
    tracing::error!(%error, "cannot write the records file");
    Some(format!("cannot write the records file: {error}"))
}
