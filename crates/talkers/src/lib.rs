//! Top talkers: the heaviest and the most denied keys of each domain over the last minute, from a bounded sketch.
//!
//! ```text
//! worker ──> sampler (weighted samples) ──> queue ──> collector ──> sketch of the domain ──> report
//! ```
//!
//! - Each thread records every descriptor of a domain that has rules, and of the few known ones without. It samples every
//!   hit up to 5,000 in a second, and above that about as many at random. Denied hits are sampled separately, so that rare denials are not lost among
//!   many hits. The weight of a sample is the number of hits that it represents.
//! - Samples wait in a queue of the thread, which the collector empties ten times a second. A full queue drops samples
//!   and counts them.
//! - A sketch is six windows of ten seconds; each has a space-saving summary of requested hits, and one of denied hits.
//!   Together they report each key that has more than 1/672 of the domain's hits, with an error bound.
//! - Memory: a summary has at most 896 keys of at most 256 bytes, and there are at most 64 domains. Above 20 MiB for
//!   all sketches, each summary is reduced to as few as 21 keys, which bounds them to 28 MiB. A queue has at most 256
//!   KiB.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod counts;
pub mod demand;
mod key;
mod sampler;
mod share;
mod sketches;
mod space_saving;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};
use std::{cell::RefCell, io, mem, thread};

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tollgate_core::descriptor::Entry;
use tollgate_metrics::{Counter, Gauge, Metric};
use tollgate_rules::{Listing, Lists};
use tollgate_runtime::panics::{self, CancelOnPanic};

pub use self::counts::{DomainCounts, KeyCounts, SpanCounts, merge};
pub use self::demand::{KeyDemand, TakenDemand};
pub use self::key::{OwnedEntry, text};
use self::sampler::{Queue, Sampler, Samples};
pub use self::share::TrafficShare;
pub use self::space_saving::{Estimate, Memory, Summary};
use self::{demand::DemandSince, sketches::Sketches};

/// Metrics of top talkers.
pub static METRICS: &[&dyn Metric] = &[&SAMPLES_DROPPED, &SKETCH_BYTES];

static SAMPLES_DROPPED: Counter =
    Counter::new("tollgate_top_talkers_samples_dropped_total", "Samples of top talkers that were dropped.");

static SKETCH_BYTES: Gauge =
    Gauge::new("tollgate_top_talkers_sketch_bytes", "Memory of the sketches of top talkers, in bytes.");

/// Maximum length of a key or of a domain's name.
const MAX_TEXT_BYTES: usize = 256;

/// Length of the window that [`DomainCounts::recent`] covers, in seconds.
pub const RECENT_SECONDS: u64 = sketches::WINDOW_SECONDS;

/// A key with many hits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// The descriptor's entries for people: `key=value`, joined by commas, with `…` at the end if they are truncated to 256
    /// bytes.
    pub key: String,
    /// The descriptor's entries; `None` if they are truncated.
    pub descriptor: Option<Vec<OwnedEntry>>,
    /// Estimated hits within the last minute: never too few, apart from sampling.
    pub hits: u64,
    /// Hits that may belong to other keys.
    pub error: u64,
}

/// Top keys of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainTop {
    /// The domain.
    pub domain: String,
    /// Keys with the most requested hits, heaviest first.
    pub heaviest: Vec<Talker>,
    /// Keys with the most denied hits, heaviest first.
    pub denied: Vec<Talker>,
}

/// Time between two rounds of the collector, which keeps the time for all threads: reading a clock costs as much as the
/// rest of a sample.
const TICK: Duration = Duration::from_millis(100);

const TICK_MILLIS: u128 = TICK.as_millis();

const TICKS_PER_SECOND: u32 = 10;

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

/// Starts collecting, once in a process, on a separate thread. Without sampling, [`counts()`] returns nothing.
///
/// # Errors
/// When the operating system refuses the thread.
pub fn start(is_sampling: bool) -> io::Result<()> {
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

/// Records the requested hits of one descriptor, and whether it was denied. For the hot path: never waits. Domains without
/// rules are those of a bounded number of names.
#[inline]
pub fn record(domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
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

/// Returns counts of the heaviest keys of every domain, of about `max_bytes` in JSON at most; for [`merge()`]. Takes up to a
/// millisecond for each domain.
pub fn counts(max_bytes: usize) -> Vec<DomainCounts> {
    let domains = COLLECTOR.sketches.lock().domains();
    // One lock for each, so that the collector does not wait for all of them.
    let counts = |domain: &String| COLLECTOR.sketches.lock().counts(domain);
    let mut counts: Vec<_> = domains.iter().filter_map(counts).collect();
    counts::fit(&mut counts, max_bytes);
    counts
}

/// Returns the share of the last minute's requests that any of these deny entries matches, for each of their domains that has
/// any, most first. Takes some milliseconds for each domain.
pub fn shares_of(listings: Vec<Listing>) -> Vec<TrafficShare> {
    let mut domains = COLLECTOR.sketches.lock().domains();
    let is_of = |listing: &Listing, domain: &str| listing.domain().is_none_or(|name| name == domain);
    domains.retain(|domain| listings.iter().any(|listing| is_of(listing, domain)));
    let lists = Lists::new(0, listings, []);
    let traffic = |domain: &String| COLLECTOR.sketches.lock().traffic(domain);
    let shares = domains.iter().filter_map(|domain| TrafficShare::of(domain, &traffic(domain)?, &lists));
    let mut shares: Vec<_> = shares.collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.per_mille()));
    shares
}

/// Returns the domains that had requests within the last minute, reads included; at most 100, the latest
/// first, and only those whose names have at most 256 bytes.
pub fn active_domains() -> Vec<String> {
    COLLECTOR.active.domains(COLLECTOR.now.load(Ordering::Relaxed))
}

/// Takes the requested hits of each key since the last call, and counts them from the first call on.
pub fn take_demand() -> TakenDemand {
    COLLECTOR.demand.lock().take()
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
            let ticks = passed.as_millis() / TICK_MILLIS;
            // Enough for thirteen years.
            let now = u32::try_from(ticks).unwrap_or(u32::MAX);
            self.now.store(now, Ordering::Relaxed);
            let window = passed.as_secs() / RECENT_SECONDS;
            self.sketches.lock().advance(window);
            self.active.expire(now);
            SAMPLES_DROPPED.add(self.collect(&mut spare));
            SKETCH_BYTES.set(self.sketches.lock().bytes as f64);
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
            lost = lost.saturating_add(spare.dropped).saturating_add(unplaced);
            spare.clear();
        }
        lost
    }
}

/// Maximum number of reported domains.
const MAX_DOMAINS: usize = 100;

/// Ticks within which a thread reports a domain once.
const REPORT_INTERVAL_TICKS: u32 = 5 * TICKS_PER_SECOND;

/// Ticks for which a domain counts as active after a thread reported it: a minute after its last request.
const ACTIVE_TICKS: u32 = 60 * TICKS_PER_SECOND + REPORT_INTERVAL_TICKS;

/// Tick of the last report of each domain. Only domains with rules, and a bounded number of others, are reported. They are
/// not sampled: a report that a domain has no traffic must be true.
#[derive(Debug, Default)]
struct Active(Mutex<HashMap<String, u32, RandomState>>);

impl Active {
    fn record(&self, domain: &str, now: u32) {
        *self.0.lock().entry_ref(domain).or_default() = now;
    }

    /// Drops domains without recent requests.
    fn expire(&self, now: u32) {
        self.0.lock().retain(|_, last| now.saturating_sub(*last) <= ACTIVE_TICKS);
    }

    /// Returns the domains with requests within the last minute, the latest first; domains with long names are omitted.
    fn domains(&self, now: u32) -> Vec<String> {
        let reported = self.0.lock();
        let is_active = |last: u32| now.saturating_sub(last) <= ACTIVE_TICKS;
        let mut active: Vec<_> = reported
            .iter()
            .filter(|(name, last)| is_active(**last) && name.len() <= MAX_TEXT_BYTES)
            .collect();
        active.sort_unstable_by(|(a, earlier), (b, later)| later.cmp(earlier).then(a.cmp(b)));
        active.into_iter().take(MAX_DOMAINS).map(|(name, _)| name.clone()).collect()
    }
}
