//! What one of several instances may let pass by itself, while they can't count together.
//!
//! All shares together are at most the limit, but that each instance lets at least one hit pass where the limit is
//! not 0: with fewer hits than instances there is no better share of them.

use std::num::NonZeroU32;

use super::Policy;

impl Policy {
    /// The policy of one of so many equal shares, for a counter of its own.
    #[must_use]
    pub fn shared_by(self, shares: NonZeroU32) -> Self {
        match self {
            Self::FixedWindow(policy) => Self::FixedWindow(policy.shared_by(shares)),
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.shared_by(shares)),
            Self::SlidingWindowLog(policy) => Self::SlidingWindowLog(policy.shared_by(shares)),
            Self::TokenBucket(policy) => Self::TokenBucket(policy.shared_by(shares)),
            Self::Concurrency(policy) => Self::Concurrency(policy.shared_by(shares)),
        }
    }
}

/// A share of a limit.
pub(super) fn share_of(limit: u32, shares: NonZeroU32) -> u32 {
    (limit / shares).max(limit.min(1))
}
