//! The overrides that this instance holds, shared by the API and the reconciler.

use std::{path::PathBuf, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use super::{
    book::{OverrideBook, OverrideChange},
    journal::{Journal, JournalError},
};
use crate::{metrics, stored::now_ms};

/// Longest wait for this instance to enforce a change that it has made.
const MAX_ACTIVATION_WAIT: Duration = Duration::from_secs(1);

/// The overrides of this instance, with its file.
#[derive(Debug)]
pub(crate) struct OverrideReplica {
    held: Mutex<Held>,
    /// The active revision.
    active: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Held {
    book: OverrideBook,
    journal: Option<Journal>,
}

impl Default for OverrideReplica {
    fn default() -> Self {
        Self { held: Mutex::default(), active: watch::Sender::new(0) }
    }
}

impl OverrideReplica {
    /// Opens a file, whose overrides replace those held so far.
    pub(crate) fn open(&self, file: PathBuf) -> Result<(), JournalError> {
        let (journal, mut book) = Journal::open(file)?;
        book.sweep(now_ms());
        *self.held.lock() = Held { book, journal: Some(journal) };
        Ok(())
    }

    /// Reads the overrides.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&OverrideBook) -> T) -> T {
        read(&self.held.lock().book)
    }

    /// Applies `changes`, which `finish` completes, and writes them to the file. Returns why some were omitted.
    pub(crate) fn record(
        &self,
        changes: &[OverrideChange],
        finish: impl FnOnce(&mut OverrideBook),
    ) -> Vec<String> {
        let mut held = self.held.lock();
        let Held { book, journal } = &mut *held;
        let mut problems = Vec::new();
        for change in changes {
            if let Err(error) = book.apply(change.clone()) {
                problems.push(format!("override {}: {error}", change.id));
            }
        }
        finish(book);
        let written = journal.as_mut().map(|journal| journal.append(changes, book));
        problems.extend(failure(written));
        problems
    }

    /// Replaces all overrides by those of another book.
    pub(crate) fn replace(&self, other: OverrideBook) -> Vec<String> {
        let mut held = self.held.lock();
        held.book = other;
        let Held { book, journal } = &mut *held;
        failure(journal.as_mut().map(|journal| journal.replace(book))).into_iter().collect()
    }

    /// Drops the overrides that have ended.
    pub(crate) fn sweep(&self) {
        self.held.lock().book.sweep(now_ms());
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
