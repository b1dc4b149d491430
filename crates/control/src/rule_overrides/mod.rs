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
use tokio::{sync::watch, task::spawn_blocking, time::timeout};
use tollgate_rules::{OverrideId, RuleOverride};

use self::journal::Journal;
use crate::{
    Action, AuditEntry, Control, ControlResult,
    backend::Backend,
    bounds::{MAX_OVERRIDES, check_count},
    metrics,
    redis::overrides,
    stored::now_ms,
};

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

impl Control {
    /// Opens the file in which this instance keeps the overrides that it holds, before it reconciles them.
    ///
    /// # Errors
    /// When the file is unusable.
    pub fn open_overrides(&self, file: PathBuf) -> Result<(), JournalError> {
        self.overrides().open(file)
    }

    /// Puts overrides, each in the place of the one of the same rule and key. The caller validates them. Returns once this
    /// instance enforces them, or after a second.
    ///
    /// # Errors
    /// When there are too many, another region writes them, or the store does not respond; then some of more than 50 may
    /// have been put.
    pub async fn put_overrides(&self, entries: Vec<OverrideEntry>) -> ControlResult<()> {
        self.require_writable()?;
        let entries: Vec<_> = entries.into_iter().map(OverrideEntry::bounded).collect::<Result<_, _>>()?;
        let mut last = 0;
        for some in entries.chunks(overrides::STEP_CHANGES) {
            let Some(first) = some.first() else { continue };
            let subject = match some.len() - 1 {
                0 => first.subject(),
                more => format!("{} and {more} more", first.subject()),
            };
            let audit = AuditEntry::new(&first.author, Action::SetOverride, subject, first.reason.clone());
            last = self.put_some(some.to_vec(), audit).await?;
            self.changed().notify_one();
        }
        self.overrides().wait_for(last).await;
        Ok(())
    }

    async fn put_some(&self, entries: Vec<OverrideEntry>, audit: AuditEntry) -> ControlResult<u64> {
        let memory = match self.backend() {
            Backend::Redis(redis) => {
                let lineage = self.overrides().head().lineage;
                return overrides::put(redis.client(), &entries, audit, &lineage).await;
            }
            Backend::Memory(memory) => memory,
        };
        let entry_id = |entry: &OverrideEntry| OverrideEntry::id_of(&entry.domain, &entry.rule, &entry.key);
        let count = self.overrides().with(|book| {
            let new = entries.iter().filter(|entry| book.get(entry_id(entry)).is_none()).count();
            book.len() + new
        });
        check_count("overrides", count, MAX_OVERRIDES)?;
        memory.update(|state| {
            state.audit_override(audit);
            Ok(())
        })?;
        let changes = entries.into_iter().map(|entry| (entry_id(&entry), Some(entry))).collect();
        self.record_own(changes).await
    }

    /// Records changes of a store in this process, on a thread that may wait for the disk.
    async fn record_own(&self, changes: Vec<(OverrideId, Option<OverrideEntry>)>) -> ControlResult<u64> {
        let control = self.clone();
        Ok(spawn_blocking(move || control.overrides().record_own(changes)).await?)
    }

    /// Removes an override; whether it existed. Returns once this instance enforces that, or after a second.
    ///
    /// # Errors
    /// When another region writes them, or the store does not respond.
    pub async fn remove_override(&self, id: &str, author: &str) -> ControlResult<bool> {
        self.require_writable()?;
        let Ok(id) = u128::from_str_radix(id, 16).map(OverrideId) else { return Ok(false) };
        let entry = self.overrides().with(|book| book.get(id));
        let is_active = |entry: &OverrideEntry| entry.expires_at_ms.is_none_or(|end| end > now_ms());
        let Some(entry) = entry.filter(is_active) else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveOverride, entry.subject(), String::new());
        let removed = match self.backend() {
            Backend::Redis(redis) => {
                let lineage = self.overrides().head().lineage;
                overrides::remove(redis.client(), &id.to_string(), audit, &lineage).await?
            }
            Backend::Memory(memory) => {
                memory.update(|state| {
                    state.audit_override(audit);
                    Ok(())
                })?;
                Some(self.record_own(vec![(id, None)]).await?)
            }
        };
        self.changed().notify_one();
        if let Some(revision) = removed {
            self.overrides().wait_for(revision).await;
        }
        Ok(removed.is_some())
    }

    /// At most `limit` overrides after an identifier, of a domain and of a rule if these are given, in the order of their
    /// identifiers, without those that have ended: those that this instance holds.
    pub fn rule_overrides(
        &self,
        domain: Option<&str>,
        rule: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> OverridePage {
        let after = after.and_then(|id| u128::from_str_radix(id, 16).ok()).map(OverrideId);
        let now_ms = now_ms();
        let is_selected = |stated: &RuleOverride| {
            stated.is_active_at(now_ms)
                && domain.is_none_or(|domain| *stated.domain == *domain)
                && rule.is_none_or(|rule| *stated.rule == *rule)
        };
        self.overrides().with(|book| {
            let (overrides, is_truncated) = book.page(after, limit, is_selected);
            OverridePage { revision: book.head().revision, overrides, is_truncated }
        })
    }
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
    pub(crate) fn open(&self, file: PathBuf) -> Result<(), JournalError> {
        let mut journal = self.journal.lock();
        let (opened, mut book) = Journal::open(file)?;
        book.sweep(now_ms());
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
    pub(crate) fn record_own(&self, changes: Vec<(OverrideId, Option<OverrideEntry>)>) -> u64 {
        let mut journal = self.journal.lock();
        let first = self.head().revision.saturating_add(1).max(now_ms() * 1_000);
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
    pub(crate) fn sweep(&self) {
        self.book.lock().sweep(now_ms());
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
