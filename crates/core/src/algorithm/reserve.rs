//! Charging tokens ahead of their use, for an instance that will spend them in a moment without asking again.
//!
//! What is reserved is charged like any hits, so that no limit is exceeded however the tokens are spent, so long as
//! that is in time: within the hold that was wished, and by [`Policy::reserved_until`](super::Policy::reserved_until). What is not spent by then is
//! given back by [`Hits::Undo`](crate::descriptor::Hits::Undo), as of the time of the reservation, or lost to all.

/// Less than this part of what is wished is not worth its risk.
const WORTH: u32 = 2;

/// What an instance wishes to charge ahead of its own use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetch {
    /// The most tokens; 0 for no wish.
    pub most: u32,
    /// The share of what remains that may be taken, in 65536ths.
    pub share: u16,
    /// For how long they are held, in milliseconds.
    pub hold_millis: u16,
}

impl Prefetch {
    /// How many tokens are granted where so many remain. Just before all is used up that is none: the last ones
    /// would be held by one while another one is denied.
    pub(super) fn granted(self, remaining: u64) -> u32 {
        let share = remaining.saturating_mul(u64::from(self.share)) >> u16::BITS;
        let tokens = u32::try_from(share).unwrap_or(u32::MAX).min(self.most);
        if tokens < self.most / WORTH { 0 } else { tokens }
    }
}
