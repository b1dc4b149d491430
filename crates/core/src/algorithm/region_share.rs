//! Shares of a limit that regions enforce, each with its own counter.
//!
//! Unlike the shares of instances, the shares of all regions never add up to more than the limit: a region without a whole
//! hit admits none.

use std::time::Duration;

use super::{Policy, queue::MAX_QUEUED};

impl Policy {
    /// Returns this policy of a limit of `whole` hits with a part of `share` hits: in the same window, or with a part of a
    /// bucket's rate and of its tokens.
    #[must_use]
    pub fn region_share(self, share: u32, whole: u32) -> Self {
        let part = |of: u32| {
            let part = u64::from(of).saturating_mul(share.into()).checked_div(whole.into()).unwrap_or(0);
            u32::try_from(part).unwrap_or(of)
        };
        match self {
            Self::FixedWindow(policy) => {
                Self::FixedWindow(policy.with_limit(share).with_max_carried(part(policy.max_carried())))
            }
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.with_limit(share)),
            Self::SlidingWindowLog(policy) => {
                Self::SlidingWindowLog(policy.with_limit(share.min(MAX_QUEUED)))
            }
            Self::TokenBucket(policy) => Self::TokenBucket(policy.region_share(share, whole)),
            Self::Concurrency(policy) => Self::Concurrency(policy.with_limit(share.min(MAX_QUEUED))),
        }
    }

    /// Time for which a hit may count after it was admitted.
    pub fn tail(&self) -> Duration {
        match self {
            Self::FixedWindow(policy) => policy.tail(),
            Self::SlidingWindow(policy) => policy.length().saturating_mul(2),
            Self::SlidingWindowLog(policy) => policy.window(),
            Self::TokenBucket(policy) => policy.time_to_fill(),
            Self::Concurrency(policy) => policy.lease_ttl(),
        }
    }
}
