//! Rules: limits with their path in the tree.

use std::{borrow::Cow, sync::OnceLock, time::Duration};

use tollgate_core::algorithm::{Algorithm, Policy};
use tollgate_core::quota::{Quota, Window};
use tollgate_core::{
    CountedKey, PathStep, RecordId, SyncMode, ban::BanPolicy, clock::Timestamp, descriptor::Entry,
};

use super::path;
use crate::rule_keys::{
    NotifyThresholds, OnShareExhausted, OnStoreError, Rollout, Scope, Shedding, StatedValue, Weights,
};

/// Time by which the store's clock may be ahead of this process' for changed rules to know all former counters.
const CLOCK_SKEW_MARGIN: Duration = Duration::from_secs(5);

/// Maximum spread of the times at which denied clients return: longer waits serve no client.
pub const MAX_RETRY_AFTER_SPREAD: Duration = Duration::from_secs(24 * 60 * 60);

/// Limit of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Limit {
    /// All requests pass, unless the rule sheds; there is no counter.
    #[default]
    Unlimited,
    /// A quota under an algorithm.
    Quota {
        /// The quota reported to the caller. A concurrency limit reports no window; it holds the time to live of its leases
        /// in whole seconds instead.
        quota: Quota,
        /// The policy that decides.
        policy: Policy,
    },
}

impl Limit {
    /// The policy that decides; `None` if the limit is unlimited.
    pub const fn policy(&self) -> Option<&Policy> {
        if let Self::Quota { policy, .. } = self { Some(policy) } else { None }
    }
}

/// Source of the value of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The rule states the value.
    Stated,
    /// Each request brings a value, and each value has its own counter.
    Open,
    /// Each request brings a value, and all values that the pattern matches share one counter.
    Shared,
}

/// Segment of the path from a domain's root to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The descriptor's key.
    pub key: Box<str>,
    /// Key and value joined by `_`, or the key alone, as in the configuration.
    pub stated: Box<str>,
    /// Source of the value.
    pub value: Value,
    /// Whether the request's value replaces the stated one in metrics.
    pub value_to_metric: bool,
}

/// Identity of one of several limits of a descriptor: each is a rule of its own, whose path ends with the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPart {
    /// Name of the limit, or its window's if it has none: unique in its descriptor.
    pub label: Box<str>,
    /// Identifier that all limits of the descriptor have in common, for the name of their cell and the choice of keys.
    pub common: RecordId,
}

/// A limit with its path and its attributes.
#[derive(Debug, Default)]
pub struct Rule {
    /// The limit.
    pub limit: Limit,
    /// Set if it is one of several limits of a descriptor, which are charged all or none.
    pub part: Option<LimitPart>,
    /// Shedding by utilization, of a rule without a limit.
    pub shedding: Option<Box<Shedding>>,
    /// Synchronization of the counter, unless the domain charges all or none; see
    /// [`Domain::sync_of`](super::Domain::sync_of).
    pub sync: SyncMode,
    /// Regions whose hits the limit counts.
    pub scope: Scope,
    /// Decision of a hit that the own region's share denies while a loan request is in flight.
    pub on_share_exhausted: OnShareExhausted,
    /// Whether each charge counts in full, beyond the limit too.
    pub overdraft: bool,
    /// Bans of the counters, if the configuration states them.
    pub ban: Option<BanPolicy>,
    /// Shares of the limit whose use operators are notified of, if the configuration states any.
    pub notify: Option<NotifyThresholds>,
    /// Weights of hits by the value of the last entry, if the configuration states any.
    pub weights: Option<Box<Weights>>,
    /// Policy while the store fails, if the configuration states one.
    pub on_store_error: Option<OnStoreError>,
    /// The limit in hits per window while the store does not decide, if it is another one.
    pub degraded_limit: Option<u32>,
    /// Maximum time by which a denied client returns later than its limit admits it, in whole seconds, if the configuration
    /// states one.
    pub retry_after_spread: Option<Duration>,
    /// Name of the limit; empty if it has none.
    pub name: Box<str>,
    /// Names of the limits that this one replaces if both match a request.
    pub replaces: Box<[Box<str>]>,
    /// Whether the limit is in shadow mode: hits over it are counted, and pass.
    pub shadow_mode: bool,
    /// Whether the limit denies only if all other quotas of the request are exhausted too.
    pub quota_mode: bool,
    /// Whether metrics contain all values of the request.
    pub detailed_metric: bool,
    /// Metadata of the response if the rule admits the request.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Path from the domain's root.
    pub segments: Box<[Segment]>,
    /// File, relative to the configuration's directory, and line of the rule.
    pub origin: (Box<str>, usize),
    /// Gradual change of the limit.
    pub rollout: Rollout,
    /// Where its keys are stated, if it inherits or an overlay changed it.
    pub stated: Option<Box<[StatedValue]>>,
    /// Values derived from the other fields.
    pub derived: Derived,
}

/// Values derived from a rule and its position among the rules, each set once.
#[derive(Debug, Default)]
pub struct Derived {
    record_id: OnceLock<RecordId>,
    /// Identifier of the cells, if an override has another record in those of the rule.
    cell_id: Option<RecordId>,
    index: OnceLock<RuleIndex>,
    /// The path, of a rule without a name that was named in a response.
    label: OnceLock<Box<str>>,
    /// The policy, if it differs from the limit's because of the one that it replaced.
    succeeding: OnceLock<Policy>,
    /// Whether an operator's override states a part of the limit.
    is_override: bool,
}

impl Derived {
    /// Values of the rule in whose place an override decides: it has the index, and so the metrics, of that rule.
    pub(crate) fn for_override(rule: &Rule, overridden: &Rule) -> Self {
        let cell_id = overridden.bucket_beside(rule).map(|_| rule.cell_id());
        let record_id = overridden.bucket_beside(rule).map(OnceLock::from).unwrap_or_default();
        Self { index: rule.derived.index.clone(), is_override: true, record_id, cell_id, ..Self::default() }
    }
}

/// Index of a rule among all rules of one version, dense from zero, so that tables by rule are plain vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleIndex(u32);

impl RuleIndex {
    /// Index of a rule that is not part of any [`Rules`](super::Rules); no table contains it.
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
    /// Whether the values of `key` distinguish counters. Not if the values share a counter, nor if the segment's key is a
    /// pattern.
    pub fn distinguishes(&self, key: &str) -> bool {
        self.value != Value::Shared && *self.key == *key
    }

    /// Whether a request's entry distinguishes counters: by its value, or by its key where all values that a pattern for keys
    /// matches share a counter.
    pub(super) fn is_open(&self) -> bool {
        self.value == Value::Open || (self.value == Value::Shared && self.key.contains('*'))
    }
}

impl Rule {
    /// Entries of a request that the rule leaves open and that distinguish its counters, with their positions.
    pub fn open<'a>(&self, entries: &[Entry<'a>]) -> impl Iterator<Item = (usize, Entry<'a>)> {
        self.segments.iter().zip(entries).enumerate().filter_map(|(at, (segment, entry))| {
            let open = match segment.value {
                // A request's key alone that equals the rule's key and value matches as in envoyproxy/ratelimit, with a
                // counter for each value.
                Value::Stated => {
                    let value =
                        segment.stated.strip_prefix(entry.key).and_then(|rest| rest.strip_prefix('_'));
                    (value != Some(entry.value)).then_some(*entry)
                }
                Value::Open => Some(*entry),
                // As in envoyproxy/ratelimit, values share a counter for each key that the pattern matches, and a key that
                // equals a pattern for keys is taken literally.
                Value::Shared if *entry.key != *segment.key => Some(Entry { key: entry.key, value: "" }),
                Value::Shared => {
                    (segment.key.contains('*') && segment.stated == segment.key).then_some(*entry)
                }
            };
            open.map(|entry| (at, entry))
        })
    }

    /// Entries of a request with these `values` of the keys that the rule leaves open: stated and shared values are the
    /// rule's own.
    pub fn entries_with<'a>(&'a self, values: &'a [(String, String)]) -> Vec<Entry<'a>> {
        let entry = |segment: &'a Segment| {
            let of_request = values.iter().find(|(key, _)| **key == *segment.key);
            let value = match segment.value {
                Value::Open => of_request.map_or("", |(_, value)| value),
                Value::Stated | Value::Shared => {
                    let stated = segment.stated.strip_prefix(&*segment.key);
                    stated.and_then(|rest| rest.strip_prefix('_')).unwrap_or_default()
                }
            };
            Entry { key: &segment.key, value }
        };
        self.segments.iter().map(entry).collect()
    }

    /// Whether a request with these entries shares its counter with other values. An entry that equals the pattern is taken
    /// literally and does not, as in envoyproxy/ratelimit.
    pub fn shares_values(&self, entries: &[Entry<'_>]) -> bool {
        self.segments.iter().zip(entries).any(|(segment, entry)| {
            segment.value == Value::Shared && *path::join(entry.key, entry.value) != *segment.stated
        })
    }

    /// The algorithm; `None` for an unlimited rule.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.limit.policy().map(Policy::algorithm)
    }

    /// The policy that decides, given the one that the limit's policy replaced; `None` for an unlimited rule.
    pub fn policy(&self) -> Option<Policy> {
        self.limit.policy().map(|policy| *self.derived.succeeding.get().unwrap_or(policy))
    }

    /// Sets the policy of a rule that replaces `former` at `now`; both are at the same path. Not for active rules.
    pub(super) fn succeed(&self, former: &Self, now: Timestamp) {
        if let (Limit::Quota { quota, policy }, Some(former)) = (&self.limit, former.policy()) {
            // Until then all usage counts in full, window after window: not for many short ones.
            let margin = CLOCK_SKEW_MARGIN.min(Duration::from_secs(quota.window.seconds().into()));
            let succeeding = policy.succeeding(&former, now.plus(margin));
            if succeeding != *policy {
                // A rule replaces one other at most.
                let _ = self.derived.succeeding.set(succeeding);
            }
        }
    }

    /// Identifier of the rule's counters within their hash tags. Independent of the limit, so that a changed limit keeps the
    /// usage.
    pub fn record_id(&self) -> RecordId {
        let part = self.part.as_ref().map(|part| PathStep::Limit(&part.label));
        *self.derived.record_id.get_or_init(|| {
            let record = record_id_of(&self.segments, part.as_slice(), self.algorithm().unwrap_or_default());
            self.limit.policy().map_or(record, |policy| record.under(policy))
        })
    }

    /// Identifier of the rule's cells where it leaves no value open: several limits of a descriptor share a cell.
    pub fn cell_id(&self) -> RecordId {
        let common = self.part.as_ref().map(|part| part.common);
        common.or(self.derived.cell_id).unwrap_or_else(|| self.record_id())
    }

    /// Identifier of the counters of this override if they are not those of the rule: the state of a bucket is a time, which
    /// is another number of hits at another rate, so that each rate has a bucket. Debts, bans and the loans of regions stay in
    /// the rule's bucket.
    fn bucket_beside(&self, rule: &Self) -> Option<RecordId> {
        let (Some(Policy::TokenBucket(former)), Some(Policy::TokenBucket(bucket))) =
            (rule.policy(), self.policy())
        else {
            return None;
        };
        let stays = rule.overdraft || self.overdraft || rule.ban.is_some() || rule.scope != Scope::Regional;
        (!stays && former.has_other_rate(&bucket)).then(|| rule.record_id().of_rate(&bucket))
    }

    /// The key that a request with these entries counts under: the one that a share of the keys contains or not. The same
    /// for several limits of a descriptor.
    pub fn counted_key(&self, domain: &str, entries: &[Entry<'_>]) -> CountedKey {
        let open = self.open(entries).map(|(_, entry)| (entry.key, entry.value));
        CountedKey::new(domain, self.cell_id(), open)
    }

    /// Whether requests cannot override the limit by one of this window: only utilization sheds, the primary region does
    /// not have their limits, while permits must be released where they were acquired, and reservations are settled in the
    /// rule's counter, which has one window.
    pub fn ignores_override(&self, window: Window) -> bool {
        let holds_permits = || self.algorithm().is_some_and(Algorithm::holds_permits);
        let has_other_window = matches!(&self.limit, Limit::Quota { quota, policy }
            if policy.is_budget() && quota.window.seconds() != window.seconds());
        self.shedding.is_some() || (self.scope == Scope::Primary && holds_permits()) || has_other_window
    }

    /// Whether more of its decisions is observed than hits: it has a `ban`, thresholds, a candidate, or shares of regions.
    pub fn is_observed(&self) -> bool {
        self.ban.is_some()
            || self.notify.is_some()
            || self.rollout.candidate.is_some()
            || self.scope != Scope::Regional
    }

    /// Whether an operator's override states a part of the limit.
    pub const fn is_override(&self) -> bool {
        self.derived.is_override
    }

    /// The rule's index in its version of the rules.
    pub fn index(&self) -> RuleIndex {
        self.derived.index.get().copied().unwrap_or(RuleIndex::OUTSIDE)
    }

    /// Adds the rule to a version of the rules. A rule is part of one version only.
    pub(super) fn set_index(&self, index: RuleIndex) {
        let set = self.derived.index.set(index);
        debug_assert!(set.is_ok(), "the rule is part of another version");
    }

    /// Path in the tree: keys and values joined by `.`, without the domain. Unique in the domain: a backslash
    /// precedes dots within keys and values, unless a digit follows. One of several limits ends with `.@` and its label.
    pub fn path(&self) -> String {
        self.with_part(self.descriptor_path())
    }

    /// Path of its descriptor: that of the rule, unless it is one of several limits.
    pub fn descriptor_path(&self) -> String {
        path::of(self.segments.iter().map(|segment| Cow::Borrowed(&*segment.stated)))
    }

    fn with_part(&self, mut path: String) -> String {
        self.part.iter().for_each(|part| path::push_limit(&mut path, &part.label));
        path
    }

    /// Name of the rule for people: its limit's, or its path if it has no name.
    pub fn label(&self) -> &str {
        match &*self.name {
            "" => self.derived.label.get_or_init(|| self.path().into()),
            name => name,
        }
    }

    /// Whether [`Rule::metric_path`] depends on the request.
    pub fn has_metric_of_values(&self) -> bool {
        self.segments.iter().any(|segment| self.names_value_of(segment))
    }

    fn names_value_of(&self, segment: &Segment) -> bool {
        segment.value == Value::Open && (self.detailed_metric || segment.value_to_metric)
    }

    /// Path of a request with these entries in metrics.
    pub fn metric_path(&self, entries: &[Entry<'_>]) -> String {
        self.with_part(path::of(self.segments.iter().zip(entries).map(|(segment, entry)| {
            match self.names_value_of(segment) {
                true if entry.value.is_empty() && !self.detailed_metric => Cow::Borrowed(entry.key),
                true => Cow::Owned(format!("{}_{}", entry.key, entry.value)),
                false => Cow::Borrowed(&*segment.stated),
            }
        })))
    }
}

/// Identifier of the counters of a rule with these segments, or of those that the `beyond` steps distinguish.
pub(super) fn record_id_of(segments: &[Segment], beyond: &[PathStep<'_>], algorithm: Algorithm) -> RecordId {
    let steps = segments.iter().map(|segment| match segment.value {
        Value::Open => PathStep::Open(&segment.key),
        Value::Stated | Value::Shared => PathStep::Closed(&segment.stated),
    });
    RecordId::of(steps.chain(beyond.iter().copied()), algorithm)
}
