//! Totals of an interval, which are summed over all instances.

use tollgate_control::Totals;
use tollgate_store::metrics::{TIME_BOUNDS, TIME_BUCKETS};

use super::{Intervals, Sample, percentile_us};
use crate::service::metrics::Times;

/// Name of the number of instances.
const INSTANCES: &str = "instances";
/// Beginning of the names of buckets: of requests, and of decisions that waited for Redis. Their largest value in
/// nanoseconds follows, or [`ABOVE`]. Other releases may have other bounds.
const CALLS: &str = "call_le_";
const STORE: &str = "store_le_";
const ABOVE: &str = "inf";

/// Totals of one instance over one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fleet) struct IntervalTotals {
    /// The interval's end by this process' clock, in milliseconds since 1970.
    pub(in crate::fleet) at_ms: u64,
    pub(in crate::fleet) totals: Totals,
}

impl IntervalTotals {
    pub(super) fn of(sample: &Sample, calls: &Times, store: &Times) -> Self {
        let mut totals = Totals::from([(INSTANCES.to_owned(), 1)]);
        let counts = counts(sample).into_iter().map(|(name, count)| (name.to_owned(), count));
        let buckets = [(CALLS, calls), (STORE, store)].into_iter().flat_map(|(start, times)| {
            times.buckets().map(move |(bound, count)| {
                let bound = bound.map_or_else(|| ABOVE.to_owned(), |bound| bound.to_string());
                (format!("{start}{bound}"), count)
            })
        });
        totals.extend(counts.chain(buckets).filter(|(_, count)| *count > 0));
        Self { at_ms: sample.at_ms, totals }
    }
}

const fn counts(sample: &Sample) -> [(&'static str, u64); 6] {
    [
        ("decisions", sample.decisions),
        ("over_limit", sample.over_limit),
        ("errors", sample.errors),
        ("degraded", sample.degraded),
        ("list_denied", sample.list_denied),
        ("list_allowed", sample.list_allowed),
    ]
}

/// The sample of an interval with these totals of all instances, unless there are none.
pub(in crate::fleet) fn sample_of(interval: u64, totals: &Totals) -> Option<Sample> {
    let total = |name: &str| totals.get(name).copied().unwrap_or_default();
    let instances = Some(total(INSTANCES)).filter(|instances| *instances > 0)?;
    let (calls, store) = (times(totals, CALLS), times(totals, STORE));
    Some(Sample {
        at_ms: Intervals::end_ms(interval),
        elapsed_ms: super::INTERVAL_S.saturating_mul(1_000),
        instances,
        decisions: total("decisions"),
        over_limit: total("over_limit"),
        errors: total("errors"),
        degraded: total("degraded"),
        list_denied: total("list_denied"),
        list_allowed: total("list_allowed"),
        call_p50_us: percentile_us(&calls, 50),
        call_p99_us: percentile_us(&calls, 99),
        store_p50_us: percentile_us(&store, 50),
        store_p99_us: percentile_us(&store, 99),
    })
}

/// The histogram whose buckets have this beginning. A bucket with another bound counts in the next larger one.
fn times(totals: &Totals, start: &str) -> Times {
    let (mut buckets, mut above) = ([0_u64; TIME_BUCKETS], 0_u64);
    for (name, count) in totals {
        let Some(bound) = name.strip_prefix(start) else { continue };
        let bound = bound.parse().unwrap_or(u64::MAX);
        let mut larger = TIME_BOUNDS.iter().zip(&mut buckets).filter(|(of_bucket, _)| bound <= **of_bucket);
        let bucket = larger.next().map_or(&mut above, |(_, bucket)| bucket);
        *bucket = bucket.saturating_add(*count);
    }
    Times::of(TIME_BOUNDS, buckets, above)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(calls: [u64; 3]) -> (Sample, Times) {
        let [fast, slow, slowest] = calls;
        let mut buckets = [0; TIME_BUCKETS];
        (buckets[1], buckets[7]) = (fast, slow);
        let times = Times::of(TIME_BOUNDS, buckets, slowest);
        let decisions = calls.iter().sum();
        (Sample { at_ms: 7_000, instances: 1, decisions, over_limit: slow, ..Sample::default() }, times)
    }

    #[test]
    fn percentiles_of_all_instances_are_those_of_the_merged_histogram() {
        let instances = [instance([98, 0, 0]), instance([0, 98, 2])];
        let mut sum = Totals::new();
        for (sample, times) in &instances {
            for (name, count) in IntervalTotals::of(sample, times, times).totals {
                *sum.entry(name).or_default() += count;
            }
        }
        let merged = sample_of(9, &sum).expect("a sample");
        assert_eq!((merged.instances, merged.decisions, merged.over_limit), (2, 198, 98));
        let (_, all) = instance([98, 98, 2]);
        assert_eq!(merged.call_p50_us, percentile_us(&all, 50));
        assert_eq!(merged.store_p99_us, percentile_us(&all, 99));
        assert_eq!((merged.at_ms, merged.elapsed_ms, merged.errors), (50_000, 5_000, 0));
    }

    #[test]
    fn buckets_of_other_releases_count_in_the_next_larger_one() {
        let totals = Totals::from([
            ("instances".to_owned(), 1),
            ("call_le_60000".to_owned(), 5),
            ("call_le_inf".to_owned(), 5),
            ("call_le_unknown".to_owned(), 5),
            ("of a newer release".to_owned(), 1),
        ]);
        let merged = sample_of(0, &totals).expect("a sample");
        assert_eq!((merged.call_p50_us, merged.call_p99_us), (Some(1_000_000), Some(1_000_000)));
        assert!(sample_of(0, &Totals::new()).is_none());
    }

    #[test]
    fn an_interval_without_requests_has_few_totals() {
        let (sample, times) = instance([0, 0, 0]);
        let totals = IntervalTotals::of(&sample, &times, &times);
        assert_eq!((totals.at_ms, totals.totals.len()), (7_000, 1));
    }
}
