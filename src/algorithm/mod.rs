//! The definition of every algorithm: pure functions of a counter's state, the time and the hits.
//!
//! The memory store runs them as they are. The scripts in `lua/` are their twins, and a differential test
//! holds the two together. An algorithm is one file here, one file of the same name in `lua/`, and one
//! variant of [`Policy`].

pub mod fixed_window;
pub mod token_bucket;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::{fixed_window::FixedWindow, token_bucket::TokenBucket};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

/// Which algorithm a rule uses, as its `algorithm` key says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Hits are counted in windows aligned to the epoch, as the reference does.
    #[default]
    FixedWindow,
    /// A bucket of tokens that refills continuously.
    TokenBucket,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 2] = [Self::FixedWindow, Self::TokenBucket];

    /// The name that the configuration uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::TokenBucket => "token_bucket",
        }
    }

    /// The number that marks the algorithm's records in a store: below 16, never reused.
    pub const fn kind(self) -> u8 {
        match self {
            Self::FixedWindow => 0,
            Self::TokenBucket => 1,
        }
    }
}

/// An algorithm with its parameters: all that deciding needs beside state, time and hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
}

/// A counter's state as stores keep it: two 32-bit words whose meaning is the algorithm's.
/// All zeros is the state of a counter that was never used.
pub type Words = [u32; 2];

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
}

impl Policy {
    /// The policy for `quota` under `algorithm`.
    ///
    /// `burst` is a token bucket's capacity and is the limit when absent; other algorithms have none.
    ///
    /// # Errors
    /// [`token_bucket::OutOfRange`] when a token bucket of that rate and burst can't be kept.
    pub fn new(
        algorithm: Algorithm,
        quota: Quota,
        burst: Option<u32>,
    ) -> Result<Self, token_bucket::OutOfRange> {
        match algorithm {
            Algorithm::FixedWindow => Ok(Self::FixedWindow(FixedWindow::new(quota))),
            Algorithm::TokenBucket => {
                TokenBucket::new(quota, burst.unwrap_or(quota.limit)).map(Self::TokenBucket)
            }
        }
    }

    /// The policy for a quota that a request brings along: a burst is as large as the limit, and the rate is the
    /// nearest that can be kept.
    pub fn with_full_burst(algorithm: Algorithm, quota: Quota) -> Self {
        match algorithm {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(quota)),
            Algorithm::TokenBucket => Self::TokenBucket(TokenBucket::rounded(quota, quota.limit)),
        }
    }

    /// The algorithm without its parameters.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::FixedWindow(_) => Algorithm::FixedWindow,
            Self::TokenBucket(_) => Algorithm::TokenBucket,
        }
    }

    /// The two numbers that the algorithm's script takes, in the order that the script documents.
    pub fn script_parameters(&self) -> [u64; 2] {
        match self {
            Self::FixedWindow(policy) => policy.script_parameters(),
            Self::TokenBucket(policy) => policy.script_parameters(),
        }
    }

    /// Decides `hits` at `now`, moves `state` on, and says whether the hits pass.
    pub fn apply(&self, state: &mut Words, now: Timestamp, hits: Hits) -> bool {
        match self {
            Self::FixedWindow(policy) => policy.apply(state, now, hits),
            Self::TokenBucket(policy) => policy.apply(state, now, hits),
        }
    }

    /// What a decision that left `after` behind came to.
    pub fn verdict(&self, after: Words, now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        match self {
            Self::FixedWindow(policy) => policy.verdict(after, now, hits, admitted),
            Self::TokenBucket(policy) => policy.verdict(after, now, hits, admitted),
        }
    }

    /// When `state` becomes as good as unused and may be dropped, rounded up to a whole second since the
    /// epoch.
    pub fn expires_at(&self, state: Words) -> u32 {
        match self {
            Self::FixedWindow(_) => fixed_window::expires_at(state),
            Self::TokenBucket(_) => token_bucket::expires_at(state),
        }
    }
}
