//! Counters that every request adds to.
//!
//! Each thread adds to a stripe of its own, so that threads do not contend for a cache line. The stripes are summed up when
//! the counts are published: before a page is rendered, before deltas are read, and on request.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::{array, fmt::Debug, slice, thread::available_parallelism};

use parking_lot::Mutex;

use super::exposition::{Declared, Metric, Page};

/// More threads than this share stripes.
const MAX_STRIPES: usize = 16;

/// Number of stripes of a counter.
pub(super) static STRIPES: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, usize::from).next_power_of_two().min(MAX_STRIPES));

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Index of the thread's stripe.
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// The stripe of this thread.
pub(super) fn own<T>(stripes: &[T]) -> Option<&T> {
    // A thread that is ending has no index any more.
    let at = THREAD.try_with(|thread| thread.checked_rem(stripes.len()));
    stripes.get(at.ok().flatten().unwrap_or_default())
}

/// Receives the published counts of one counter.
pub trait Sink: Debug + Send + Sync {
    /// Adds to the published count.
    fn add(&self, amount: u64);
}

impl Sink for AtomicU64 {
    fn add(&self, amount: u64) {
        self.fetch_add(amount, Ordering::Relaxed);
    }
}

/// All striped counters, to be published.
static ALL: Mutex<Vec<Weak<dyn Publish>>> = Mutex::new(Vec::new());

trait Publish: Send + Sync {
    fn publish(&self);
}

/// Counters that are added to together.
#[derive(Debug)]
pub struct Striped<const N: usize> {
    sinks: [Arc<dyn Sink>; N],
    stripes: Box<[Stripe<N>]>,
}

/// Counts of some threads since they were last published; no other thread's are in the same cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Stripe<const N: usize>([AtomicU64; N]);

impl<const N: usize> Striped<N> {
    /// Counters that are published to `sinks`.
    pub fn new(sinks: [Arc<dyn Sink>; N]) -> Arc<Self> {
        let stripe = |_| Stripe([const { AtomicU64::new(0) }; N]);
        let striped = Arc::new(Self { sinks, stripes: (0..*STRIPES).map(stripe).collect() });
        let known: Arc<dyn Publish> = Arc::<Self>::clone(&striped);
        ALL.lock().push(Arc::downgrade(&known));
        striped
    }

    /// Adds to each counter.
    pub fn add(&self, amounts: [u64; N]) {
        let Some(Stripe(counts)) = own(&self.stripes) else { return };
        for (count, amount) in counts.iter().zip(amounts).filter(|(_, amount)| *amount > 0) {
            count.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds one to a counter.
    pub fn increment(&self, at: usize) {
        if let Some(count) = own(&self.stripes).and_then(|Stripe(counts)| counts.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Publish for Striped<N> {
    fn publish(&self) {
        for Stripe(counts) in &self.stripes {
            for (count, sink) in counts.iter().zip(&self.sinks) {
                // Unused counters are not written to, so that their cache lines stay shared.
                if count.load(Ordering::Relaxed) > 0 {
                    sink.add(count.swap(0, Ordering::Relaxed));
                }
            }
        }
    }
}

impl<const N: usize> Drop for Striped<N> {
    /// Publishes the rest, since the counts outlive their rule.
    fn drop(&mut self) {
        self.publish();
    }
}

/// Publishes the counts of all striped counters.
pub fn publish() {
    let mut all = ALL.lock();
    all.retain(|counters| counters.strong_count() > 0);
    let live: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    // The last clone may publish when it is dropped; the lock is not held for that.
    drop(all);
    live.iter().for_each(|counters| counters.publish());
}

/// A counter with a fixed number of series, for every request.
#[derive(Debug)]
pub struct StripedFamily<const N: usize, const L: usize> {
    declared: Declared,
    /// Values of the labels of each series.
    values: fn() -> [[&'static str; L]; N],
    is_at_zero: bool,
    counters: OnceLock<Counters<N>>,
}

#[derive(Debug)]
struct Counters<const N: usize> {
    striped: Arc<Striped<N>>,
    published: [Arc<AtomicU64>; N],
}

/// A counter without labels, for every request.
pub type StripedCounter = StripedFamily<1, 0>;

impl StripedCounter {
    /// Declares a counter without labels.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self::with_series(name, &[], help, || [[]])
    }
}

impl<const N: usize, const L: usize> StripedFamily<N, L> {
    /// Declares a counter whose series have these values of the labels.
    pub const fn with_series(
        name: &'static str,
        labels: &'static [&'static str; L],
        help: &'static str,
        values: fn() -> [[&'static str; L]; N],
    ) -> Self {
        let declared = Declared::counter(name, labels, help);
        Self { declared, values, is_at_zero: false, counters: OnceLock::new() }
    }

    /// Declares that all series are exported from the start, at zero, and not from the first event on.
    #[must_use]
    pub const fn at_zero(mut self) -> Self {
        self.is_at_zero = true;
        self
    }

    /// Exports all series from now on, though they may be zero.
    pub fn export(&self) {
        self.counters();
    }

    fn counters(&self) -> &Counters<N> {
        self.counters.get_or_init(|| {
            let published: [Arc<AtomicU64>; N] = array::from_fn(|_| Arc::default());
            let sinks = published.each_ref().map(|sink| -> Arc<dyn Sink> { Arc::<AtomicU64>::clone(sink) });
            Counters { striped: Striped::new(sinks), published }
        })
    }

    /// Adds to each series, in their order.
    pub fn add(&self, amounts: [u64; N]) {
        self.counters().striped.add(amounts);
    }

    /// Adds one to a series, by its index.
    pub fn increment(&self, at: usize) {
        self.counters().striped.increment(at);
    }

    /// The totals of the series in their order, as of the last time that counts were published.
    pub fn totals(&self) -> [u64; N] {
        match self.counters.get() {
            Some(counters) => counters.published.each_ref().map(|total| total.load(Ordering::Relaxed)),
            None => [0; N],
        }
    }
}

impl<const N: usize, const L: usize> Metric for StripedFamily<N, L> {
    fn declared(&self) -> &[Declared] {
        slice::from_ref(&self.declared)
    }

    fn write(&self, page: &mut Page) {
        if !self.is_at_zero && self.counters.get().is_none() {
            return;
        }
        page.begin(&self.declared);
        for (values, total) in (self.values)().iter().zip(self.totals()) {
            page.sample(&self.declared, values, total);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits for counts: other tests publish too, and may hold some of them for a moment.
    fn wait_for(is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < deadline, "other counts");
            thread::yield_now();
        }
    }

    #[test]
    fn counts_of_threads_are_published_once_and_the_rest_when_the_counters_are_dropped() {
        let sums: [Arc<AtomicU64>; 2] = Default::default();
        let sinks = sums.clone().map(|sum| -> Arc<dyn Sink> { sum });
        let sums = || sums.clone().map(|sum| sum.load(Ordering::Relaxed));
        let counters = Striped::new(sinks);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| counters.add([1, 2])));
            }
        });
        publish();
        wait_for(|| sums() == [2_000, 4_000]);
        publish();
        assert_eq!(sums(), [2_000, 4_000]);
        counters.add([0, 5]);
        counters.increment(0);
        drop(counters);
        wait_for(|| sums() == [2_001, 4_005]);
    }

    #[test]
    fn a_family_has_all_of_its_series_once_one_is_used() {
        static FAMILY: StripedFamily<2, 1> =
            StripedFamily::with_series("x_total", &["a"], "X.", || [["one"], ["two"]]);
        let text = || {
            let mut page = Page::default();
            FAMILY.write(&mut page);
            page.into_text()
        };
        assert_eq!((text(), FAMILY.totals()), (String::new(), [0, 0]));
        FAMILY.increment(1);
        publish();
        wait_for(|| text().ends_with("x_total{a=\"one\"} 0\nx_total{a=\"two\"} 1\n"));
    }
}
