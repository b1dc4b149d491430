//! State of a counter and its summary, with the ledger of a budget and the size of a bucket.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    num::NonZeroU64,
    time::Duration,
};

use smallvec::SmallVec;

use super::queue::Queue;
use crate::{descriptor::Hits, lease::LeaseId, saturating::Count};

/// State of a counter, as the memory store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterState {
    /// Up to three words, whose meaning depends on the algorithm. Zeros are the state of an unused counter of any
    /// algorithm.
    Words(Words),
    /// Hits with their times.
    Log(Box<Queue<()>>),
    /// Held permits with their leases.
    Leases(Box<Queue<LeaseId>>),
    /// Used hits, and those that leases hold.
    Ledger(Box<Ledger>),
}

/// State of an algorithm of fixed size.
pub type Words = [u32; 3];

impl Default for CounterState {
    fn default() -> Self {
        Self::Words(Words::default())
    }
}

/// Summary of a state after a decision: the input of [`Policy::verdict`](super::Policy::verdict).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSummary {
    /// The state itself.
    Words(Words),
    /// The summary of a queue of hits.
    Queue(QueueSummary),
    /// The summary of a ledger.
    Ledger(LedgerSummary),
}

/// Summary of a queue of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSummary {
    /// Hits in the queue.
    pub used: u64,
    /// Time until the requested hits would pass: zero if they would pass now, `None` if they never can.
    pub wait: Option<Duration>,
    /// Time until the last hit expires.
    pub reset: Duration,
}

/// Whether a denial of one descriptor prevents the others of the request from being charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charging {
    /// Each counter is charged independently, as in envoyproxy/ratelimit; a fixed window also counts denied hits.
    #[default]
    Independent,
    /// All counters of a request are charged or none, and denied hits count nowhere.
    AllOrNone,
}

impl CounterState {
    /// Memory use, as an approximate multiple of a counter of fixed size.
    pub fn weight(&self) -> usize {
        let entries = match self {
            Self::Words(_) => 0,
            Self::Log(log) => log.entries(),
            Self::Leases(held) => held.entries(),
            Self::Ledger(ledger) => ledger.entries(),
        };
        1_usize.saturating_add(entries.div_ceil(4))
    }

    /// The words; zeros for a state of another shape.
    pub(super) const fn words(&self) -> Words {
        match self {
            Self::Words(words) => *words,
            Self::Log(_) | Self::Leases(_) | Self::Ledger(_) => [0; 3],
        }
    }

    /// Applies `work` to the words.
    pub(super) fn on_words<T>(&mut self, work: impl FnOnce(&mut Words) -> T) -> T {
        let mut words = self.words();
        let result = work(&mut words);
        *self = Self::Words(words);
        result
    }

    /// Applies `work` to the log, which is empty if the counter was never used.
    pub(super) fn on_log<T>(&mut self, work: impl FnOnce(&mut Queue<()>) -> T) -> T {
        let log = if let Self::Log(log) = mem::take(self) { Some(log) } else { None };
        self.on_boxed(log, Self::Log, work)
    }

    /// Applies `work` to the held permits; there are none if the counter was never used.
    pub(super) fn on_leases<T>(&mut self, work: impl FnOnce(&mut Queue<LeaseId>) -> T) -> T {
        let held = if let Self::Leases(held) = mem::take(self) { Some(held) } else { None };
        self.on_boxed(held, Self::Leases, work)
    }

    /// Applies `work` to the ledger, which is empty if the counter was never used.
    pub(super) fn on_ledger<T>(&mut self, work: impl FnOnce(&mut Ledger) -> T) -> T {
        let ledger = if let Self::Ledger(ledger) = mem::take(self) { Some(ledger) } else { None };
        self.on_boxed(ledger, Self::Ledger, work)
    }

    fn on_boxed<S: Default, T>(
        &mut self,
        taken: Option<Box<S>>,
        wrap: impl FnOnce(Box<S>) -> Self,
        work: impl FnOnce(&mut S) -> T,
    ) -> T {
        let mut state = taken.unwrap_or_default();
        let result = work(&mut state);
        *self = wrap(state);
        result
    }
}

/// Leases that end at the same time in one batch at most: in Redis, an element of a compact hash.
const MAX_BATCH: usize = 7;

/// Maximum number of used or held hits, exact in a Lua number.
const MAX_COUNT: u64 = (1 << 53) - 1;

/// State of a counter with reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// End of the window, in seconds since the epoch.
    pub(super) ends: u32,
    /// Hits that were used in it.
    pub(super) used: Count,
    /// Hits that open leases hold.
    pub(super) held: Count,
    pub(super) leases: HashMap<LeaseId, Lease>,
    /// The leases in the order of their ends. A lease that was cancelled is still in it.
    pub(super) batches: VecDeque<Batch>,
    /// Number of leases in `batches`.
    pub(super) batched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    /// Its end, in seconds since the epoch; then, the time until which it is remembered.
    pub(super) until: u32,
    pub(super) state: LeaseState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// Holds hits.
    Open(u64),
    Settled,
    /// Ended by itself. Its hits were charged, and count in the window with this end.
    Charged {
        hits: u64,
        window: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) until: u32,
    pub(super) leases: SmallVec<[LeaseId; MAX_BATCH]>,
}

/// Summary of a ledger after a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSummary {
    /// Hits that were used in the window.
    pub used: u64,
    /// Hits that open leases hold.
    pub held: u64,
    /// End of the window, in seconds since the epoch.
    pub ends: u32,
    /// Whether the lease of a reservation is a known one that does not hold its hits.
    pub has_conflict: bool,
}

impl Ledger {
    pub(super) fn charge(&mut self, hits: u64) {
        self.used = (self.used + hits).min(Count(MAX_COUNT));
    }

    /// Returns what a lease holds, as though it had not been reserved.
    pub(super) fn cancel(&mut self, id: LeaseId) {
        if let Some(Lease { state: LeaseState::Open(held), .. }) = self.leases.get(&id).copied() {
            self.held -= held;
            self.leases.remove(&id);
        }
    }

    /// Adds a lease that ends last, with those before it at the earliest.
    pub(super) fn push(&mut self, id: LeaseId, until: u32, state: LeaseState) {
        let until = self.batches.back().map_or(until, |last| until.max(last.until));
        match self.batches.back_mut().filter(|last| last.until == until && last.leases.len() < MAX_BATCH) {
            Some(last) => last.leases.push(id),
            None => self.batches.push_back(Batch { until, leases: SmallVec::from_iter([id]) }),
        }
        self.batched = self.batched.saturating_add(1);
        self.leases.insert(id, Lease { until, state });
    }

    /// Number of leases of all kinds.
    pub(super) const fn entries(&self) -> usize {
        self.batched
    }

    pub(super) fn summary(&self, hits: Hits) -> LedgerSummary {
        let has_conflict = match hits {
            Hits::Acquire { amount, lease } => {
                self.leases.get(&lease).is_some_and(|known| !known.holds(amount))
            }
            _ => false,
        };
        LedgerSummary { used: self.used.0, held: self.held.0, ends: self.ends, has_conflict }
    }
}

impl Lease {
    /// Whether at least `amount` hits are held.
    pub(super) const fn holds(&self, amount: NonZeroU64) -> bool {
        matches!(self.state, LeaseState::Open(held) if held >= amount.get())
    }
}

/// Capacity of size 0 in ticks, about 82 ms; each further size has four times as much, and size 10 a day.
pub const MIN_SIZE_TICKS: u64 = 8_239_747;

/// Size of the maximum time to fill, which fits 4 bits.
const MAX_SIZE: u32 = 15;

/// Size of the rule's bucket or of the largest one used by limit overrides: a power of four, which bounds its debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketSize {
    pub(super) exponent: u32,
    /// Whether the bucket is that of a limit override.
    pub(super) of_override: bool,
}

impl BucketSize {
    /// Exponent of the size of a capacity in ticks.
    pub(super) fn exponent_of(capacity: u64) -> u32 {
        let steps = capacity.div_ceil(MIN_SIZE_TICKS).max(1);
        steps.next_power_of_two().trailing_zeros().div_ceil(2).min(MAX_SIZE)
    }

    /// Upper bound of the debt of buckets of this size, less than four times the largest possible debt.
    pub(super) const fn room(self) -> u64 {
        MIN_SIZE_TICKS << (self.exponent << 1)
    }

    /// The 5 bits of a state.
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self { exponent: bits / 2, of_override: bits % 2 == 1 }
    }

    pub(super) const fn bits(self) -> u32 {
        self.exponent << 1 | self.of_override as u32
    }
}
