//! Moves the samples of all threads to the sketches.

use std::{
    cell::RefCell,
    io, mem,
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tollgate_core::descriptor::Entry;
use tollgate_rules::Listing;
use tollgate_runtime::panics::{self, CancelOnPanic};

use super::metrics;
use super::{
    DomainCounts, DomainTop, TrafficShare,
    active::Active,
    counts,
    demand::{DemandSince, TakenDemand},
    sampler::{Queue, Sampler},
    samples::Samples,
    sketches::Sketches,
    window::WINDOW_SECONDS,
};

/// Time between two rounds of the collector, which keeps the time for all threads: reading a clock costs as much as the
/// rest of a sample.
const TICK: Duration = Duration::from_millis(100);

pub(super) const TICKS_PER_SECOND: u32 = 10;

/// State of the process.
#[derive(Debug, Default)]
struct Collector {
    /// Ticks since the start.
    now: AtomicU32,
    is_sampling: AtomicBool,
    queues: Mutex<Vec<Queue>>,
    sketches: Mutex<Sketches>,
    demand: Mutex<DemandSince>,
    active: Active,
}

static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::default);

thread_local! {
    static SAMPLER: RefCell<Sampler> = RefCell::new(COLLECTOR.sampler());
}

/// Starts collecting, once in a process, on a separate thread. Without sampling, only active domains are reported.
///
/// # Errors
/// When the operating system refuses the thread.
pub(super) fn start(is_sampling: bool) -> io::Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    COLLECTOR.is_sampling.store(is_sampling, Ordering::Relaxed);
    if STARTED.set(()).is_err() {
        return Ok(());
    }
    let alarm = CancelOnPanic(panics::process_token());
    let run = || {
        let _alarm = alarm;
        COLLECTOR.run();
    };
    thread::Builder::new().name("top-talkers".to_owned()).spawn(run).map(drop)
}

#[inline]
pub(super) fn record(domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
    let collector = &*COLLECTOR;
    // Fails on a thread that is ending.
    let _ = SAMPLER.try_with(|sampler| {
        let Ok(mut sampler) = sampler.try_borrow_mut() else { return };
        sampler.record_domain(domain, collector.now.load(Ordering::Relaxed), &collector.active);
        if hits > 0 && collector.is_sampling.load(Ordering::Relaxed) {
            sampler.record(domain, entries, hits, is_denied);
        }
    });
}

pub(super) fn report(domain: Option<&str>, limit: usize) -> Vec<DomainTop> {
    let domains = match domain {
        Some(domain) => vec![domain.to_owned()],
        None => COLLECTOR.sketches.lock().domains(),
    };
    // One lock for each, so that the collector does not wait for all of them.
    domains.iter().filter_map(|domain| COLLECTOR.sketches.lock().top(domain, limit)).collect()
}

pub(super) fn counts_within(max_bytes: usize) -> Vec<DomainCounts> {
    let domains = COLLECTOR.sketches.lock().domains();
    let counts = |domain: &String| COLLECTOR.sketches.lock().counts(domain);
    let mut counts: Vec<_> = domains.iter().filter_map(counts).collect();
    counts::fit(&mut counts, max_bytes);
    counts
}

pub(super) fn shares_of(listing: &Listing) -> Vec<TrafficShare> {
    let domains = match listing.domain() {
        Some(domain) => vec![domain.to_owned()],
        None => COLLECTOR.sketches.lock().domains(),
    };
    let traffic = |domain: &String| COLLECTOR.sketches.lock().traffic(domain);
    let shares = domains.iter().filter_map(|domain| TrafficShare::of(domain, &traffic(domain)?, listing));
    let mut shares: Vec<_> = shares.collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.per_mille()));
    shares
}

pub(super) fn active_domains() -> Vec<String> {
    COLLECTOR.active.domains(COLLECTOR.now.load(Ordering::Relaxed))
}

pub(super) fn take_demand() -> TakenDemand {
    COLLECTOR.demand.lock().take()
}

pub(super) fn bytes() -> usize {
    COLLECTOR.sketches.lock().bytes()
}

impl Collector {
    fn sampler(&self) -> Sampler {
        let queue = Queue::default();
        self.queues.lock().push(Arc::clone(&queue));
        Sampler::new(queue)
    }

    fn run(&self) {
        let (begun, mut spare) = (Instant::now(), Samples::default());
        loop {
            thread::sleep(TICK);
            let passed = begun.elapsed();
            let ticks = passed.as_millis().checked_div(TICK.as_millis()).unwrap_or_default();
            // Enough for thirteen years.
            let now = u32::try_from(ticks).unwrap_or(u32::MAX);
            self.now.store(now, Ordering::Relaxed);
            let window = passed.as_secs().checked_div(WINDOW_SECONDS).unwrap_or_default();
            self.sketches.lock().advance(window);
            self.active.expire(now);
            metrics::samples_dropped(self.collect(&mut spare));
            metrics::sketch_bytes(self.sketches.lock().bytes());
        }
    }

    /// Moves all queued samples to the sketches, and returns the number of lost samples.
    fn collect(&self, spare: &mut Samples) -> u64 {
        let queues: Vec<_> = {
            let mut queues = self.queues.lock();
            let all = queues.clone();
            // The last samples of a thread that has ended are taken in this round.
            queues.retain(|queue| Arc::strong_count(queue) > 2);
            all
        };
        let mut lost = 0_u64;
        for queue in queues {
            mem::swap(&mut *queue.lock(), spare);
            let mut sketches = self.sketches.lock();
            let unplaced = spare.iter().map(|sample| u64::from(!sketches.add(&sample))).sum();
            drop(sketches);
            let mut demand = self.demand.lock();
            spare.iter().for_each(|sample| demand.add(&sample));
            drop(demand);
            lost = lost.saturating_add(spare.dropped()).saturating_add(unplaced);
            spare.clear();
        }
        lost
    }
}
