//! The last verdict on a counter, from which each instance starts its share of the limit.
//!
//! Instances that cannot count together enforce a share of each limit. Of a counter that was in use before, they divide
//! what remained: the state of the share is one after which it admits the remaining hits, divided by the number of
//! instances and rounded down. So a denial lasts as long as it would, windows end, and buckets refill.
//!
//! Other instances may have charged the counter after its last verdict here. Their charges until the store failed are
//! estimated from the usage up to the verdict, and at most half of what remained is set aside for them: a counter that was
//! not exhausted is not denied by an estimate.

use std::num::{NonZeroU32, NonZeroU64};

use super::Verdict;
use crate::{clock::Timestamp, saturating::Count};

/// Knowledge of a counter since its last verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastVerdict {
    /// Hits that counted, with the tokens that were charged ahead of their use.
    pub(super) used: u64,
    /// Part of `used` that decays before the end of the window of the verdict.
    pub(super) decaying: u32,
    /// Whether a limit override may have charged a bucket more than the rule's can owe.
    pub(super) is_of_override: bool,
    /// Time of the verdict.
    pub decided_at: Timestamp,
    /// Time at which the counter equals an unused one.
    pub(super) reset_at: Timestamp,
    /// Time at which denied hits would pass; that of the verdict if they passed.
    pub(super) retry_at: Timestamp,
}

impl LastVerdict {
    /// Returns what a verdict leaves to know of a counter that equals an unused one once the verdict is reset.
    pub(super) fn of(verdict: &Verdict, prefetched: u32) -> Self {
        let decided_at = verdict.decided_at;
        Self {
            used: (Count(verdict.used) + verdict.held + u64::from(prefetched)).0,
            decaying: u32::try_from(verdict.decaying).unwrap_or(u32::MAX),
            is_of_override: false,
            decided_at,
            reset_at: decided_at.plus(verdict.reset_after),
            retry_at: decided_at.plus(verdict.retry_after),
        }
    }

    /// Hits that do not decay before the end of the window of the verdict.
    pub(super) const fn current(&self) -> u64 {
        self.used.saturating_sub(self.decaying as u64)
    }

    /// Whether nothing of it counts any more at `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.reset_at <= now
    }
}

/// Hits of a share that corresponds to `used` hits of a limit: it admits the remaining ones, divided by `instances`.
pub(super) fn used_of_share(limit: u64, used: u64, share: u64, instances: NonZeroU32) -> u64 {
    let (remaining, excess) = (Count(limit) - used, Count(used) - limit);
    let used = match excess {
        Count(0) => Count(share) - remaining.0 / NonZeroU64::from(instances),
        Count(excess) => Count(share) + in_proportion(excess, share, limit),
    };
    used.0
}

/// Hits of a share that correspond to `hits` of a limit, rounded up.
pub(super) fn in_proportion(hits: u64, share: u64, limit: u64) -> u64 {
    let part = u128::from(hits).saturating_mul(share.into()).div_ceil(u128::from(limit.max(1)));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::algorithm::{Algorithm, Parameters, Policy};
    use crate::quota::{Quota, Unit, Window};

    #[test]
    fn a_reserve_takes_an_eighth_of_limits_of_8_hits_and_more() {
        let algorithms = [
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::SlidingWindowLog,
            Algorithm::TokenBucket,
        ];
        for algorithm in algorithms {
            for (limit, reduced) in [(0, 0), (1, 1), (7, 7), (8, 7), (166, 146), (800, 700)] {
                let quota = Quota { limit, window: Window::of(Unit::Hour) };
                let policy = Policy::nearest(algorithm, quota, &Parameters::default()).with_reserve();
                assert_eq!(policy.limit(), reduced, "{algorithm:?} of {limit}");
            }
        }
    }
}
