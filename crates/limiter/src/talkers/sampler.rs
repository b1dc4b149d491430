//! What each thread hears.

use std::sync::Arc;

use fastrand::Rng;
use foldhash::quality::RandomState;
use hashbrown::HashSet;
use parking_lot::Mutex;
use std::hash::BuildHasher as _;

use super::{
    active::{Active, TOLD_EVERY},
    samples::Samples,
    sampling_rate::Stride,
};
use tollgate_core::descriptor::Entry;

/// Where a thread puts its samples. Whoever collects them takes all at once; nobody ever waits for that.
pub(super) type Queue = Arc<Mutex<Samples>>;

/// One thread's part. A call that no sample is taken of costs a hash of its domain and one or two random numbers.
#[derive(Debug)]
pub(super) struct Ear {
    queue: Queue,
    tick: u32,
    asked: Stride,
    denied: Stride,
    random: Rng,
    hasher: RandomState,
    /// The last domain that was heard of.
    latest: u64,
    /// Those that it has told of lately.
    told: HashSet<u64, foldhash::fast::FixedState>,
    told_at: u32,
    /// Samples that were lost since the collector was busy with the queue.
    missed: u64,
}

impl Ear {
    pub(super) fn new(queue: Queue) -> Self {
        Self {
            queue,
            tick: 0,
            asked: Stride::new(),
            denied: Stride::new(),
            random: Rng::new(),
            hasher: RandomState::default(),
            latest: 0,
            told: HashSet::default(),
            told_at: 0,
            missed: 0,
        }
    }

    /// Tells of the domain, if that was not done lately.
    #[inline]
    pub(super) fn hear_domain(&mut self, domain: &str, now: u32, active: &Active) {
        if self.tick != now {
            self.turn(now);
        }
        let name = self.hasher.hash_one(domain);
        if name != self.latest {
            self.latest = name;
            if self.told.insert(name) {
                active.note(domain, now);
            }
        }
    }

    /// Takes a sample, perhaps.
    #[inline]
    pub(super) fn hear(&mut self, domain: &str, entries: &[Entry<'_>], hits: u64, is_denied: bool) {
        let asked = self.asked.weigh(hits, &mut self.random);
        let denied = if is_denied { self.denied.weigh(hits, &mut self.random) } else { 0 };
        if asked > 0 || denied > 0 {
            self.push(domain, entries, asked, denied);
        }
    }

    fn push(&mut self, domain: &str, entries: &[Entry<'_>], asked: u64, denied: u64) {
        match self.queue.try_lock() {
            Some(mut samples) => {
                samples.push(domain, entries, asked, denied);
                samples.drop_some(std::mem::take(&mut self.missed));
            }
            None => self.missed = self.missed.saturating_add(1),
        }
    }

    /// Time has passed.
    #[cold]
    fn turn(&mut self, now: u32) {
        let ticks = now.saturating_sub(self.tick);
        self.tick = now;
        self.asked.turn(ticks);
        self.denied.turn(ticks);
        if now.saturating_sub(self.told_at) >= TOLD_EVERY {
            self.told_at = now;
            self.told.clear();
            self.latest = 0;
        }
    }
}
