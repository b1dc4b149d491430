//! Values of the keys of a rule, and of load shedding.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::{fmt, num::NonZeroU64};

use foldhash::quality::RandomState;
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_core::{EnforcedShare, RecordId, algorithm::Policy, quota::Quota};
use tollgate_shedding::{SheddingGate, SheddingPolicy};

/// Gradual change of a rule's limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// The keys for which the limit denies; for the others it is in shadow mode. `None` for all keys.
    pub enforced: Option<EnforcedShare>,
    /// The limit that is compared with the rule's.
    pub candidate: Option<Box<Candidate>>,
}

/// A limit beside that of a rule: charged by the same requests, in counters of its own, without effect on the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Hits and window.
    pub quota: Quota,
    /// The policy that decides.
    pub policy: Policy,
    /// Whether each charge counts in full, beyond the limit too.
    pub overdraft: bool,
    /// Identifier of its counters, beside those of the rule.
    pub record: RecordId,
}

tollgate_core::named! {
    /// Regions whose hits a limit counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Scope {
        /// Each region enforces the whole limit.
        #[default]
        Regional = "regional",
        /// All regions enforce the limit together: each has a share.
        Global = "global",
        /// The primary region decides for all regions.
        Primary = "primary",
    }
}

tollgate_core::named! {
    /// Decision of a hit that the own region's share denies while a loan request is in flight.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum OnShareExhausted {
        /// The hit is denied.
        #[default]
        Deny = "deny",
        /// The hit waits for the loan, within the caller's deadline.
        Wait = "wait",
    }
}

/// Region table that a configuration is used with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableSize {
    /// Not known, as where files are validated without a server.
    #[default]
    Unknown,
    /// There is no table.
    NoTable,
    /// A table.
    Regions {
        /// Number of regions that have a share.
        sharing: u32,
        /// Whether one of them is the primary region.
        has_primary: bool,
    },
}

tollgate_core::named! {
    /// Policy for a counter that the store did not decide.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum OnStoreError {
        /// The instance enforces its share of the limit alone.
        #[default]
        Local = "local",
        /// The request passes.
        Allow = "allow",
        /// The request is denied as over the limit.
        Deny = "deny",
        /// The request fails with an error, and the proxy's `failure_mode_deny` decides.
        Error = "error",
    }
}

/// Percentages of a limit, ascending and distinct: 1 to [`Self::MAX_THRESHOLDS`] of them, each 1 to
/// [`Self::MAX_PERCENT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyThresholds(Box<[u16]>);

impl NotifyThresholds {
    /// Maximum number of thresholds of a limit.
    pub const MAX_THRESHOLDS: usize = 10;

    /// Maximum percentage: charges beyond the limit count too, with an overdraft.
    pub const MAX_PERCENT: u16 = 1_000;

    /// Returns the thresholds of these percentages; `None` if there are none, too many, or one is out of range.
    pub fn new(percentages: impl IntoIterator<Item = u16>) -> Option<Self> {
        let mut percentages: Vec<u16> = percentages.into_iter().collect();
        percentages.sort_unstable();
        percentages.dedup();
        let is_valid = (1..=Self::MAX_THRESHOLDS).contains(&percentages.len())
            && percentages.iter().all(|percent| (1..=Self::MAX_PERCENT).contains(percent));
        is_valid.then(|| Self(percentages.into()))
    }

    /// Percentages, ascending.
    pub fn percentages(&self) -> &[u16] {
        &self.0
    }

    /// Number of thresholds that `used` hits of `limit` have reached: the first ones. A limit of 0 has none to reach.
    pub fn reached(&self, used: u64, limit: u64) -> usize {
        if limit == 0 {
            return 0;
        }
        let used = u128::from(used).saturating_mul(100);
        let has_reached = |percent: &u16| u128::from(limit).saturating_mul((*percent).into()) <= used;
        self.0.iter().take_while(|percent| has_reached(percent)).count()
    }
}

impl fmt::Display for NotifyThresholds {
    /// Percentages joined by commas, such as `50%, 100%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentages: Vec<String> = self.0.iter().map(|percent| format!("{percent}%")).collect();
        f.write_str(&percentages.join(", "))
    }
}

/// Weights of a rule's hits by the value of its last entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    by_value: HashMap<Box<str>, u32, RandomState>,
    /// Weight of all other values.
    pub others: u32,
}

impl Weights {
    /// Maximum weight.
    pub const MAX: u32 = 1_000_000;

    /// Maximum number of values.
    pub const MAX_VALUES: usize = 10_000;

    /// Weights of these values, and that of all others.
    pub fn new(by_value: impl IntoIterator<Item = (Box<str>, u32)>, others: u32) -> Self {
        Self { by_value: by_value.into_iter().collect(), others }
    }

    /// Number of values with a weight of their own.
    pub fn values(&self) -> usize {
        self.by_value.len()
    }

    /// The values with a weight of their own, sorted, and their weights.
    pub fn sorted(&self) -> Vec<(&str, u32)> {
        let mut weights: Vec<_> = self.by_value.iter().map(|(value, weight)| (&**value, *weight)).collect();
        weights.sort_unstable();
        weights
    }

    /// The hits that count: charges and refunds multiplied by the weight of the value. A weight of 0 makes a read of them.
    pub fn weigh(&self, hits: Hits, entries: &[Entry<'_>]) -> Hits {
        let by_value = entries.last().and_then(|entry| self.by_value.get(entry.value));
        let weight = u64::from(by_value.copied().unwrap_or(self.others));
        let weighed = |amount: NonZeroU64| amount.get().saturating_mul(weight);
        match hits {
            Hits::Charge(amount) => Hits::charge(weighed(amount)),
            Hits::Refund(amount) if amount.get() < Hits::MAX => Hits::refund(weighed(amount)),
            // A reset refunds all; the others are not what a request states.
            hits => hits,
        }
    }
}

/// Place where a key of a rule is stated, of a rule that has keys of several places: it inherits, or an overlay changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedValue {
    /// The key.
    pub key: &'static str,
    /// The file, as in problems.
    pub file: Arc<str>,
    /// The line, from 1; 0 if the file has no lines, as the resource of a control plane.
    pub line: u32,
}

/// Key of the entry that reports a utilization. The entry follows those of the rule.
pub const UTILIZATION_KEY: &str = "utilization";

/// Shedding of a rule, which has no limit then.
#[derive(Debug)]
pub struct Shedding {
    /// Target and times.
    pub policy: SheddingPolicy,
    /// Key of the entry with a request's priority, which follows those of the rule.
    pub priority_key: Box<str>,
    /// State that a rule of the same path takes over when rules are replaced.
    gate: OnceLock<Arc<SheddingGate>>,
}

/// Compares what the configuration states.
impl PartialEq for Shedding {
    fn eq(&self, other: &Self) -> bool {
        (self.policy, &self.priority_key) == (other.policy, &other.priority_key)
    }
}

impl Shedding {
    /// Sheds by `policy`, with the priority that an entry of this key states.
    pub const fn new(policy: SheddingPolicy, priority_key: Box<str>) -> Self {
        Self { policy, priority_key, gate: OnceLock::new() }
    }

    /// The gate that requests use.
    pub fn gate(&self) -> &Arc<SheddingGate> {
        self.gate.get_or_init(Arc::default)
    }

    /// Takes over the state of the rule that this one replaces. Not for active rules.
    pub(super) fn succeed(&self, former: &Self) {
        // A rule replaces one other at most.
        let _ = self.gate.set(Arc::clone(former.gate()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thresholds_are_sorted_distinct_and_bounded() {
        let thresholds = NotifyThresholds::new([100, 50, 80, 50]).expect("valid");
        assert_eq!(thresholds.percentages(), [50, 80, 100]);
        assert_eq!(thresholds.to_string(), "50%, 80%, 100%");
        for invalid in [vec![], vec![0], vec![1_001], (1..=11).collect()] {
            assert_eq!(NotifyThresholds::new(invalid), None);
        }
    }

    proptest! {
        #[test]
        fn a_threshold_is_reached_by_its_share_of_the_limit_and_not_by_a_hit_less(
            percent in 1_u16..=1_000,
            limit in 1_u64..1 << 53,
        ) {
            let thresholds = NotifyThresholds::new([percent]).expect("valid");
            let share = (u128::from(limit) * u128::from(percent)).div_ceil(100);
            let share = u64::try_from(share).expect("fits");
            prop_assert_eq!((thresholds.reached(share - 1, limit), thresholds.reached(share, limit)), (0, 1));
            prop_assert_eq!(thresholds.reached(u64::MAX, 0), 0);
        }
    }

    #[test]
    fn hits_are_multiplied_by_the_weight_of_the_last_value() {
        let weights = Weights::new([("large".into(), 3), ("free".into(), 0)], 1);
        let entries = |value| [Entry { key: "team", value: "large" }, Entry { key: "model", value }];
        let weigh = |hits, value| weights.weigh(hits, &entries(value));
        assert_eq!(weigh(Hits::charge(7), "large"), Hits::charge(21));
        assert_eq!(weigh(Hits::refund(7), "large"), Hits::refund(21));
        assert_eq!(weigh(Hits::charge(7), "small"), Hits::charge(7));
        assert_eq!(weigh(Hits::charge(7), "free"), Hits::Peek);
        assert_eq!(weigh(Hits::charge(u64::MAX), "large"), Hits::charge(Hits::MAX));
        for hits in [Hits::Peek, Hits::reset()] {
            assert_eq!(weigh(hits, "large"), hits);
        }
    }
}
