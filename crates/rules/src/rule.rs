//! One rule: a limit and the place in the tree where it applies.

use std::{borrow::Cow, sync::OnceLock};

use super::{level::join, on_store_error::OnStoreError};
use tollgate_core::{
    PathStep, RecordId, SyncMode,
    algorithm::{Algorithm, Policy},
    descriptor::Entry,
    quota::Quota,
};

/// What a rule enforces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Everything passes; no counter is kept.
    Unlimited,
    /// A quota under an algorithm.
    Quota {
        /// What is reported to the caller. The window of a concurrency limit, which has none and reports none, is
        /// the time to live of its leases in whole seconds.
        quota: Quota,
        /// What decides.
        policy: Policy,
    },
}

/// Where the value of one step comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The rule states it.
    Stated,
    /// Each request brings its own, and each has a counter of its own.
    Open,
    /// Each request brings its own, and all that the pattern matches share one counter.
    Shared,
}

/// One step from a domain's root to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The descriptor's key.
    pub key: Box<str>,
    /// Key and value joined by `_` (the key alone where there is no value), as the configuration states them.
    pub stated: Box<str>,
    /// Where a request's value comes from.
    pub value: Value,
    /// Whether metrics name the request's value in place of the stated one.
    pub value_to_metric: bool,
}

/// A limit, with all that a request needs to know of it.
#[derive(Debug)]
pub struct Rule {
    /// What is enforced.
    pub limit: Limit,
    /// Whether the counter may be decided from what an instance holds, unless the domain charges all or none: see
    /// [`Domain::sync_of`](super::Domain::sync_of).
    pub sync: SyncMode,
    /// How the counter is decided when the store does not, where the configuration says.
    pub on_store_error: Option<OnStoreError>,
    /// The limit's name, empty when it has none.
    pub name: Box<str>,
    /// Names of the limits that this one replaces when both match in one request.
    pub replaces: Box<[Box<str>]>,
    /// Whether the limit is only watched: what is over it is counted, and passes.
    pub shadow_mode: bool,
    /// Whether the limit denies only when every other quota of the request is exhausted too.
    pub quota_mode: bool,
    /// Whether metrics name every value of the request.
    pub detailed_metric: bool,
    /// What the answer's metadata says when the rule lets a request pass.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// The way from the domain's root.
    pub segments: Box<[Segment]>,
    /// The file, relative to the configuration's directory, and the line that state the rule.
    pub origin: (Box<str>, usize),
    /// What follows from the rest.
    pub derived: Derived,
}

/// Values that follow from a rule and its place among the rules, each set once.
#[derive(Debug, Default)]
pub struct Derived {
    record_id: OnceLock<RecordId>,
    index: OnceLock<RuleIndex>,
}

/// Index of a rule among all rules of one version, dense from zero. Tables beside the rules are plain vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleIndex(u32);

impl RuleIndex {
    /// Index of a rule that is not part of any [`Rules`](super::Rules); no table has it.
    const OUTSIDE: Self = Self(u32::MAX);

    pub(super) fn new(at: usize) -> Self {
        u32::try_from(at).map_or(Self::OUTSIDE, Self)
    }

    /// The index into a table.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl Segment {
    /// Whether the value of that key tells counters apart. Of one that shares its counter among them it does not, and
    /// one whose key is a pattern stands for many.
    pub fn distinguishes(&self, key: &str) -> bool {
        self.value != Value::Shared && *self.key == *key
    }

    /// What stays open where a value is stated: nothing, unless the request's key alone reads like the rule's key
    /// and value, which matches it as in the reference, with a counter for each value.
    fn open_though_stated<'a>(&self, entry: Entry<'a>) -> Option<Entry<'a>> {
        let value = self.stated.strip_prefix(entry.key).and_then(|rest| rest.strip_prefix('_'));
        (value != Some(entry.value)).then_some(entry)
    }

    /// What stays open where values share a counter: as in the reference they do so for each key that the
    /// pattern matches, and a request whose key spells out a pattern for keys is taken at its word.
    fn open_though_shared<'a>(&self, entry: Entry<'a>) -> Option<Entry<'a>> {
        match entry.key == &*self.key {
            true if self.key.contains('*') && self.stated == self.key => Some(entry),
            true => None,
            false => Some(Entry { key: entry.key, value: "" }),
        }
    }
}

impl Rule {
    /// The entries of a request that tell the rule's counters apart, those that the rule leaves open, with their
    /// positions.
    pub fn open<'a>(&self, entries: &[Entry<'a>]) -> impl Iterator<Item = (usize, Entry<'a>)> {
        self.segments.iter().zip(entries).enumerate().filter_map(|(at, (segment, entry))| {
            let open = match segment.value {
                Value::Stated => segment.open_though_stated(*entry),
                Value::Open => Some(*entry),
                Value::Shared => segment.open_though_shared(*entry),
            };
            open.map(|entry| (at, entry))
        })
    }

    /// Whether a request with these entries shares its counter with other values. One that reads just like the
    /// pattern is taken at its word and does not, as in the reference.
    pub fn shares_values(&self, entries: &[Entry<'_>]) -> bool {
        self.segments.iter().zip(entries).any(|(segment, entry)| {
            segment.value == Value::Shared && *join(entry.key, entry.value) != *segment.stated
        })
    }

    /// The algorithm, or `None` for an unlimited rule.
    pub const fn algorithm(&self) -> Option<Algorithm> {
        match &self.limit {
            Limit::Unlimited => None,
            Limit::Quota { policy, .. } => Some(policy.algorithm()),
        }
    }

    /// The name of the rule's counters within their tags. The limit is no part of it, so that a changed limit
    /// keeps the usage.
    pub fn record_id(&self) -> RecordId {
        *self.derived.record_id.get_or_init(|| self.compute_record_id())
    }

    fn compute_record_id(&self) -> RecordId {
        let steps = self.segments.iter().map(|segment| match segment.value {
            Value::Open => PathStep::Open(&segment.key),
            Value::Stated | Value::Shared => PathStep::Closed(&segment.stated),
        });
        RecordId::of(steps, self.algorithm().unwrap_or_default())
    }

    /// The rule's index in its version of the rules.
    pub fn index(&self) -> RuleIndex {
        self.derived.index.get().copied().unwrap_or(RuleIndex::OUTSIDE)
    }

    /// Makes the rule part of a version of the rules. A rule is part of one version only.
    pub(super) fn set_index(&self, index: RuleIndex) {
        let set = self.derived.index.set(index);
        debug_assert!(set.is_ok(), "the rule is part of another version");
    }

    /// The rule's place in the tree: its keys and values joined by `.`, without the domain.
    pub fn path(&self) -> String {
        let stated: Vec<&str> = self.segments.iter().map(|segment| &*segment.stated).collect();
        stated.join(".")
    }

    /// Whether [`Rule::metric_path`] depends on the request.
    pub fn has_metric_of_values(&self) -> bool {
        self.segments.iter().any(|segment| self.names_value_of(segment))
    }

    fn names_value_of(&self, segment: &Segment) -> bool {
        segment.value == Value::Open && (self.detailed_metric || segment.value_to_metric)
    }

    /// The path under which a request with these entries is counted in metrics.
    pub fn metric_path(&self, entries: &[Entry<'_>]) -> String {
        let parts =
            self.segments.iter().zip(entries).map(|(segment, entry)| match self.names_value_of(segment) {
                true if entry.value.is_empty() && !self.detailed_metric => Cow::Borrowed(entry.key),
                true => Cow::Owned(format!("{}_{}", entry.key, entry.value)),
                false => Cow::Borrowed(&*segment.stated),
            });
        parts.collect::<Vec<_>>().join(".")
    }
}
