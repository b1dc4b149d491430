//! Overrides of rules: what operators set over one rule or one key of a rule, with or without an end.
//!
//! Instances share them in Redis, and each holds all of them. A change has a *revision*, which grows with time; an instance
//! fetches what has a later one than its own. What the store lost, the instances write back: the first one with a revision
//! above that of the store. A *lineage* distinguishes the states of two stores, and an *epoch* the restorations of one, after
//! each of which all instances fetch all again. With a file, an instance has its overrides also after a restart.

mod book;
mod entry;
mod journal;

use std::{path::PathBuf, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};
use tollgate_rules::OverrideId;

use self::journal::Journal;
use crate::metrics;

pub(crate) use self::book::{BookHead, OverrideBook, OverrideChange};
pub use self::{
    entry::{OverrideEntry, OverrideError},
    journal::JournalError,
};

/// A part of all overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridePage {
    /// The revision of the overrides that this instance holds.
    pub revision: u64,
    pub overrides: Vec<OverrideEntry>,
    /// Whether more follow.
    pub is_truncated: bool,
}

/// Longest wait for this instance to enforce a change that it has made.
const MAX_ACTIVATION_WAIT: Duration = Duration::from_secs(1);

/// The overrides of this instance, with its file.
#[derive(Debug)]
pub(crate) struct OverrideReplica {
    book: Mutex<OverrideBook>,
    /// Held during a change, and locked before the book, which is free while the file is written.
    journal: Mutex<Option<Journal>>,
    /// The active revision.
    active: watch::Sender<u64>,
}

impl Default for OverrideReplica {
    fn default() -> Self {
        Self { book: Mutex::default(), journal: Mutex::default(), active: watch::Sender::new(0) }
    }
}

impl OverrideReplica {
    /// Opens a file, whose overrides replace those held so far.
    pub(crate) fn open(&self, file: PathBuf, now_ms: u64) -> Result<(), JournalError> {
        let mut journal = self.journal.lock();
        let (opened, mut book) = Journal::open(file)?;
        book.sweep(now_ms);
        *self.book.lock() = book;
        *journal = Some(opened);
        Ok(())
    }

    /// Identity of the state.
    pub(crate) fn head(&self) -> BookHead {
        self.book.lock().head().clone()
    }

    /// Reads the overrides.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&OverrideBook) -> T) -> T {
        read(&self.book.lock())
    }

    /// Applies `changes`, which `finish` completes, and writes them to the file. Returns why some were omitted. Slow with a
    /// file.
    pub(crate) fn record(
        &self,
        changes: &[OverrideChange],
        finish: impl FnOnce(&mut OverrideBook),
    ) -> Vec<String> {
        let mut journal = self.journal.lock();
        self.apply(changes, finish, journal.as_mut())
    }

    /// Records changes that only this instance makes, with the next revisions, and returns the last one. Slow with a file.
    pub(crate) fn record_own(&self, changes: Vec<(OverrideId, Option<OverrideEntry>)>, now_ms: u64) -> u64 {
        let mut journal = self.journal.lock();
        let first = self.head().revision.saturating_add(1).max(now_ms * 1_000);
        let changes = changes.into_iter().zip(first..);
        let changes: Vec<_> =
            changes.map(|((id, entry), revision)| OverrideChange { revision, id, entry }).collect();
        // No store in Redis has these changes.
        let finish = |book: &mut OverrideBook| {
            book.set_head(BookHead { lineage: String::new(), ..book.head().clone() });
        };
        // Each was validated, and a failure of the file was logged.
        let _ = self.apply(&changes, finish, journal.as_mut());
        changes.last().map_or(first, |change| change.revision)
    }

    fn apply(
        &self,
        changes: &[OverrideChange],
        finish: impl FnOnce(&mut OverrideBook),
        journal: Option<&mut Journal>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let (head, overrides) = {
            let mut book = self.book.lock();
            for change in changes {
                if let Err(error) = book.apply(change.clone()) {
                    problems.push(format!("override {}: {error}", change.id));
                }
            }
            finish(&mut book);
            (book.head().clone(), book.len())
        };
        let written = journal.map(|journal| match journal.is_outdated(overrides) {
            true => journal.replace(&self.book.lock()),
            false => journal.append(changes, &head),
        });
        problems.extend(failure(written));
        problems
    }

    /// Replaces all overrides by those of another book. Slow with a file.
    pub(crate) fn replace(&self, other: OverrideBook) -> Vec<String> {
        let mut journal = self.journal.lock();
        let written = journal.as_mut().map(|journal| journal.replace(&other));
        *self.book.lock() = other;
        failure(written).into_iter().collect()
    }

    /// Keeps a copy of the file, if there is one, before its content is replaced by that of another store; returns its path.
    /// Slow.
    pub(crate) fn keep_file(&self) -> Option<String> {
        let kept = self.journal.lock().as_ref()?.keep(self.book.lock().head().revision);
        kept.inspect_err(|error| tracing::error!(%error, "cannot keep the overrides file")).ok()
    }

    /// Drops the overrides that have ended.
    pub(crate) fn sweep(&self, now_ms: u64) {
        self.book.lock().sweep(now_ms);
    }

    /// Reports that the overrides of a revision are active.
    pub(crate) fn activated(&self, revision: u64) {
        self.active.send_replace(revision);
    }

    /// The active revision.
    pub(crate) fn active(&self) -> u64 {
        *self.active.borrow()
    }

    /// Waits until this instance enforces a revision, though not for ever: the change is made, and reaches it later.
    pub(crate) async fn wait_for(&self, revision: u64) {
        let mut active = self.active.subscribe();
        let _ = timeout(MAX_ACTIVATION_WAIT, active.wait_for(|active| *active >= revision)).await;
    }
}

fn failure(written: Option<std::io::Result<()>>) -> Option<String> {
    let error = written?.err()?;
    metrics::store_error("overrides_file");
    tracing::error!(%error, "cannot write the overrides file");
    Some(format!("cannot write the overrides file: {error}"))
}
