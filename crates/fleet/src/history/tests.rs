use std::{sync::LazyLock, time::Duration};

use super::*;

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn moment(at_ms: u64, all: u64, listed: [u64; 2]) -> Moment {
    let responses = ResponseCounts {
        all,
        over_limit: all / 2,
        store_errors: all / 10,
        other_errors: 1,
        degraded: all / 5,
    };
    // Time goes on, whatever the clock is set to.
    let at = *BEGUN + Duration::from_millis(all);
    Moment {
        at_ms,
        at,
        responses,
        listed,
        calls: REQUEST_DURATION.observed(),
        store: store_metrics::DURATION.observed(),
    }
}

#[test]
fn a_sample_has_the_increase_since_the_one_before() {
    let mut ring = Ring { latest: None, samples: VecDeque::new(), unpublished: VecDeque::new() };
    ring.record(moment(5_000, 100, [1, 2]));
    assert!(ring.samples.is_empty(), "of the time before it nothing is known");
    (0..100).for_each(|_| store_metrics::DURATION.observe_time(Duration::from_micros(75)));
    ring.record(moment(10_000, 150, [1, 5]));
    let sample = ring.samples.back().expect("one");
    let counted = (sample.decisions, sample.over_limit, sample.errors, sample.degraded);
    assert_eq!((sample.at_ms, counted), (10_000, (50, 25, 5, 10)));
    assert_eq!((sample.list_denied, sample.list_allowed, sample.elapsed_ms), (3, 0, 50));
    ring.record(moment(9_000, 160, [1, 5]));
    let later = ring.samples.back().expect("one");
    assert_eq!((later.at_ms, later.elapsed_ms), (10_000, 10), "the clock was set back");
    let sample = ring.samples.front().expect("the first");
    // Between 50 and 100 µs, whatever other tests do.
    assert!(sample.store_p50_us.is_some_and(|micros| (50..=100).contains(&micros)), "{sample:?}");
}

#[test]
fn only_the_last_minutes_are_kept() {
    let mut ring = Ring { latest: None, samples: VecDeque::new(), unpublished: VecDeque::new() };
    (0..1_000).for_each(|round| ring.record(moment(round * 5_000, round, [0, 0])));
    assert_eq!((ring.samples.len(), ring.unpublished.len()), (MAX_SAMPLES, MAX_UNPUBLISHED));
    assert_eq!(ring.samples.front().expect("the oldest").at_ms, 820 * 5_000);
    assert!(ring.samples.iter().all(|sample| sample.decisions == 1));
}

#[test]
fn samples_near_a_boundary_are_in_consecutive_intervals() {
    let mut intervals = Intervals::default();
    let jitter = [0_u64, 3, 1, 4, 0, 2, 5, 1];
    let ends = (1_000..1_100_u64).zip(jitter.into_iter().cycle());
    let numbers: Vec<_> = ends.map(|(at, jitter)| intervals.next(at * 5_000 + 2_498 + jitter)).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[test]
fn a_late_sample_is_in_the_interval_where_it_is() {
    let mut intervals = Intervals::default();
    assert_eq!(intervals.next(50_000), 9);
    assert_eq!(Intervals::end_ms(9), 50_000);
    assert_eq!(intervals.next(80_000), 15);
    // The clock was set back.
    assert_eq!(intervals.next(60_000), 11);
}

#[test]
fn slow_drift_skips_one_interval_at_a_time() {
    let mut intervals = Intervals::default();
    let numbers: Vec<_> = (0..2_000_u64).map(|at| intervals.next(50_000 + at * 5_010)).collect();
    let steps: Vec<_> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.iter().all(|step| (1..=2).contains(step)));
    assert_eq!(steps.iter().filter(|step| **step == 2).count(), 4);
}

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
