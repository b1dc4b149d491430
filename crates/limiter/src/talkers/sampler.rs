//! Samples the descriptors that a thread decides.

use std::{hash::BuildHasher as _, sync::Arc};

use fastrand::Rng;
use foldhash::quality::RandomState;
use hashbrown::HashSet;
use parking_lot::Mutex;
use tollgate_core::descriptor::Entry;

use super::{
    active::{Active, REPORT_INTERVAL_TICKS},
    samples::Samples,
    sampling_rate::SamplingRate,
};

/// Samples of one thread. The collector takes all at once; neither side ever waits.
pub(super) type Queue = Arc<Mutex<Samples>>;

/// Sampler of one thread. A call without a sample costs a hash of its domain and one or two random numbers.
#[derive(Debug)]
pub(super) struct Sampler {
    queue: Queue,
    tick: u32,
    requested: SamplingRate,
    denied: SamplingRate,
    random: Rng,
    hasher: RandomState,
    /// Hash of the last domain.
    latest: u64,
    /// Hashes of the domains that were reported recently.
    reported: HashSet<u64, foldhash::fast::FixedState>,
    reported_at: u32,
    /// Samples lost because the collector held the queue.
    missed: u64,
}

impl Sampler {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue,
            tick: 0,
            requested: SamplingRate::new(),
            denied: SamplingRate::new(),
            random: Rng::new(),
            hasher: RandomState::default(),
            latest: 0,
            reported: HashSet::default(),
            reported_at: 0,
            missed: 0,
        }
    }

    /// Reports the domain as active, unless it was reported recently.
    #[inline]
    pub(super) fn record_domain(&mut self, domain: &str, now: u32, active: &Active) {
        if self.tick != now {
            self.advance(now);
        }
        let name = self.hasher.hash_one(domain);
        if name != self.latest {
            self.latest = name;
            if self.reported.insert(name) {
                active.record(domain, now);
            }
        }
    }

    /// Takes a sample, at random.
    #[inline]
    pub(super) fn record(&mut self, domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
        let requested = self.requested.weigh(hits, &mut self.random);
        let denied = if is_denied { self.denied.weigh(hits, &mut self.random) } else { 0 };
        if requested > 0 || denied > 0 {
            self.push(domain, entries, requested, denied);
        }
    }

    fn push(&mut self, domain: &str, entries: &[Entry<'_>], requested: u64, denied: u64) {
        match self.queue.try_lock() {
            Some(mut samples) => {
                samples.push(domain, entries, requested, denied);
                samples.count_dropped(std::mem::take(&mut self.missed));
            }
            None => self.missed = self.missed.saturating_add(1),
        }
    }

    /// Adjusts the sampling rates after some ticks.
    #[cold]
    fn advance(&mut self, now: u32) {
        let ticks = now.saturating_sub(self.tick);
        self.tick = now;
        self.requested.advance(ticks);
        self.denied.advance(ticks);
        if now.saturating_sub(self.reported_at) >= REPORT_INTERVAL_TICKS {
            self.reported_at = now;
            self.reported.clear();
            self.latest = 0;
        }
    }
}
