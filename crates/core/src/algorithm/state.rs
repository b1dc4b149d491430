//! States of counters and their summaries, in the shapes that algorithms share.
//!
//! The shape of a state determines how a store keeps it. A state of fixed size is packed with others; one that varies with
//! its use has a key of its own.

use super::{
    ledger::{Ledger, LedgerSummary},
    queue::{Queue, QueueSummary},
};
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

impl Default for StateSummary {
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

/// A shape of states, as the algorithms of that shape see it. The default is the state of an unused counter.
pub trait State: Default {
    /// Summary that a verdict needs.
    type Summary: From<StateSummary> + Into<StateSummary>;

    /// The shape.
    const SHAPE: StateShape;

    /// The state of a counter, if it has this shape.
    fn read(counter: &CounterState) -> Option<&Self>;

    /// The state of a counter, which becomes one of this shape.
    fn of(counter: &mut CounterState) -> Option<&mut Self>;

    /// Applies `work` to the state of a counter, which becomes one of this shape.
    #[inline]
    fn update<T>(counter: &mut CounterState, work: impl FnOnce(&mut Self) -> T) -> T {
        match Self::of(counter) {
            Some(state) => work(state),
            // It has this shape now.
            None => work(&mut Self::default()),
        }
    }
}

/// Implements a shape of states.
macro_rules! shape {
    ($shape:ident($state:ty), $summary:ty) => {
        impl State for $state {
            type Summary = $summary;

            const SHAPE: StateShape = StateShape::$shape;

            #[inline]
            fn read(counter: &CounterState) -> Option<&Self> {
                if let CounterState::$shape(state) = counter { Some(state) } else { None }
            }

            #[inline]
            fn of(counter: &mut CounterState) -> Option<&mut Self> {
                if Self::read(counter).is_none() {
                    *counter = CounterState::$shape(Self::default().into());
                }
                if let CounterState::$shape(state) = counter { Some(state) } else { None }
            }
        }
    };
}

shape!(Words(Words), Words);
shape!(Log(Queue<()>), QueueSummary);
shape!(Permits(Queue<LeaseId>), QueueSummary);
shape!(Ledger(Ledger), LedgerSummary);

/// Implements the conversions of a summary. One of another shape is that of an unused counter.
macro_rules! summary {
    ($shape:ident($summary:ty)) => {
        impl From<$summary> for StateSummary {
            #[inline]
            fn from(summary: $summary) -> Self {
                Self::$shape(summary)
            }
        }

        impl From<StateSummary> for $summary {
            #[inline]
            fn from(summary: StateSummary) -> Self {
                if let StateSummary::$shape(summary) = summary { summary } else { Self::default() }
            }
        }
    };
}

summary!(Words(Words));
summary!(Queue(QueueSummary));
summary!(Ledger(LedgerSummary));

impl CounterState {
    /// Memory use, as an approximate multiple of a counter of fixed size.
    pub fn weight(&self) -> usize {
        let entries = match self {
            Self::Words(_) => 0,
            Self::Log(log) => log.entries(),
            Self::Permits(held) => held.entries(),
            Self::Ledger(ledger) => ledger.entries(),
        };
        1_usize.saturating_add(entries.div_ceil(4))
    }

    /// The words; zeros for a state of another shape.
    pub(super) const fn words(&self) -> Words {
        match self {
            Self::Words(words) => *words,
            Self::Log(_) | Self::Permits(_) | Self::Ledger(_) => [0; 3],
        }
    }
}
