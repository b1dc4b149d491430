//! State of a counter, and its summary.

use std::{mem, time::Duration};

use super::{Ledger, LedgerSummary, queue::Queue};
use crate::lease::LeaseId;

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

    /// The first two words.
    pub(super) const fn pair(&self) -> [u32; 2] {
        let [first, second, _] = self.words();
        [first, second]
    }

    /// Applies `work` to the first two words.
    pub(super) fn on_pair<T>(&mut self, work: impl FnOnce(&mut [u32; 2]) -> T) -> T {
        let mut pair = self.pair();
        let result = work(&mut pair);
        let [first, second] = pair;
        *self = Self::Words([first, second, 0]);
        result
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
        let mut log = match mem::take(self) {
            Self::Log(log) => log,
            Self::Words(_) | Self::Leases(_) | Self::Ledger(_) => Box::default(),
        };
        let result = work(&mut log);
        *self = Self::Log(log);
        result
    }

    /// Applies `work` to the held permits; there are none if the counter was never used.
    pub(super) fn on_leases<T>(&mut self, work: impl FnOnce(&mut Queue<LeaseId>) -> T) -> T {
        let mut held = match mem::take(self) {
            Self::Leases(held) => held,
            Self::Words(_) | Self::Log(_) | Self::Ledger(_) => Box::default(),
        };
        let result = work(&mut held);
        *self = Self::Leases(held);
        result
    }

    /// Applies `work` to the ledger, which is empty if the counter was never used.
    pub(super) fn on_ledger<T>(&mut self, work: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = match mem::take(self) {
            Self::Ledger(ledger) => ledger,
            Self::Words(_) | Self::Log(_) | Self::Leases(_) => Box::default(),
        };
        let result = work(&mut ledger);
        *self = Self::Ledger(ledger);
        result
    }
}
