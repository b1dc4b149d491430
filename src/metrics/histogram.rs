//! Histograms that every call adds to.
//!
//! As in `striped`, what one thread adds is kept apart from what others do. It is never taken out again: a page and
//! the history read the same counts.

use std::{
    array,
    fmt::{self, Display},
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    page::{Kind, Page},
    striped,
};

/// What is observed, and how it reads on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Nanoseconds, shown as seconds.
    Time,
    /// A number.
    Count,
}

/// Observations by size: one bucket up to each of `N` bounds, and one above.
pub(super) struct Histogram<const N: usize> {
    unit: Unit,
    /// The largest value of each bucket, growing.
    bounds: [u64; N],
    stripes: Box<[Stripe<N>]>,
}

/// What some threads observed; no other thread's is in the same cache line.
#[repr(align(64))]
struct Stripe<const N: usize> {
    buckets: [AtomicU64; N],
    above: AtomicU64,
    sum: AtomicU64,
}

/// What was observed until some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observed<const N: usize> {
    bounds: [u64; N],
    buckets: [u64; N],
    above: u64,
    sum: u64,
}

impl<const N: usize> Histogram<N> {
    pub(super) fn new(unit: Unit, bounds: [u64; N]) -> Self {
        let stripe = |_| Stripe {
            buckets: array::from_fn(|_| AtomicU64::default()),
            above: AtomicU64::default(),
            sum: AtomicU64::default(),
        };
        Self { unit, bounds, stripes: (0..striped::stripes()).map(stripe).collect() }
    }

    pub(super) fn observe(&self, value: u64) {
        let Some(stripe) = striped::own(&self.stripes) else { return };
        let bucket = self.bounds.iter().zip(&stripe.buckets).find(|(bound, _)| value <= **bound);
        bucket.map_or(&stripe.above, |(_, count)| count).fetch_add(1, Ordering::Relaxed);
        stripe.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was observed until now.
    pub(super) fn observed(&self) -> Observed<N> {
        let sum = |of: &dyn Fn(&Stripe<N>) -> &AtomicU64| {
            let counts = self.stripes.iter().map(|stripe| of(stripe).load(Ordering::Relaxed));
            counts.fold(0, u64::saturating_add)
        };
        let mut buckets = [0; N];
        for stripe in &self.stripes {
            for (total, count) in buckets.iter_mut().zip(&stripe.buckets) {
                *total = u64::saturating_add(*total, count.load(Ordering::Relaxed));
            }
        }
        let (above, sum) = (sum(&|stripe| &stripe.above), sum(&|stripe| &stripe.sum));
        Observed { bounds: self.bounds, buckets, above, sum }
    }

    /// Adds it to a page under a name of its own.
    pub(super) fn write(&self, page: &mut Page, name: &str, help: &str, labels: &[(&str, &str)]) {
        page.begin(name, Kind::Histogram, help);
        let observed = self.observed();
        let (bucket, sum, count) = (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
        let with = |bound: String, page: &mut Page, count: u64| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", &*bound)]).collect();
            page.sample(&bucket, &labels, count);
        };
        let mut so_far = 0_u64;
        for (bound, count) in observed.bounds.iter().zip(observed.buckets) {
            so_far = so_far.saturating_add(count);
            with(self.unit.shown(*bound).to_string(), page, so_far);
        }
        with("+Inf".to_owned(), page, observed.count());
        page.sample(&sum, labels, self.unit.shown(observed.sum));
        page.sample(&count, labels, observed.count());
    }
}

impl<const N: usize> Observed<N> {
    /// How many observations there were.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().copied().fold(self.above, u64::saturating_add)
    }

    /// How many observations each bucket has, with the middle of it; for what lies above the last bound, that bound.
    pub(super) fn middles(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut lower = 0_u64;
        let middles = self.bounds.into_iter().map(move |bound| {
            let middle = lower.midpoint(bound);
            lower = bound;
            middle
        });
        let last = self.bounds.last().copied().unwrap_or_default();
        middles.zip(self.buckets).chain([(last, self.above)])
    }

    /// What was observed since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
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

    /// The value that so many in a hundred observations don't exceed, as Prometheus estimates it: within its bucket as
    /// if all in there were spread evenly, and the last bound for what lies above it. None without observations.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
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
    const fn shown(self, value: u64) -> Shown {
        Shown(self, value)
    }
}

/// A value as it stands on a page.
struct Shown(Unit, u64);

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

impl Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(unit, value) = self;
        match unit {
            Unit::Count => write!(f, "{value}"),
            Unit::Time => {
                let decimals = format!("{:09}", value % SECOND);
                match decimals.trim_end_matches('0') {
                    "" => write!(f, "{}", value / SECOND),
                    decimals => write!(f, "{}.{decimals}", value / SECOND),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn observations_are_counted_once_whoever_makes_them() {
        let histogram = Histogram::new(Unit::Count, [1, 10, 100]);
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
    fn percentiles_are_those_that_prometheus_would_show() {
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
        let histogram = Histogram::new(Unit::Time, [50_000, SECOND]);
        [1_000, 50_000, 60_000, 2 * SECOND].into_iter().for_each(|value| histogram.observe(value));
        let mut page = Page::after(String::new());
        histogram.write(&mut page, "took_seconds", "Time.", &[("a", "b")]);
        let expected = "# HELP took_seconds Time.\n# TYPE took_seconds histogram\n\
                        took_seconds_bucket{a=\"b\",le=\"0.00005\"} 2\ntook_seconds_bucket{a=\"b\",le=\"1\"} 3\n\
                        took_seconds_bucket{a=\"b\",le=\"+Inf\"} 4\ntook_seconds_sum{a=\"b\"} 2.000111\n\
                        took_seconds_count{a=\"b\"} 4\n";
        assert_eq!(page.into_text(), expected);
    }
}
