//! Charging tokens ahead of their use, for an instance that will spend them in a moment without asking again.
//!
//! What is reserved is charged like any hits, so that no limit is exceeded however the tokens are spent, so long as
//! that is in time: within the hold that was wished, and by [`Policy::reserved_until`]. What is not spent by then is
//! given back by [`Hits::Undo`](crate::descriptor::Hits::Undo), as of the time of the reservation, or lost to all.

use super::{Policy, State};
use crate::clock::Timestamp;

/// Less than this part of what is wished is not worth its risk.
const WORTH: u32 = 2;

/// What an instance wishes to charge ahead of its own use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The most tokens; 0 for no wish.
    pub most: u32,
    /// The share of what remains that may be taken, in 65536ths.
    pub share: u16,
    /// For how long they are held, in milliseconds.
    pub hold_millis: u16,
}

impl Wish {
    /// How many tokens are granted where so many remain. Just before all is used up that is none: the last ones
    /// would be held by one while another one is denied.
    pub(super) fn granted(self, remaining: u64) -> u32 {
        let share = remaining.saturating_mul(u64::from(self.share)) >> u16::BITS;
        let tokens = u32::try_from(share).unwrap_or(u32::MAX).min(self.most);
        if tokens < self.most / WORTH { 0 } else { tokens }
    }
}

impl Policy {
    /// Charges at `now` as many tokens as the wish allows, and says how many. Algorithms that keep hits by themselves
    /// reserve none.
    pub fn reserve(&self, state: &mut State, now: Timestamp, wish: Wish) -> u32 {
        match self {
            Self::FixedWindow(policy) => state.on_pair(|pair| policy.reserve(pair, now, wish)),
            Self::SlidingWindow(policy) => {
                let mut words = state.words();
                let tokens = policy.reserve(&mut words, now, wish);
                *state = State::Words(words);
                tokens
            }
            Self::TokenBucket(policy) => state.on_pair(|pair| policy.reserve(pair, now, wish)),
            Self::SlidingWindowLog(_) | Self::Concurrency(_) => 0,
        }
    }

    /// The time by which what was reserved at `now` must be spent for the algorithm's sake: the window's end. A bucket
    /// owes the hold that was wished, and nothing else.
    pub fn reserved_until(&self, now: Timestamp) -> Option<Timestamp> {
        let end = match self {
            Self::FixedWindow(policy) => policy.window_end(now),
            Self::SlidingWindow(policy) => policy.window_end(now),
            Self::TokenBucket(_) | Self::SlidingWindowLog(_) | Self::Concurrency(_) => return None,
        };
        Some(Timestamp::from_micros(u64::from(end).saturating_mul(1_000_000)))
    }
}
