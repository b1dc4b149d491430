//! Metrics of decisions: rules, lists, and decisions without the store.

mod by_rule;
mod lists;
mod rollout;
mod rules;
mod shedding;

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use tollgate_core::algorithm::Algorithm;
use tollgate_metrics::{
    Computed, Declared, Gauge, Metric, MetricKind, Sink, Striped, StripedFamily, series::KINDS,
};
use tollgate_rules::OnStoreError;
use tollgate_store::StoreError;

pub use self::by_rule::share_denials;
pub use self::lists::{listed_requests, listed_without_rules};
pub use self::rollout::{
    EnforcementTotal, MAX_SAMPLED_KEYS, Outcome, SampledKey, candidate_totals, enforcement_totals,
};
pub use self::rules::{RULE_KINDS, RuleCounters, RuleTotal, RuleTotals, rule_totals};
pub use self::shedding::{ShownRule, show_shedding, shown_shedding};
pub use crate::{shadow_mode::shadow_mode_passes, unknown_domains::unknown_domains};
pub(crate) use by_rule::count_ban;

use crate::{matching, shadow_mode, unknown_domains};

/// Metrics of decisions.
pub static METRICS: &[&dyn Metric] = &[
    &rules::RULE_METRICS,
    &rules::SERIES_DROPPED,
    &BY_ALGORITHM,
    &by_rule::BANS,
    &rollout::ENFORCEMENT,
    &rollout::CANDIDATES,
    &by_rule::SHARE_DENIALS,
    &lists::LIST_REQUESTS,
    &DEGRADED,
    &LOCAL_STARTS,
    &DEFERRED_CHARGES,
    &unknown_domains::UNKNOWN_DOMAIN,
    &matching::MALFORMED_LEASES,
    &shadow_mode::SHADOW_MODE_PASSES,
    &REPLICAS,
    &shedding::SHEDDING,
];

const POLICIES: usize = OnStoreError::ALL.len();
const REASONS: usize = StoreError::LABELS.len();

/// One series for each policy and reason, the reasons of a policy together.
static DEGRADED: StripedFamily<{ POLICIES * REASONS }, 2> = StripedFamily::with_series(
    "tollgate_degraded_total",
    &["policy", "reason"],
    "Descriptors decided without the store (degraded mode).",
    || {
        let policies = OnStoreError::ALL.iter();
        let mut pairs = policies.flat_map(|policy| StoreError::LABELS.map(|reason| [policy.name(), reason]));
        array::from_fn(|_| pairs.next().unwrap_or_default())
    },
);

/// State from which a local counter starts while the store fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum LocalStart {
    /// Hits that remained after the last verdict of the store, divided by the instances.
    LastVerdict,
    /// An unused share of the limit.
    Share,
}

static LOCAL_STARTS: StripedFamily<2, 1> = StripedFamily::with_series(
    "tollgate_local_starts_total",
    &["from"],
    "Counters that started to count in this instance while the store failed.",
    || [["last_verdict"], ["share"]],
);

/// Result of charges that were made locally while the store failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeferredResult {
    /// The store was charged.
    Charged,
    /// The hits did not count any more.
    Expired,
    /// The store was called, with an unknown outcome.
    Unknown,
    /// Charges of too many counters were deferred.
    Dropped,
}

static DEFERRED_CHARGES: StripedFamily<4, 1> = StripedFamily::with_series(
    "tollgate_deferred_hits_total",
    &["result"],
    "Hits admitted by this instance alone while the store failed, when their charge was due.",
    || [["charged"], ["expired"], ["unknown"], ["dropped"]],
);

pub(super) static REPLICAS: Gauge = Gauge::new("tollgate_replicas", "Instances that share the limits.");

/// Requests in which the store did not decide everything. Other metrics show them under other names.
static DEGRADED_REQUESTS: LazyLock<(Arc<Striped<1>>, Arc<AtomicU64>)> = LazyLock::new(|| {
    let published = Arc::<AtomicU64>::default();
    let sink: Arc<dyn Sink> = Arc::<AtomicU64>::clone(&published);
    (Striped::new([sink]), published)
});

/// Counts a descriptor that was decided without the store: the policy, and the label of the store's error.
pub(super) fn degraded(policy: OnStoreError, reason: &'static str) {
    let policy = OnStoreError::ALL.iter().position(|known| *known == policy);
    let reason = StoreError::LABELS.iter().position(|known| *known == reason);
    debug_assert!(reason.is_some(), "a reason without a series");
    if let Some((policy, reason)) = policy.zip(reason) {
        DEGRADED.increment(policy.saturating_mul(REASONS).saturating_add(reason));
    }
}

/// Exports degraded decisions at zero, so that a first one is seen as a change.
pub fn export_degraded() {
    DEGRADED.export();
    LOCAL_STARTS.export();
    DEFERRED_CHARGES.export();
}

/// Counts a local counter that starts.
pub(super) fn local_start(from: LocalStart) {
    LOCAL_STARTS.increment(from as usize);
}

/// Counts hits whose deferred charge was due.
pub(super) fn deferred(result: DeferredResult, hits: u64) {
    let mut amounts = [0; 4];
    if let Some(amount) = amounts.get_mut(result as usize) {
        *amount = hits;
    }
    DEFERRED_CHARGES.add(amounts);
}

/// Counts a request in which the store did not decide everything.
pub(super) fn degraded_request() {
    DEGRADED_REQUESTS.0.increment(0);
}

/// Requests so far in which the store did not decide everything.
pub fn degraded_requests() -> u64 {
    DEGRADED_REQUESTS.1.load(Ordering::Relaxed)
}

/// Number of algorithms.
const ALGORITHMS: usize = Algorithm::ALL.len();

/// Sums of the series of rules of one algorithm, in the order of the counters of a series. The rules' counters publish to
/// these too, so that a decision counts once.
type Sums = [Arc<AtomicU64>; KINDS];

static SUMS: LazyLock<[Sums; ALGORITHMS]> = LazyLock::new(Default::default);

/// Index of an algorithm among those that rules can state; a window with reservations is a fixed window.
fn algorithm_index(algorithm: Algorithm) -> usize {
    Algorithm::ALL.iter().position(|known| known.name() == algorithm.name()).unwrap_or_default()
}

const fn declare(name: &'static str, help: &'static str) -> Declared {
    Declared { name, kind: MetricKind::Counter, labels: &["algorithm"], help }
}

static BY_ALGORITHM: Computed<3> = Computed::group(
    [
        declare("tollgate_algorithm_hits_total", "Hits decided by rules of the algorithm."),
        declare("tollgate_algorithm_over_limit_total", "Hits over limits of the algorithm."),
        declare(
            "tollgate_algorithm_degraded_total",
            "Hits of limits of the algorithm that were decided without the store (degraded mode).",
        ),
    ],
    |[hits, over_limit, degraded], page| {
        for (declared, kind) in [(hits, HITS_AT), (over_limit, OVER_LIMIT_AT), (degraded, DEGRADED_AT)] {
            page.begin(declared);
            for (algorithm, sums) in Algorithm::ALL.iter().zip(&*SUMS) {
                let sum = sums.get(kind).map_or(0, |sum| sum.load(Ordering::Relaxed));
                page.sample(declared, &[algorithm.name()], sum);
            }
        }
    },
);

/// Indexes of counters of a series.
const HITS_AT: usize = 0;
const OVER_LIMIT_AT: usize = 3;
const DEGRADED_AT: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_series_are_those_of_the_metrics() {
        assert_eq!(
            [HITS_AT, OVER_LIMIT_AT, DEGRADED_AT].map(|at| RULE_KINDS[at]),
            ["total_hits", "over_limit", "degraded"]
        );
    }

    #[test]
    fn each_algorithm_has_sums_of_its_own_and_reservations_are_a_fixed_window() {
        let indexes = Algorithm::ALL.map(algorithm_index);
        assert_eq!(indexes, [0, 1, 2, 3, 4]);
        assert_eq!(algorithm_index(Algorithm::Budget), algorithm_index(Algorithm::FixedWindow));
    }
}
