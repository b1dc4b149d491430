//! Overrides of rules: what operators set over one rule or one key of a rule, with or without an end.
//!
//! Instances share them in Redis, and each holds all of them. A change has a *revision*, which grows with time; an instance
//! fetches what has a later one than its own. What the store lost, the instances write back: the first one with a revision
//! above that of the store. A *lineage* distinguishes the states of two stores, and an *epoch* the restorations of one, after
//! each of which all instances fetch all again. With a file, an instance has its overrides also after a restart.

mod book;
mod journal;

use std::{path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::{sync::watch, time::timeout};
use tollgate_directory::Fingerprint;
use tollgate_rules::{OverrideId, OverrideKey, RuleOverride};

use self::journal::Journal;
use crate::bounds::{MAX_NAME_BYTES, truncated};
use crate::{ControlResult, Pair, metrics, model::check_size, pairs::pairs_text};

pub(crate) use self::book::{BookHead, OverrideBook, OverrideChange};

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
#[derive(Debug, Default)]
pub(crate) struct OverrideReplica {
    book: Mutex<OverrideBook>,
    /// Held during a change, and locked before the book, which is free while the file is written.
    journal: Mutex<Option<Journal>>,
    /// The active revision.
    active: watch::Sender<u64>,
}

impl OverrideReplica {
    /// Opens a file, whose overrides replace those held so far.
    pub(crate) fn open(&self, file: PathBuf, now_ms: u64) -> Result<(), String> {
        let mut journal = self.journal.lock();
        let (opened, mut book) = Journal::open(file)?;
        book.sweep(now_ms);
        *self.book.lock() = book;
        *journal = Some(opened);
        Ok(())
    }

    /// Identity of the state.
    pub(crate) fn head(&self) -> BookHead {
        self.book.lock().head.clone()
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
        let finish = |book: &mut OverrideBook| book.head.lineage.clear();
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
            (book.head.clone(), book.len())
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
        let kept = self.journal.lock().as_ref()?.keep(self.book.lock().head.revision);
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
    metrics::STORE_ERRORS.increment(["overrides_file"]);
    tracing::error!(%error, "cannot write the overrides file");
    Some(format!("cannot write the overrides file: {error}"))
}

/// Maximum size of the `rate_limit` of an override as JSON, in bytes.
const MAX_LIMIT_BYTES: usize = 2_048;

/// An override of a rule, or of one of its keys, as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideEntry {
    /// Identifier: a hash of the domain, the rule and the key, each combination of which has one override.
    #[serde(default)]
    pub id: String,
    /// The rule's domain.
    pub domain: String,
    /// The rule's path, as in metrics and `/rlconfig`.
    pub rule: String,
    /// The entries that the rule leaves open, in its order; empty for the whole rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<Pair>,
    /// Keys of `rate_limit`.
    pub rate_limit: Map<String, Value>,
    pub reason: String,
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

impl OverrideEntry {
    /// Returns the entry with its identifier.
    #[must_use]
    pub fn identified(self) -> Self {
        let id = Self::id_of(&self.domain, &self.rule, &self.key).to_string();
        Self { id, ..self }
    }

    /// Identifier of the override of this rule and key.
    pub(crate) fn id_of(domain: &str, rule: &str, key: &[Pair]) -> OverrideId {
        let texts = key.iter().flat_map(|pair| [&*pair.key, &*pair.value]);
        let texts = [domain, rule].into_iter().chain(texts);
        OverrideId(Fingerprint::of(texts.map(str::as_bytes)).first_half())
    }

    /// Returns the override for enforcement.
    ///
    /// # Errors
    /// When it is invalid, whatever the rules are.
    pub fn compiled(&self) -> Result<RuleOverride, String> {
        self.compiled_with(Self::id_of(&self.domain, &self.rule, &self.key), |text| text.into())
    }

    /// The override with this identifier for enforcement, with texts by `text`.
    fn compiled_with(
        &self,
        id: OverrideId,
        mut text: impl FnMut(&str) -> Arc<str>,
    ) -> Result<RuleOverride, String> {
        let limit = self.limit_text();
        let missing = match () {
            () if self.domain.is_empty() => "the domain is missing; expected that of a rule",
            () if self.rule.is_empty() => "the rule is missing; expected its path, as in /rlconfig",
            () if self.rate_limit.is_empty() => {
                "rate_limit is empty; expected a key of `rate_limit`, such as requests_per_unit"
            }
            () if limit.len() > MAX_LIMIT_BYTES => {
                return Err(format!("rate_limit is too large; expected at most {MAX_LIMIT_BYTES} bytes"));
            }
            () => "",
        };
        if !missing.is_empty() {
            return Err(missing.to_owned());
        }
        let key = OverrideKey::new(self.key.iter().map(|pair| (&*pair.key, &*pair.value)));
        let key = key.map_err(|error| error.to_string())?;
        let (domain, rule, rate_limit) = (text(&self.domain), text(&self.rule), text(&limit));
        Ok(RuleOverride { id, domain, rule, key, rate_limit, ends_at_ms: self.expires_at_ms })
    }

    /// The keys of `rate_limit` as JSON.
    pub fn limit_text(&self) -> String {
        // Equal limits have equal texts: the keys are sorted.
        serde_json::to_string(&self.rate_limit).unwrap_or_default()
    }

    /// The key as text; empty for the whole rule.
    pub fn key_text(&self) -> String {
        pairs_text(&self.key)
    }

    /// The override as the subject of an audit log entry.
    pub(crate) fn subject(&self) -> String {
        let key = self.key_text();
        let separator = if key.is_empty() { "" } else { " " };
        format!("override {} {}{separator}{key}: {}", self.domain, self.rule, self.limit_text())
    }

    /// The entry with bounded texts, if it may be stored.
    pub(crate) fn bounded(mut self) -> ControlResult<Self> {
        check_size("a domain", self.domain.len(), MAX_NAME_BYTES)?;
        check_size("a rule", self.rule.len(), MAX_NAME_BYTES)?;
        self.reason = truncated(self.reason);
        self.author = truncated(self.author);
        Ok(self.identified())
    }
}
