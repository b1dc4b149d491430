//! States of counters and their summaries, in the shapes that algorithms share.
//!
//! The shape of a state determines how a store keeps it. A state of fixed size is packed with others; one that varies with
//! its use has a key of its own.

use super::ledger::{Ledger, LedgerSummary};
use super::queue::{Queue, QueueSummary};
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
    Permits(Box<Queue<LeaseId>>),
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

/// Shape of a state, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateShape {
    /// See [`CounterState::Words`].
    Words,
    /// See [`CounterState::Log`].
    Log,
    /// See [`CounterState::Permits`].
    Permits,
    /// See [`CounterState::Ledger`].
    Ledger,
}

/// Summary of a state after a decision: the input of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSummary {
    /// The state itself.
    Words(Words),
    /// The summary of a queue of hits.
    Queue(QueueSummary),
    /// The summary of a ledger.
    Ledger(LedgerSummary),
}

/// A shape of states, as the algorithms of that shape see it. The default is the state of an unused counter.
pub trait State: Default + Into<CounterState> {
    /// The shape.
    const SHAPE: StateShape;

    /// The state of a counter, if it has this shape.
    fn read(counter: &CounterState) -> Option<&Self>;

    /// Applies `work` to the state of a counter, which becomes one of this shape.
    fn update<T>(counter: &mut CounterState, work: impl FnOnce(&mut Self) -> T) -> T;
}

/// Implements a shape of states.
macro_rules! shape {
    ($shape:ident($state:ty)) => {
        impl From<$state> for CounterState {
            fn from(state: $state) -> Self {
                Self::$shape(state.into())
            }
        }

        impl State for $state {
            const SHAPE: StateShape = StateShape::$shape;

            #[inline]
            fn read(counter: &CounterState) -> Option<&Self> {
                if let CounterState::$shape(state) = counter { Some(state) } else { None }
            }

            #[inline]
            fn update<T>(counter: &mut CounterState, work: impl FnOnce(&mut Self) -> T) -> T {
                if let CounterState::$shape(state) = counter {
                    return work(state);
                }
                let mut state = Self::default();
                let result = work(&mut state);
                *counter = state.into();
                result
            }
        }
    };
}

shape!(Words(Words));
shape!(Log(Queue<()>));
shape!(Permits(Queue<LeaseId>));
shape!(Ledger(Ledger));

impl StateSummary {
    pub(super) fn words(self) -> Words {
        if let Self::Words(words) = self { words } else { Words::default() }
    }

    pub(super) fn queue(self) -> QueueSummary {
        if let Self::Queue(queue) = self { queue } else { QueueSummary::default() }
    }

    pub(super) fn ledger(self) -> LedgerSummary {
        if let Self::Ledger(ledger) = self { ledger } else { LedgerSummary::default() }
    }
}

impl CounterState {
    /// Memory use, as an approximate multiple of a counter of fixed size.
    pub fn weight(&self) -> usize {
        let entries = match self {
            Self::Words(_) => 0,
            Self::Log(log) => log.entries.len(),
            Self::Permits(held) => held.entries.len(),
            Self::Ledger(ledger) => ledger.batched,
        };
        1_usize.saturating_add(entries.div_ceil(4))
    }

    /// The words; zeros for a state of another shape.
    pub const fn words(&self) -> Words {
        if let Self::Words(words) = self { *words } else { [0; 3] }
    }
}
