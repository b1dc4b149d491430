//! The book: what operators, or the system for them, change at run time, as records by key, each with or without an end.
//!
//! Instances share the records in Redis, and each holds all of them. A change has a *revision*, which grows with time; an
//! instance fetches what has a later one than its own. What the store lost, the instances write back: the first one with a
//! revision above that of the store. A *lineage* distinguishes the states of two stores, and an *epoch* the restorations of
//! one, after each of which all instances fetch all again. With a file, an instance has its records also after a restart.

mod change;
mod journal;
mod override_entry;
mod records;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::{collections::HashSet, fmt, path::PathBuf, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::timeout};
use tollgate_directory::Fingerprint;
use tollgate_rules::OverrideId;

use self::journal::Journal;
use self::view::Properties;
use crate::bounds::{MAX_AUTOMATIC_ENTRIES, MAX_ENTRIES, MAX_OVERRIDES, MAX_SWITCHES};
use crate::{Action, AutomaticEntry, ControlResult, List, ListEntry, Switch, metrics, pairs::pairs_text};

pub(crate) use self::change::{ChangeResult, Expected, NewChange};
pub use self::override_entry::OverrideEntry;
pub(crate) use self::records::{Book, BookHead, RecordChange, Stamps};
pub use self::view::{RecordPage, RecordSelection, RecordView};

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// Limit over a rule or a key of it.
    Override(OverrideEntry),
    /// Entry of the allow or the deny list.
    ListEntry(ListEntry),
    /// Entry of the deny list that the system made.
    Automatic(AutomaticEntry),
    /// Switch of a rule, with its ramp, or an emergency.
    Switch(Switch),
}

tollgate_core::named! {
    /// The books of an installation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum BookName {
        /// Records of operators, which other regions copy, and which the file has.
        Operators = "records",
        /// Automatic entries, of which each region has its own.
        System = "automatic entries",
    }
}

impl BookName {
    /// Maximum number of its records. Those of operators are bounded by kind as well, which concurrent changes can exceed.
    pub(crate) const fn max_records(self) -> usize {
        match self {
            Self::Operators => MAX_OVERRIDES + MAX_ENTRIES + MAX_SWITCHES,
            Self::System => MAX_AUTOMATIC_ENTRIES,
        }
    }
}

tollgate_core::named! {
    /// Kind of a record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RecordKind {
        Override = "override",
        ListEntry = "list_entry",
        Automatic = "automatic",
        Switch = "switch",
    }
}

impl RecordKind {
    /// The actions of the audit log that put one and remove one.
    pub(crate) const fn actions(self) -> (Action, Action) {
        match self {
            Self::Override => (Action::SetOverride, Action::RemoveOverride),
            Self::ListEntry | Self::Automatic => (Action::AddEntry, Action::RemoveEntry),
            Self::Switch => (Action::SetSwitch, Action::RemoveSwitch),
        }
    }

    /// Its name in errors, and the maximum number of its records.
    pub(crate) const fn bound(self) -> (&'static str, usize) {
        match self {
            Self::Override => ("overrides", MAX_OVERRIDES),
            Self::ListEntry => ("entries of lists", MAX_ENTRIES),
            Self::Automatic => ("automatic entries", MAX_AUTOMATIC_ENTRIES),
            Self::Switch => ("switches", MAX_SWITCHES),
        }
    }
}

/// Key of a record: a hash of its kind and of what it is about, each combination of which has one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RecordKey(pub(crate) u128);

impl RecordKey {
    pub(crate) fn of_entry(list: List, domain: &str, descriptor: &str) -> Self {
        Self::of(["list entry", list.name(), domain, descriptor])
    }

    pub(crate) fn of_automatic(ban: &str) -> Self {
        Self::of(["automatic entry", ban])
    }

    pub(crate) fn of_switch(domain: &str, rule: &str) -> Self {
        Self::of(["switch", domain, rule])
    }

    fn of<const N: usize>(texts: [&str; N]) -> Self {
        Self(Fingerprint::of(texts.map(str::as_bytes)).first_half())
    }

    /// Reads a key as it is written by `Display`.
    pub fn read(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).map(Self).ok().filter(|key| key.to_string() == text)
    }
}

impl From<RecordKey> for String {
    fn from(key: RecordKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for RecordKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::read(&text).ok_or("not the key of a record; expected 32 hexadecimal digits")
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OverrideId(self.0).fmt(f)
    }
}

impl Record {
    /// Its kind.
    pub const fn kind(&self) -> RecordKind {
        match self {
            Self::Override(_) => RecordKind::Override,
            Self::ListEntry(_) => RecordKind::ListEntry,
            Self::Automatic(_) => RecordKind::Automatic,
            Self::Switch(_) => RecordKind::Switch,
        }
    }

    /// Its key.
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Override(entry) => {
                RecordKey(OverrideEntry::id_of(&entry.domain, &entry.rule, &entry.descriptor).0)
            }
            Self::ListEntry(entry) => entry.record_key(),
            Self::Automatic(entry) => entry.record_key(),
            Self::Switch(switch) => RecordKey::of_switch(&switch.domain, &switch.rule),
        }
    }

    /// Its end in milliseconds since 1970, if it has one.
    pub(crate) const fn ends_at_ms(&self) -> Option<u64> {
        match self {
            Self::Override(entry) => entry.expires_at_ms,
            Self::ListEntry(entry) => entry.expires_at_ms,
            Self::Automatic(entry) => Some(entry.expires_at_ms),
            Self::Switch(switch) => switch.expires_at_ms,
        }
    }

    /// The properties by which it is selected.
    fn properties(&self) -> Properties<'_> {
        let (kind, ends_at_ms) = (self.kind(), self.ends_at_ms());
        let (domain, rule, reason, author) = match self {
            Self::Override(entry) => (&entry.domain, &*entry.rule, &entry.reason, &entry.author),
            Self::ListEntry(entry) => (&entry.domain, "", &entry.reason, &entry.author),
            Self::Automatic(entry) => (&entry.domain, &*entry.rule, &entry.reason, &entry.author),
            Self::Switch(switch) => (&switch.domain, &*switch.rule, &switch.reason, &switch.author),
        };
        Properties { kind, domain, rule, reason, author, ends_at_ms }
    }

    /// The operator's reason.
    pub(crate) fn reason(&self) -> &str {
        self.properties().reason
    }

    /// The operator who made it, or the system.
    pub fn author(&self) -> &str {
        self.properties().author
    }

    /// Its key or descriptor as text.
    fn pairs_text(&self) -> String {
        match self {
            Self::Override(entry) => entry.key_text(),
            Self::ListEntry(entry) => pairs_text(&entry.descriptor),
            Self::Automatic(entry) => entry.key_text(),
            Self::Switch(_) => String::new(),
        }
    }

    /// The record as the subject of an audit log entry.
    pub fn subject(&self) -> String {
        match self {
            Self::Override(entry) => entry.subject(),
            Self::ListEntry(entry) => entry.subject(),
            Self::Automatic(entry) => entry.subject(),
            Self::Switch(switch) => switch.subject(),
        }
    }

    /// The record with bounded texts, if it may be stored.
    pub(crate) fn bounded(self) -> ControlResult<Self> {
        Ok(match self {
            Self::Override(entry) => Self::Override(entry.bounded()?),
            Self::ListEntry(entry) => Self::ListEntry(entry.bounded()?),
            Self::Switch(switch) => Self::Switch(switch.bounded()?),
            record @ Self::Automatic(_) => record,
        })
    }
}

/// Whether a record with this end has not ended.
fn is_active(ends_at_ms: Option<u64>, now_ms: u64) -> bool {
    ends_at_ms.is_none_or(|end| now_ms < end)
}

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
