//! What a counter holds, and what a store tells of it.

use std::{mem, time::Duration};

use super::queue::Queue;
use crate::lease::LeaseId;

/// A counter's state, as the memory store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Up to three words, whose meaning is the algorithm's. All zeros is the state of a counter that was never
    /// used, whatever its algorithm.
    Words(Words),
    /// Hits with their times.
    Log(Box<Queue<()>>),
    /// Places with their holders.
    Leases(Box<Queue<LeaseId>>),
}

/// The state of an algorithm that needs no more.
pub type Words = [u32; 3];

impl Default for State {
    fn default() -> Self {
        Self::Words(Words::default())
    }
}

/// Where a counter stands after a decision: all that a verdict needs to know of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSummary {
    /// The state itself.
    Words(Words),
    /// What a queue of hits comes to.
    QueueSummary(QueueSummary),
}

/// What a queue of hits comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSummary {
    /// Hits in it.
    pub used: u64,
    /// Until the hits asked for pass: zero when they would now, `None` when they never will.
    pub wait: Option<Duration>,
    /// Until the last of the hits in it has ended.
    pub reset: Duration,
}

/// Whether what one descriptor of a request is denied keeps the others from being charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charging {
    /// Each counter for itself, as in the reference: a fixed window counts hits that it denies, too.
    #[default]
    EachForItself,
    /// All counters of a request are charged or none, and what is denied counts nowhere.
    AllOrNone,
}

impl State {
    /// How many counters of a few words take about as much memory.
    pub fn weight(&self) -> usize {
        let entries = match self {
            Self::Words(_) => 0,
            Self::Log(log) => log.entries(),
            Self::Leases(held) => held.entries(),
        };
        1_usize.saturating_add(entries.div_ceil(4))
    }

    /// The words; those of an unused counter when it holds something else.
    pub(super) const fn words(&self) -> Words {
        match self {
            Self::Words(words) => *words,
            Self::Log(_) | Self::Leases(_) => [0; 3],
        }
    }

    /// The first two words.
    pub(super) const fn pair(&self) -> [u32; 2] {
        let [first, second, _] = self.words();
        [first, second]
    }

    /// Works on the first two words.
    pub(super) fn on_pair<T>(&mut self, work: impl FnOnce(&mut [u32; 2]) -> T) -> T {
        let mut pair = self.pair();
        let answer = work(&mut pair);
        let [first, second] = pair;
        *self = Self::Words([first, second, 0]);
        answer
    }

    /// Works on the log; on an empty one when the counter was never used.
    pub(super) fn on_log<T>(&mut self, work: impl FnOnce(&mut Queue<()>) -> T) -> T {
        let mut log = match mem::take(self) {
            Self::Log(log) => log,
            Self::Words(_) | Self::Leases(_) => Box::default(),
        };
        let answer = work(&mut log);
        *self = Self::Log(log);
        answer
    }

    /// Works on the places; on none when the counter was never used.
    pub(super) fn on_leases<T>(&mut self, work: impl FnOnce(&mut Queue<LeaseId>) -> T) -> T {
        let mut held = match mem::take(self) {
            Self::Leases(held) => held,
            Self::Words(_) | Self::Log(_) => Box::default(),
        };
        let answer = work(&mut held);
        *self = Self::Leases(held);
        answer
    }
}
