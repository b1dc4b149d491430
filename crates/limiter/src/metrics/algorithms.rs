//! Hits by algorithm: sums of the series of rules, to which these publish too, so that a decision counts once.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicU64, Ordering},
};

use tollgate_core::algorithm::Algorithm;
use tollgate_metrics::{Computed, Declared, MetricKind, series::KINDS};

/// Number of algorithms.
pub(super) const ALGORITHMS: usize = Algorithm::ALL.len();

/// Sums of one algorithm, in the order of the counters of a series.
pub(super) type Sums = [Arc<AtomicU64>; KINDS];

static SUMS: LazyLock<[Sums; ALGORITHMS]> = LazyLock::new(Default::default);

/// Index of an algorithm among those that rules can state; a window with reservations is a fixed window.
pub(super) fn index(algorithm: Algorithm) -> usize {
    Algorithm::ALL.iter().position(|known| known.name() == algorithm.name()).unwrap_or_default()
}

/// The sums of an algorithm.
pub(super) fn sums(algorithm: Algorithm) -> Option<&'static Sums> {
    SUMS.get(index(algorithm))
}

const fn declare(name: &'static str, help: &'static str) -> Declared {
    Declared { name, kind: MetricKind::Counter, labels: &["algorithm"], help }
}

pub(super) static BY_ALGORITHM: Computed<3> = Computed::group(
    [
        declare("tollgate_algorithm_hits_total", "Hits decided by rules of the algorithm."),
        declare("tollgate_algorithm_over_limit_total", "Hits over limits of the algorithm."),
        declare(
            "tollgate_algorithm_degraded_total",
            "Hits of limits of the algorithm that were decided without the store (degraded mode).",
        ),
    ],
    |[hits, over_limit, degraded], page| {
        for (declared, kind) in [(hits, HITS), (over_limit, OVER_LIMIT), (degraded, DEGRADED)] {
            page.begin(declared);
            for (algorithm, sums) in Algorithm::ALL.iter().zip(&*SUMS) {
                let sum = sums.get(kind).map_or(0, |sum| sum.load(Ordering::Relaxed));
                page.sample(declared, &[algorithm.name()], sum);
            }
        }
    },
);

/// Indexes of counters of a series.
const HITS: usize = 0;
const OVER_LIMIT: usize = 3;
const DEGRADED: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::RULE_KINDS;

    #[test]
    fn the_counters_of_a_series_are_those_of_the_metrics() {
        assert_eq!(
            [HITS, OVER_LIMIT, DEGRADED].map(|at| RULE_KINDS[at]),
            ["total_hits", "over_limit", "degraded"]
        );
    }

    #[test]
    fn each_algorithm_has_sums_of_its_own_and_reservations_are_a_fixed_window() {
        let indexes = Algorithm::ALL.map(index);
        assert_eq!(indexes, [0, 1, 2, 3, 4]);
        assert_eq!(index(Algorithm::Budget), index(Algorithm::FixedWindow));
    }
}
