//! All records that an instance holds.

use std::collections::{BTreeMap, HashSet};
use std::{ops::Bound, sync::Arc};

use tollgate_rules::{OverrideId, RuleOverride, RuleOverrides};

use super::view::{Properties, RecordSelection, RecordView};
use super::{OverrideEntry, Record, RecordKind};
use crate::lists::is_active;
use crate::{Pair, RecordKey, Runtime, Switch, pairs::pairs_text};

/// Number of removals that are remembered, as in `lua/book/records.lua`.
const MAX_REMOVALS: usize = 10_000;

/// Number of records of each map that are examined at once for a page, which takes some milliseconds.
const PAGE_SCAN: usize = if cfg!(test) { 2 } else { 2_000 };

/// Identity of the state that a store or an instance has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BookHead {
    /// Distinguishes the states of two stores; empty before the first change.
    pub(crate) lineage: String,
    /// The last revision.
    pub(crate) revision: u64,
    /// Time of the last restoration, in microseconds since 1970.
    pub(crate) epoch: u64,
    /// The revision of the last removal that the store no longer remembers.
    pub(crate) floor: u64,
}

impl BookHead {
    /// This state in the lineage and the epoch of an earlier page: if they have changed since, what was read before is
    /// outdated, and the difference shows at the next comparison.
    pub(crate) fn in_epoch_of(self, earlier: &Self) -> Self {
        Self { lineage: earlier.lineage.clone(), epoch: earlier.epoch, ..self }
    }
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordChange {
    pub(crate) revision: u64,
    pub(crate) key: RecordKey,
    /// The record; `None` for its removal.
    pub(crate) record: Option<Record>,
}

/// Numbers of changes in this process of the parts of a book that are enforced separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamps {
    pub(crate) overrides: u64,
    /// Lists, automatic entries and switches.
    pub(crate) lists: u64,
}

/// Records by key.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Identity of the state; its revision is the last one that was applied.
    pub(crate) head: BookHead,
    pub(crate) stamps: Stamps,
    overrides: BTreeMap<RecordKey, HeldOverride>,
    others: BTreeMap<RecordKey, (u64, Record)>,
    removals: BTreeMap<RecordKey, u64>,
    /// Texts that many overrides share: domains, rules, limits, authors, reasons.
    texts: HashSet<Arc<str>>,
}

/// An override in compact form: there may be many.
#[derive(Clone, Debug)]
struct HeldOverride {
    revision: u64,
    stated: Arc<RuleOverride>,
    reason: Arc<str>,
    author: Arc<str>,
    created_at_ms: u64,
}

impl HeldOverride {
    fn entry(&self) -> OverrideEntry {
        let RuleOverride { id: _, domain, rule, key: _, rate_limit, ends_at_ms } = &*self.stated;
        OverrideEntry {
            domain: domain.to_string(),
            rule: rule.to_string(),
            descriptor: self.pairs(),
            rate_limit: serde_json::from_str(rate_limit).unwrap_or_default(),
            reason: self.reason.to_string(),
            author: self.author.to_string(),
            created_at_ms: self.created_at_ms,
            expires_at_ms: *ends_at_ms,
        }
    }

    fn pairs(&self) -> Vec<Pair> {
        let pair = |(key, value): (&str, &str)| Pair { key: key.to_owned(), value: value.to_owned() };
        self.stated.key.pairs().map(pair).collect()
    }

    fn properties(&self) -> Properties<'_> {
        let RuleOverride { domain, rule, ends_at_ms, .. } = &*self.stated;
        let (kind, ends_at_ms) = (RecordKind::Override, *ends_at_ms);
        Properties { kind, domain, rule, reason: &self.reason, author: &self.author, ends_at_ms }
    }
}

impl Book {
    /// Number of records, including those that have ended since the last sweep.
    pub(crate) fn len(&self) -> usize {
        self.overrides.len() + self.others.len()
    }

    /// Number of changes that state all of it: its records, and the removals that are remembered.
    pub(crate) fn changes_len(&self) -> usize {
        self.len() + self.removals.len()
    }

    /// Number of active records of a kind.
    pub(crate) fn count(&self, kind: RecordKind, now_ms: u64) -> usize {
        match kind {
            RecordKind::Override => self.overrides.len(),
            kind => self.active(now_ms).filter(|record| record.kind() == kind).count(),
        }
    }

    /// Applies a change, unless a later one of this record is known.
    ///
    /// # Errors
    /// When it is an override that is invalid.
    pub(crate) fn apply(&mut self, change: RecordChange) -> Result<(), String> {
        let RecordChange { revision, key, record } = change;
        let known = self.revision_of(key, 0).or(self.removals.get(&key).copied());
        if known.is_some_and(|known| known >= revision) {
            return Ok(());
        }
        self.head.revision = self.head.revision.max(revision);
        match record {
            None => {
                self.stamps.overrides += u64::from(self.overrides.remove(&key).is_some());
                self.stamps.lists += u64::from(self.others.remove(&key).is_some());
                self.removals.insert(key, revision);
                self.trim();
            }
            Some(Record::Override(entry)) => {
                self.removals.remove(&key);
                self.stamps.overrides += 1;
                // An earlier one is over, also if this one is invalid.
                self.overrides.remove(&key);
                let held = self.held(revision, OverrideId(key.0), &entry)?;
                self.overrides.insert(key, held);
            }
            Some(record) => {
                self.removals.remove(&key);
                self.others.insert(key, (revision, record));
                self.stamps.lists += 1;
            }
        }
        Ok(())
    }

    fn held(&mut self, revision: u64, id: OverrideId, entry: &OverrideEntry) -> Result<HeldOverride, String> {
        Ok(HeldOverride {
            revision,
            stated: Arc::new(entry.compiled_with(id, |text| self.text(text))?),
            reason: self.text(&entry.reason),
            author: self.text(&entry.author),
            created_at_ms: entry.created_at_ms,
        })
    }

    /// The text, shared with equal ones.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }

    /// Forgets the oldest removals if there are too many.
    fn trim(&mut self) {
        if self.removals.len() > 2 * MAX_REMOVALS {
            let mut revisions: Vec<u64> = self.removals.values().copied().collect();
            revisions.sort_unstable();
            let excess = revisions.len() - MAX_REMOVALS;
            let oldest = revisions.get(excess).copied().unwrap_or_default();
            self.removals.retain(|_, revision| *revision >= oldest);
        }
    }

    /// Drops the records that have ended at `now_ms`, each as by a removal of its revision, so that what it had replaced never
    /// returns.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        let before = (self.overrides.len(), self.others.len());
        let removals = &mut self.removals;
        let mut is_kept = |key: RecordKey, revision: u64, ends_at_ms: Option<u64>| {
            let is_active = is_active(ends_at_ms, now_ms);
            if !is_active {
                removals.insert(key, revision);
            }
            is_active
        };
        self.overrides.retain(|key, held| is_kept(*key, held.revision, held.stated.ends_at_ms));
        self.others.retain(|key, (revision, record)| is_kept(*key, *revision, record.ends_at_ms()));
        self.stamps.lists += u64::from(self.others.len() < before.1);
        if self.overrides.len() < before.0 {
            self.stamps.overrides += 1;
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
        self.trim();
    }

    /// The overrides for enforcement.
    pub(crate) fn compiled(&self) -> RuleOverrides {
        let all = self.overrides.values().map(|held| Arc::clone(&held.stated)).collect();
        RuleOverrides { revision: self.head.revision, all }
    }

    /// The first end of a record, which may have passed since the last sweep.
    pub(crate) fn next_end(&self) -> Option<u64> {
        let overrides = self.overrides.values().filter_map(|held| held.stated.ends_at_ms);
        overrides.chain(self.others.values().filter_map(|(_, record)| record.ends_at_ms())).min()
    }

    /// The active records other than overrides, in no order.
    fn active(&self, now_ms: u64) -> impl Iterator<Item = &Record> {
        let records = self.others.values().map(|(_, record)| record);
        records.filter(move |record| is_active(record.ends_at_ms(), now_ms))
    }

    /// The lists, automatic entries and switches that have not ended at `now_ms`, in an order that never changes.
    pub(crate) fn runtime(&self, now_ms: u64) -> Runtime {
        let mut runtime = Runtime { generation: self.head.revision, ..Runtime::default() };
        for record in self.active(now_ms).cloned() {
            match record {
                Record::Override(_) => {}
                Record::ListEntry(entry) => runtime.entries.push(entry),
                Record::Automatic(entry) => runtime.automatic.push(entry),
                Record::Switch(switch) => runtime.switches.push(switch),
            }
        }
        let Runtime { entries, automatic, switches, .. } = &mut runtime;
        // Those of one time stay in the order of their keys.
        entries.sort_by_key(|entry| entry.created_at_ms);
        automatic.sort_by_key(|entry| entry.created_at_ms);
        switches.sort_by(|a: &Switch, b| (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule)));
        runtime
    }

    /// The record with this key.
    pub(crate) fn get(&self, key: RecordKey) -> Option<Record> {
        let other = self.others.get(&key).map(|(_, record)| record.clone());
        other.or_else(|| self.overrides.get(&key).map(|held| Record::Override(held.entry())))
    }

    /// The record with this key, unless it has ended at `now_ms`.
    pub(crate) fn view(&self, key: RecordKey, now_ms: u64) -> Option<RecordView> {
        Some(RecordView::new(key, self.revision_of(key, now_ms)?, self.get(key)?))
    }

    /// The revision of the last change of a record that has not ended at `now_ms`.
    pub(crate) fn revision_of(&self, key: RecordKey, now_ms: u64) -> Option<u64> {
        let other = self.others.get(&key).map(|(revision, record)| (*revision, record.ends_at_ms()));
        let held = || self.overrides.get(&key).map(|held| (held.revision, held.stated.ends_at_ms));
        other.or_else(held).filter(|(_, end)| is_active(*end, now_ms)).map(|(revision, _)| revision)
    }

    /// The records after a key that are selected, in the order of keys, of the next ones that are examined at once, and the key
    /// after which others are to be examined. Of more than `limit` records, one more.
    pub(crate) fn page(
        &self,
        selection: &RecordSelection,
        after: Option<RecordKey>,
        now_ms: u64,
    ) -> (Vec<RecordView>, Option<RecordKey>) {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = (after, Bound::Unbounded);
        let ends = [
            self.overrides.range(rest).nth(PAGE_SCAN).map(|(key, _)| *key),
            self.others.range(rest).nth(PAGE_SCAN).map(|(key, _)| *key),
        ];
        let next = ends.into_iter().flatten().min();
        let range = (after, next.map_or(Bound::Unbounded, Bound::Included));
        let overrides = self
            .overrides
            .range(range)
            .filter(|(_, held)| selection.selects(held.properties(), || pairs_text(&held.pairs()), now_ms));
        let others = self.others.range(range).filter(|(_, (_, record))| {
            selection.selects(record.properties(), || record.pairs_text(), now_ms)
        });
        let mut found: Vec<_> = overrides.map(|(key, _)| *key).chain(others.map(|(key, _)| *key)).collect();
        found.sort_unstable();
        found.truncate(selection.limit.saturating_add(1));
        (found.into_iter().filter_map(|key| self.view(key, now_ms)).collect(), next)
    }

    /// The records and removals of another book with later revisions than the floor of this one, of which this book has neither
    /// the same nor a later change. A record that has ended at `now_ms` counts as removed.
    pub(crate) fn missing_of(&self, other: &Self, now_ms: u64) -> impl Iterator<Item = RecordKey> {
        let changes = other.revisions_since(self.head.floor, now_ms);
        changes.filter_map(|(revision, key, _)| {
            let known = self.revision_of(key, 0).or(self.removals.get(&key).copied());
            known.is_none_or(|known| known < revision).then_some(key)
        })
    }

    /// All changes with a later revision than `revision`, in their order; of records that have ended at `now_ms`, removals.
    pub(crate) fn changes_since(&self, revision: u64, now_ms: u64) -> impl Iterator<Item = RecordChange> {
        let mut changes: Vec<_> = self.revisions_since(revision, now_ms).collect();
        changes.sort_unstable();
        changes.into_iter().map(move |(revision, key, is_put)| RecordChange {
            revision,
            key,
            record: if is_put { self.get(key) } else { None },
        })
    }

    /// The revision and key of each of them, in no order, and whether there is a record.
    fn revisions_since(&self, revision: u64, now_ms: u64) -> impl Iterator<Item = (u64, RecordKey, bool)> {
        let overrides =
            self.overrides.iter().map(|(key, held)| (held.revision, *key, held.stated.ends_at_ms));
        let others =
            self.others.iter().map(|(key, (revision, record))| (*revision, *key, record.ends_at_ms()));
        let put = overrides.chain(others).map(move |(at, key, end)| (at, key, is_active(end, now_ms)));
        let removed = self.removals.iter().map(|(key, revision)| (*revision, *key, false));
        put.chain(removed).filter(move |(changed, ..)| *changed > revision)
    }
}

#[cfg(test)]
pub(super) mod tests;
