//! Counters that every decision adds to.
//!
//! What one thread adds is kept apart from what others do, so that threads don't wait for each other's memory; it
//! is summed up when somebody asks.

use std::{
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::available_parallelism,
};

use metrics::Counter;
use parking_lot::Mutex;

/// More threads than this share.
const MOST_STRIPES: usize = 16;

static STRIPES: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, usize::from).next_power_of_two().min(MOST_STRIPES));

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Which stripe is the thread's.
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// How many stripes there are of what threads add to.
pub(super) fn stripes() -> usize {
    *STRIPES
}

/// The one of them that is this thread's.
pub(super) fn own<T>(stripes: &[T]) -> Option<&T> {
    // A thread that is ending has none of its own any more.
    let at = THREAD.try_with(|thread| thread.checked_rem(stripes.len()));
    stripes.get(at.ok().flatten().unwrap_or_default())
}

/// All there are, to be published.
static ALL: Mutex<Vec<Weak<dyn Publish>>> = Mutex::new(Vec::new());

trait Publish: Send + Sync {
    fn publish(&self);
}

/// Some counters that are added to together.
pub(super) struct Striped<const N: usize> {
    series: [Counter; N],
    stripes: Box<[Stripe<N>]>,
}

/// What some threads added since it was last published; no other thread's is in the same cache line.
#[repr(align(64))]
struct Stripe<const N: usize>([AtomicU64; N]);

impl<const N: usize> Striped<N> {
    /// Counters that are published as `series`.
    pub(super) fn new(series: [Counter; N]) -> Arc<Self> {
        let stripe = |_| Stripe([const { AtomicU64::new(0) }; N]);
        let striped = Arc::new(Self { series, stripes: (0..*STRIPES).map(stripe).collect() });
        let known: Arc<dyn Publish> = Arc::<Self>::clone(&striped);
        ALL.lock().push(Arc::downgrade(&known));
        striped
    }

    /// Adds to each counter.
    pub(super) fn add(&self, amounts: [u64; N]) {
        let Some(Stripe(counts)) = own(&self.stripes) else { return };
        for (count, amount) in counts.iter().zip(amounts).filter(|(_, amount)| *amount > 0) {
            count.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds one to a counter.
    pub(super) fn increment(&self, at: usize) {
        if let Some(count) = own(&self.stripes).and_then(|Stripe(counts)| counts.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Publish for Striped<N> {
    fn publish(&self) {
        for Stripe(counts) in &self.stripes {
            for (count, series) in counts.iter().zip(&self.series) {
                // What is not used is not written to.
                if count.load(Ordering::Relaxed) > 0 {
                    series.increment(count.swap(0, Ordering::Relaxed));
                }
            }
        }
    }
}

impl<const N: usize> Drop for Striped<N> {
    /// The rule has gone, but not what it counted.
    fn drop(&mut self) {
        self.publish();
    }
}

/// Publishes all that was counted.
pub(super) fn publish() {
    let mut all = ALL.lock();
    all.retain(|counters| counters.strong_count() > 0);
    let there: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    // The last clone may publish when it is dropped, for which nobody has to wait.
    drop(all);
    there.iter().for_each(|counters| counters.publish());
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_threads_add_is_published_once_and_what_is_left_when_it_goes() {
        let sums: [Arc<AtomicU64>; 2] = Default::default();
        let series = sums.clone().map(Counter::from_arc);
        let sums = || sums.clone().map(|sum| sum.load(Ordering::Relaxed));
        let counters = Striped::new(series);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| counters.add([1, 2])));
            }
        });
        // Other tests may publish at any time too.
        publish();
        assert_eq!(sums(), [2_000, 4_000]);
        publish();
        assert_eq!(sums(), [2_000, 4_000]);
        counters.add([0, 5]);
        counters.increment(0);
        drop(counters);
        assert_eq!(sums(), [2_001, 4_005]);
    }
}
