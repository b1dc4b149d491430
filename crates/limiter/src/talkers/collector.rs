//! From what threads have sampled to the sketches.

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

use super::metrics;
use super::{
    DomainTop,
    active::Active,
    sampler::{Ear, Queue},
    samples::Samples,
    sketches::Sketches,
    window::WINDOW_SECONDS,
};
use tollgate_core::descriptor::Entry;
use tollgate_runtime::panics::{self, CancelOnPanic};

/// Between two rounds of the collector, which keeps the time for all threads: reading a clock costs as much as the rest.
const TICK: Duration = Duration::from_millis(100);

pub(super) const TICKS_IN_A_SECOND: u32 = 10;

/// All that a process has of it.
#[derive(Debug, Default)]
struct Collector {
    /// Ticks since it was started.
    now: AtomicU32,
    is_sampling: AtomicBool,
    queues: Mutex<Vec<Queue>>,
    sketches: Mutex<Sketches>,
    active: Active,
}

static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::default);

thread_local! {
    static EAR: RefCell<Ear> = RefCell::new(COLLECTOR.ear());
}

/// Starts collecting, once in a process, on a thread of its own; without sampling, only domains are told of.
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
pub(super) fn seen(domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
    let collector = &*COLLECTOR;
    // A thread that is ending hears nothing any more.
    let _ = EAR.try_with(|ear| {
        let Ok(mut ear) = ear.try_borrow_mut() else { return };
        ear.hear_domain(domain, collector.now.load(Ordering::Relaxed), &collector.active);
        if hits > 0 && collector.is_sampling.load(Ordering::Relaxed) {
            ear.hear(domain, entries, hits, is_denied);
        }
    });
}

pub(super) fn report(domain: Option<&str>, most: usize) -> Vec<DomainTop> {
    let domains = match domain {
        Some(domain) => vec![domain.to_owned()],
        None => COLLECTOR.sketches.lock().domains(),
    };
    // One at a time, so that the collector does not wait for all of them.
    domains.iter().filter_map(|domain| COLLECTOR.sketches.lock().top(domain, most)).collect()
}

pub(super) fn active_domains() -> Vec<String> {
    COLLECTOR.active.domains(COLLECTOR.now.load(Ordering::Relaxed))
}

pub(super) fn bytes() -> usize {
    COLLECTOR.sketches.lock().bytes()
}

impl Collector {
    fn ear(&self) -> Ear {
        let queue = Queue::default();
        self.queues.lock().push(Arc::clone(&queue));
        Ear::new(queue)
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
            self.sketches.lock().turn(window);
            self.active.expire(now);
            metrics::samples_dropped(self.collect(&mut spare));
            metrics::sketch_bytes(self.sketches.lock().bytes());
        }
    }

    /// Takes all samples that wait, and says how many were lost.
    fn collect(&self, spare: &mut Samples) -> u64 {
        let queues: Vec<_> = {
            let mut queues = self.queues.lock();
            let all = queues.clone();
            // Of a thread that has ended this takes the last.
            queues.retain(|queue| Arc::strong_count(queue) > 2);
            all
        };
        let mut lost = 0_u64;
        for queue in queues {
            mem::swap(&mut *queue.lock(), spare);
            let mut sketches = self.sketches.lock();
            let homeless = spare.iter().map(|sample| u64::from(!sketches.add(&sample))).sum();
            drop(sketches);
            lost = lost.saturating_add(spare.dropped()).saturating_add(homeless);
            spare.clear();
        }
        lost
    }
}
