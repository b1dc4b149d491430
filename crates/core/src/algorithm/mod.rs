//! The definition of every algorithm: pure functions of a counter's state, the time and the hits.
//!
//! The memory store runs them as they are. The scripts in `lua/decide/` are their twins, and a differential test
//! holds the two together. An algorithm is one file here, one file of the same name in `lua/decide/`, and one
//! variant of [`Policy`].

pub mod concurrency;
pub mod fixed_window;
pub mod policy;
pub mod queue;
pub mod reserve;
mod share;
pub mod sliding_window;
pub mod sliding_window_log;
mod state;
pub mod token_bucket;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::{
    concurrency::Concurrency,
    fixed_window::FixedWindow,
    policy::{Parameters, Policy, PolicyError},
    reserve::Prefetch,
    sliding_window::SlidingWindow,
    sliding_window_log::SlidingWindowLog,
    state::{Charging, QueueSummary, State, StateSummary, Words},
    token_bucket::TokenBucket,
};
use crate::clock::Timestamp;

/// Which algorithm a rule uses, as its `algorithm` key says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Hits are counted in windows aligned to the epoch, as the reference does.
    #[default]
    FixedWindow,
    /// Hits are counted in such windows, and those of the window before in part.
    SlidingWindow,
    /// Every hit is logged with its time.
    SlidingWindowLog,
    /// A bucket of tokens that refills continuously.
    TokenBucket,
    /// Requests are counted for as long as they last.
    Concurrency,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 5] = [
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingWindowLog,
        Self::TokenBucket,
        Self::Concurrency,
    ];

    /// The name that the configuration uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::TokenBucket => "token_bucket",
            Self::Concurrency => "concurrency",
        }
    }

    /// The number that marks the algorithm's counters in a store: below 16, never reused. Where a cell packs many
    /// counters, those of 8 and above have three words, the others two; and the number after such a kind marks
    /// counters whose words are large, so those kinds are even.
    pub const fn kind(self) -> u8 {
        match self {
            Self::FixedWindow => 0,
            Self::TokenBucket => 1,
            Self::SlidingWindowLog => 2,
            Self::Concurrency => 3,
            Self::SlidingWindow => 8,
        }
    }

    /// Whether each counter has a key of its own in a store, because its size depends on its use.
    pub const fn has_own_key(self) -> bool {
        match self {
            Self::SlidingWindowLog | Self::Concurrency => true,
            Self::FixedWindow | Self::SlidingWindow | Self::TokenBucket => false,
        }
    }

    /// Whether a hit is a permit that its request holds until it ends, in place of a count in a window. Such a limit has
    /// no window to report, and its permits are returned by their lease.
    pub const fn holds_permits(self) -> bool {
        match self {
            Self::Concurrency => true,
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingWindowLog | Self::TokenBucket => false,
        }
    }

    /// The algorithm of a limit override that no rule matches, where this is the domain's default: permits need a
    /// rule by which they are returned.
    #[must_use]
    pub const fn without_rule(self) -> Self {
        if self.holds_permits() { Self::FixedWindow } else { self }
    }

    /// Whether an instance may charge a counter ahead and decide from what it holds. A log needs the time of every
    /// hit, and a place is taken for as long as its request lasts.
    pub const fn can_be_leased(self) -> bool {
        match self {
            Self::FixedWindow | Self::SlidingWindow | Self::TokenBucket => true,
            Self::SlidingWindowLog | Self::Concurrency => false,
        }
    }
}

/// What a decision came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the hits pass. A look passes while nothing is over the limit.
    pub admitted: bool,
    /// Hits that would still pass now.
    pub remaining: u32,
    /// Until the counter is as good as unused.
    pub reset_after: Duration,
    /// Until the same hits pass: zero when they passed, [`Duration::MAX`] when they never can.
    pub retry_after: Duration,
    /// Hits that the counter holds now.
    pub used: u64,
    /// How many of the hits charged were too many; 0 when they passed.
    pub over: u64,
    /// The time of the decision.
    pub decided_at: Timestamp,
}

impl Verdict {
    /// The verdict as it reads so much later, if nothing happens to the counter.
    #[must_use]
    pub fn later(self, elapsed: Duration) -> Self {
        let left = |time: Duration| if time == Duration::MAX { time } else { time.saturating_sub(elapsed) };
        Self {
            reset_after: left(self.reset_after),
            retry_after: left(self.retry_after),
            decided_at: self.decided_at.plus(elapsed),
            ..self
        }
    }
}
