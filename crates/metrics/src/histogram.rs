//! Histograms that every request adds to.
//!
//! Each thread adds to a stripe of its own, as in `striped_counter`. Counts are never taken out of the stripes: every
//! reader sums up the same ones.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{slice, time::Duration};

use super::exposition::{Declared, Metric, MetricKind, Page};
use super::striped_counter::{STRIPES, own};

/// Unit of the observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds, exported as seconds.
    Time,
    /// A number.
    Count,
}

/// Observations by size: one bucket up to each of `N` bounds, and one above. Exported from the start.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    declared: Declared,
    unit: Unit,
    /// The largest value of each bucket, growing.
    bounds: [u64; N],
    stripes: OnceLock<Box<[Stripe<N>]>>,
}

/// Observations of some threads; no other thread's are in the same cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Stripe<const N: usize> {
    buckets: [AtomicU64; N],
    above: AtomicU64,
    sum: AtomicU64,
}

/// Observations until some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed<const N: usize> {
    bounds: [u64; N],
    buckets: [u64; N],
    above: u64,
    sum: u64,
}

impl<const N: usize> Histogram<N> {
    /// Declares a histogram with these bounds, in ascending order: in nanoseconds or as numbers.
    pub const fn new(name: &'static str, help: &'static str, unit: Unit, bounds: [u64; N]) -> Self {
        let declared = Declared { name, kind: MetricKind::Histogram, labels: &[], help };
        Self { declared, unit, bounds, stripes: OnceLock::new() }
    }

    fn stripes(&self) -> &[Stripe<N>] {
        self.stripes.get_or_init(|| {
            let zeros = || [const { AtomicU64::new(0) }; N];
            let stripe = |_| Stripe { buckets: zeros(), above: AtomicU64::new(0), sum: AtomicU64::new(0) };
            (0..*STRIPES).map(stripe).collect()
        })
    }

    /// Adds an observation, in nanoseconds or as a number.
    pub fn observe(&self, value: u64) {
        let Some(stripe) = own(self.stripes()) else { return };
        let bucket = self.bounds.iter().zip(&stripe.buckets).find(|(bound, _)| value <= **bound);
        bucket.map_or(&stripe.above, |(_, count)| count).fetch_add(1, Ordering::Relaxed);
        stripe.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds an observation of a time.
    pub fn observe_time(&self, time: Duration) {
        self.observe(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Observations until now.
    pub fn observed(&self) -> Observed<N> {
        let add = |total: &mut u64, count: &AtomicU64| {
            *total = total.saturating_add(count.load(Ordering::Relaxed));
        };
        let mut observed = Observed::of(self.bounds, [0; N], 0);
        for stripe in self.stripes() {
            observed.buckets.iter_mut().zip(&stripe.buckets).for_each(|(total, count)| add(total, count));
            add(&mut observed.above, &stripe.above);
            add(&mut observed.sum, &stripe.sum);
        }
        observed
    }

    /// Adds the observations to a page under another declaration, whose labels have these values.
    pub fn write_as(&self, page: &mut Page, declared: &Declared, values: &[&str]) {
        page.begin(declared);
        let observed = self.observed();
        let bound = |bound: Option<u64>| bound.map_or("+Inf".to_owned(), |bound| self.unit.shown(bound));
        let buckets: Vec<_> = observed.buckets().map(|(largest, count)| (bound(largest), count)).collect();
        page.distribution(declared, values, &buckets, &self.unit.shown(observed.sum));
    }
}

impl<const N: usize> Metric for Histogram<N> {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn write(&self, page: &mut Page) {
        self.write_as(page, &self.declared, &[]);
    }
}

impl<const N: usize> Observed<N> {
    /// Observations with these counts: each bucket's, and those above the last bound. Their sum is not kept.
    pub const fn of(bounds: [u64; N], buckets: [u64; N], above: u64) -> Self {
        Self { bounds, buckets, above, sum: 0 }
    }

    /// The largest value and the number of observations of each bucket; `None` above the last bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.bounds.into_iter().map(Some).zip(self.buckets).chain([(None, self.above)])
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().copied().fold(self.above, u64::saturating_add)
    }

    /// Middle and number of observations of each bucket; above the last bound, the bound stands for the middle.
    pub fn middles(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut lower = 0_u64;
        let middles = self.bounds.into_iter().map(move |bound| {
            let middle = lower.midpoint(bound);
            lower = bound;
            middle
        });
        let last = self.bounds.last().copied().unwrap_or_default();
        middles.zip(self.buckets).chain([(last, self.above)])
    }

    /// Observations since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut buckets = self.buckets;
        for (count, before) in buckets.iter_mut().zip(earlier.buckets) {
            *count = count.saturating_sub(before);
        }
        Self {
            bounds: self.bounds,
            buckets,
            above: self.above.saturating_sub(earlier.above),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// The percentile as Prometheus estimates it: within its bucket as if the observations there were spread evenly, and
    /// the last bound for what lies above it. `None` without observations.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let hundredths = u128::from(self.count()).saturating_mul(u128::from(percent));
        let (mut below, mut lower) = (0_u128, 0_u64);
        for (bound, count) in self.bounds.iter().zip(self.buckets) {
            let here = u128::from(count).saturating_mul(100);
            if count > 0 && below.saturating_add(here) >= hundredths {
                let width = u128::from(bound.saturating_sub(lower));
                let inside = hundredths.saturating_sub(below).saturating_mul(width).checked_div(here)?;
                return Some(lower.saturating_add(u64::try_from(inside).unwrap_or_default()));
            }
            below = below.saturating_add(here);
            lower = *bound;
        }
        (self.above > 0).then_some(lower)
    }
}

impl Unit {
    /// A value as the page has it; Prometheus reads every number as 64 bits of floating point.
    #[allow(clippy::float_arithmetic)] // Once for each line of a page.
    fn shown(self, value: u64) -> String {
        match self {
            // One division, which rounds once.
            Self::Time => (value as f64 / 1e9).to_string(),
            Self::Count => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn observations_of_all_threads_are_counted_once() {
        let histogram = Histogram::new("x", "X.", Unit::Count, [1, 10, 100]);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| [0, 1, 2, 10, 11, 100, 101, 5_000].map(|value| histogram.observe(value)));
            }
        });
        let observed = histogram.observed();
        assert_eq!((observed.buckets, observed.above, observed.sum), ([40, 40, 40], 40, 20 * 5_225));
        let middles: Vec<_> = observed.middles().collect();
        assert_eq!(middles, [(0, 40), (5, 40), (55, 40), (100, 40)]);
        histogram.observe(7);
        let since = histogram.observed().since(&observed);
        assert_eq!((since.buckets, since.count(), since.sum), ([0, 1, 0], 1, 7));
    }

    #[test]
    fn percentiles_are_those_of_prometheus() {
        let of = |buckets, above| Observed { bounds: [100, 200, 400], buckets, above, sum: 0 };
        assert_eq!(of([0, 0, 0], 0).percentile(99), None);
        assert_eq!(of([100, 0, 0], 0).percentile(50), Some(50));
        assert_eq!(of([50, 50, 0], 0).percentile(50), Some(100));
        assert_eq!(of([0, 98, 2], 0).percentile(99), Some(300));
        assert_eq!(of([0, 0, 1], 0).percentile(99), Some(398));
        assert_eq!(of([0, 0, 1], 99).percentile(99), Some(400), "the last bound");
    }

    #[test]
    fn a_page_has_cumulative_buckets_sum_and_count() {
        let histogram = Histogram::new("took_seconds", "Time.", Unit::Time, [50_000, 1_000_000_000]);
        [1_000, 50_000, 60_000, 1_429_497_919].into_iter().for_each(|value| histogram.observe(value));
        let labels = &["a"];
        let declared = Declared { labels, ..histogram.declared };
        let mut page = Page::default();
        histogram.write_as(&mut page, &declared, &["b"]);
        let expected = "# HELP took_seconds Time.\n# TYPE took_seconds histogram\n\
                        took_seconds_bucket{a=\"b\",le=\"0.00005\"} 2\ntook_seconds_bucket{a=\"b\",le=\"1\"} 3\n\
                        took_seconds_bucket{a=\"b\",le=\"+Inf\"} 4\ntook_seconds_sum{a=\"b\"} 1.429608919\n\
                        took_seconds_count{a=\"b\"} 4\n";
        assert_eq!(page.into_text(), expected);
    }
}
