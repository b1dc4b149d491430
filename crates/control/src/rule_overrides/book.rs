//! All overrides that an instance holds.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tollgate_rules::{OverrideId, RuleOverride, RuleOverrides};

use super::OverrideEntry;
use crate::Pair;

/// Number of removals that are remembered, as in `lua/overrides/entries.lua`.
const MAX_REMOVALS: usize = 10_000;

/// Identity of the state that a store or an instance has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BookHead {
    /// Distinguishes the states of two stores; empty before the first change.
    pub(crate) lineage: String,
    /// The last revision.
    pub(crate) revision: u64,
    /// Time of the last restoration, in microseconds since 1970.
    pub(crate) epoch: u64,
    /// The revision of the last removal that is no longer remembered; not of an instance.
    pub(crate) floor: u64,
}

impl BookHead {
    /// This state in the lineage and the epoch of an earlier page: if they have changed since, what was read before is
    /// outdated, and the difference shows at the next comparison.
    pub(crate) fn in_epoch_of(self, earlier: &Self) -> Self {
        Self { lineage: earlier.lineage.clone(), epoch: earlier.epoch, ..self }
    }
}

/// A change of one override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverrideChange {
    pub(crate) revision: u64,
    pub(crate) id: OverrideId,
    /// The override; `None` for its removal.
    pub(crate) entry: Option<OverrideEntry>,
}

/// Overrides by identifier.
#[derive(Debug, Default)]
pub(crate) struct OverrideBook {
    /// Identity of the state; its revision is the last one that was applied.
    pub(crate) head: BookHead,
    records: BTreeMap<OverrideId, Record>,
    removals: BTreeMap<OverrideId, u64>,
    /// Texts that many records share: domains, rules, limits, authors, reasons.
    texts: HashSet<Arc<str>>,
}

/// An override in compact form: there may be many.
#[derive(Clone, Debug)]
struct Record {
    revision: u64,
    stated: Arc<RuleOverride>,
    reason: Arc<str>,
    author: Arc<str>,
    created_at_ms: u64,
}

impl Record {
    fn entry(&self) -> OverrideEntry {
        let RuleOverride { id, domain, rule, key, rate_limit, ends_at_ms } = &*self.stated;
        let pair = |(key, value): (&str, &str)| Pair { key: key.to_owned(), value: value.to_owned() };
        OverrideEntry {
            id: id.to_string(),
            domain: domain.to_string(),
            rule: rule.to_string(),
            key: key.pairs().map(pair).collect(),
            rate_limit: serde_json::from_str(rate_limit).unwrap_or_default(),
            reason: self.reason.to_string(),
            author: self.author.to_string(),
            created_at_ms: self.created_at_ms,
            expires_at_ms: *ends_at_ms,
        }
    }
}

impl OverrideBook {
    /// Number of overrides, including those that have ended since the last sweep.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.removals.is_empty()
    }

    /// Applies a change, unless a later one of this override is known.
    ///
    /// # Errors
    /// When the override is invalid.
    pub(crate) fn apply(&mut self, change: OverrideChange) -> Result<(), String> {
        let OverrideChange { revision, id, entry } = change;
        let known = self.records.get(&id).map(|record| record.revision);
        if known.or(self.removals.get(&id).copied()).is_some_and(|known| known >= revision) {
            return Ok(());
        }
        self.head.revision = self.head.revision.max(revision);
        match entry {
            None => {
                self.records.remove(&id);
                self.removals.insert(id, revision);
                self.trim();
            }
            Some(entry) => {
                let record = self.record(revision, id, &entry)?;
                self.removals.remove(&id);
                self.records.insert(id, record);
            }
        }
        Ok(())
    }

    fn record(&mut self, revision: u64, id: OverrideId, entry: &OverrideEntry) -> Result<Record, String> {
        Ok(Record {
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

    /// Drops the overrides that have ended at `now_ms`; whether there were any.
    pub(crate) fn sweep(&mut self, now_ms: u64) -> bool {
        let before = self.records.len();
        self.records.retain(|_, record| record.stated.is_active_at(now_ms));
        let is_changed = self.records.len() < before;
        if is_changed {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
        is_changed
    }

    /// The overrides for enforcement.
    pub(crate) fn compiled(&self) -> RuleOverrides {
        let all = self.records.values().map(|record| Arc::clone(&record.stated)).collect();
        RuleOverrides { revision: self.head.revision, all }
    }

    /// The first end after `now_ms`.
    pub(crate) fn next_end(&self, now_ms: u64) -> Option<u64> {
        let ends = self.records.values().filter_map(|record| record.stated.ends_at_ms);
        ends.filter(|end| *end > now_ms).min()
    }

    /// The override with this identifier.
    pub(crate) fn get(&self, id: OverrideId) -> Option<OverrideEntry> {
        self.records.get(&id).map(Record::entry)
    }

    /// At most `limit` overrides after an identifier that `is_selected`, in the order of identifiers, and whether there are
    /// more.
    pub(crate) fn page(
        &self,
        after: Option<OverrideId>,
        limit: usize,
        is_selected: impl Fn(&RuleOverride) -> bool,
    ) -> (Vec<OverrideEntry>, bool) {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let records = self.records.range((from, std::ops::Bound::Unbounded));
        let mut found = records.map(|(_, record)| record).filter(|record| is_selected(&record.stated));
        let page = found.by_ref().take(limit).map(Record::entry).collect();
        (page, found.next().is_some())
    }

    /// All changes with a later revision than `revision`, in their order, without overrides that have ended at `now_ms`.
    pub(crate) fn changes_since(&self, revision: u64, now_ms: u64) -> impl Iterator<Item = OverrideChange> {
        let is_active = |record: &&Record| record.revision > revision && record.stated.is_active_at(now_ms);
        let put = self.records.values().filter(is_active);
        let put = put.map(|record| (record.revision, record.stated.id, Some(record)));
        let removed = self.removals.iter().filter(|(_, removed)| **removed > revision);
        let mut changes: Vec<_> = put.chain(removed.map(|(id, revision)| (*revision, *id, None))).collect();
        changes.sort_unstable_by_key(|(revision, id, _)| (*revision, *id));
        let change = |(revision, id, record): (u64, OverrideId, Option<&Record>)| OverrideChange {
            revision,
            id,
            entry: record.map(Record::entry),
        };
        changes.into_iter().map(change)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap as Map;

    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn entry(value: &str, limit: u32, expires_at_ms: Option<u64>) -> OverrideEntry {
        let entry = OverrideEntry {
            id: String::new(),
            domain: "d".into(),
            rule: "api_key".into(),
            key: vec![Pair { key: "api_key".into(), value: value.into() }],
            rate_limit: [("requests_per_unit".to_owned(), limit.into())].into_iter().collect(),
            reason: "r".into(),
            author: "ada".into(),
            created_at_ms: 0,
            expires_at_ms,
        };
        entry.identified()
    }

    pub(in super::super) fn all(book: &OverrideBook) -> Vec<OverrideChange> {
        book.changes_since(0, 0).collect()
    }

    fn change(revision: u64, value: &str, limit: Option<u32>) -> OverrideChange {
        let stated = entry(value, limit.unwrap_or_default(), None);
        let id = OverrideEntry::id_of("d", "api_key", &stated.key);
        OverrideChange { revision, id, entry: limit.map(|_| stated) }
    }

    fn limits(book: &OverrideBook) -> Map<String, u64> {
        let (entries, _) = book.page(None, usize::MAX, |_| true);
        let limit = |entry: &OverrideEntry| {
            entry.rate_limit.get("requests_per_unit").and_then(|limit| limit.as_u64())
        };
        entries.iter().map(|entry| (entry.key_text(), limit(entry).expect("stated"))).collect()
    }

    #[test]
    fn the_identifier_of_an_override_never_changes() {
        let key = [Pair { key: "api_key".into(), value: "a".into() }];
        let id = |key| OverrideEntry::id_of("edge", "api_key", key).to_string();
        assert_eq!(id(&key), "4d0128dc0030d67045456950c8327702");
        assert_eq!(id(&[]), "ec2da96d5e646c973f43b3eb5d990519");
    }

    #[test]
    fn overrides_are_dropped_at_their_end_and_their_texts_with_them() {
        let mut book = OverrideBook::default();
        for (value, end) in [("a", Some(10)), ("b", Some(20)), ("c", None)] {
            let entry = entry(value, 5, end);
            let id = OverrideEntry::id_of("d", "api_key", &entry.key);
            book.apply(OverrideChange { revision: 1, id, entry: Some(entry) }).expect("valid");
        }
        assert_eq!((book.next_end(5), book.next_end(10), book.next_end(20)), (Some(10), Some(20), None));
        assert!(!book.sweep(9) && book.sweep(10) && book.sweep(20) && !book.sweep(30));
        assert_eq!(book.len(), 1);
        assert_eq!(book.compiled().all.len(), 1);
    }

    proptest! {
        #[test]
        fn changes_in_any_order_and_number_leave_the_last_of_each(
            stated in prop::collection::vec((0..4_usize, prop::option::of(1_u32..9)), 0..20),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        ) {
            let values = ["a", "b", "c", "d"];
            let changes: Vec<_> = stated.iter().enumerate()
                .map(|(at, (value, limit))| change(at as u64 + 1, values[*value], *limit)).collect();
            let mut expected = OverrideBook::default();
            changes.iter().cloned().for_each(|change| expected.apply(change).expect("valid"));
            let mut book = OverrideBook::default();
            if !changes.is_empty() {
                order.iter().for_each(|at| book.apply(at.get(&changes).clone()).expect("valid"));
            }
            // What another instance holds is restored over it.
            all(&expected).into_iter().for_each(|change| book.apply(change).expect("valid"));
            prop_assert_eq!(limits(&book), limits(&expected));
            prop_assert_eq!(all(&book), all(&expected));
        }
    }
}
