//! Knowledge of a counter of a store that failed, and the parts of its usage that a share has.

use std::num::{NonZeroU32, NonZeroU64};

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
