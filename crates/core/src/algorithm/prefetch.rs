//! Prefetching: tokens charged ahead of their use, for an instance that spends them without another call to the store.
//!
//! Prefetched tokens are charged like any hits, so that no limit is exceeded however they are spent, provided that they
//! are spent in time: within the requested hold, and by [`Policy::prefetched_until`](super::Policy::prefetched_until). Tokens
//! that are not spent by then are refunded by [`Hits::RefundCharge`](crate::descriptor::Hits::RefundCharge) as of the time
//! of the prefetch, or are lost to all instances.

/// Fraction of the requested tokens, as a divisor, below which a grant is not worth its risk.
const MIN_GRANT_DIVISOR: u32 = 2;

/// Request of an instance to charge tokens ahead of its own use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetch {
    /// Maximum number of tokens; 0 requests none.
    pub max_tokens: u32,
    /// Maximum share of the remaining hits, in 65536ths.
    pub share: u16,
    /// Time for which the tokens are held, in milliseconds.
    pub hold_millis: u16,
}

impl Prefetch {
    /// Number of tokens granted while `remaining` hits remain. Zero shortly before the limit: the last hits would be held
    /// by one instance while another one denies.
    pub(super) fn granted(self, remaining: u64) -> u32 {
        let share = remaining.saturating_mul(u64::from(self.share)) >> u16::BITS;
        let tokens = u32::try_from(share).unwrap_or(u32::MAX).min(self.max_tokens);
        if tokens < self.max_tokens / MIN_GRANT_DIVISOR { 0 } else { tokens }
    }
}
