//! The limit that a region enforces: its share of a limit, with what other regions have lent to it, and without what it has
//! lent to them.
//!
//! Loans count in labels: of a window its end, otherwise the second after now. Hits of a window count until the region's
//! last window with that loan ends, whatever the clocks; other loans end at a time.
//!
//! A bucket keeps its capacity in time, so that its rate and its tokens are in proportion to the limit. A limit that is
//! raised at the end of a loan would thus make tokens. So the end is settled in a transaction, which lowers the fill; or,
//! without one, what the bucket has lent lasts as long as the refill of an empty bucket takes after the end, and until the
//! bucket is full. Then it is full as well if its fill had been lowered at the end: with the share r of the limit during the
//! loan, and t ticks after it, its debt would be (1 - r) × (capacity - t) more.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{
    CounterState, Policy, TokenBucket, Verdict,
    queue::MAX_QUEUED,
    token_bucket::{self, TICKS_PER_MICRO, TICKS_PER_SECOND},
};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

/// Share of a limit that a region owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionShare {
    base: u32,
    limit: NonZeroU32,
    /// Ticks in which a bucket of the whole limit emits the limit.
    refill: u64,
}

/// Hits of a counter that a region has borrowed and lent, as its decisions need it: never more than it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoanTotals {
    /// Hits borrowed, and the last label at which they count.
    pub borrowed: Loan,
    /// Hits lent, and the last label at which they are missing.
    pub lent: Loan,
}

/// Hits until a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loan {
    /// Number of hits, or of permits; of a bucket a part of its rate.
    pub hits: u32,
    /// The last label at which they count; 0 for none.
    pub until: u32,
}

impl RegionShare {
    /// Returns the share of `base` hits of a quota; `None` of one without hits.
    pub fn new(quota: Quota, base: u32) -> Option<Self> {
        let limit = NonZeroU32::new(quota.limit)?;
        // As a bucket of the whole limit rounds its emission interval.
        let window = u64::from(quota.window.seconds()).saturating_mul(TICKS_PER_SECOND);
        let refill = window.div_ceil(limit.get().into()).saturating_mul(limit.get().into());
        Some(Self { base: base.min(limit.get()), limit, refill })
    }

    /// Hits that the region owns.
    pub const fn base(&self) -> u32 {
        self.base
    }

    /// Hits of the whole limit.
    pub const fn limit(&self) -> NonZeroU32 {
        self.limit
    }

    /// Ticks in which a bucket of the whole limit emits the limit.
    pub const fn refill(&self) -> u64 {
        self.refill
    }
}

impl Loan {
    const fn at(self, label: u32) -> u32 {
        if label <= self.until { self.hits } else { 0 }
    }
}

impl LoanTotals {
    /// The limit of the region at a label: at most that of all regions.
    pub fn effective(&self, share: &RegionShare, label: u32) -> u32 {
        let owned = share.base.saturating_add(self.borrowed.at(label));
        owned.saturating_sub(self.lent.at(label)).min(share.limit.get())
    }

    /// The second since the epoch after which none of them counts.
    pub const fn expires_at(&self) -> u32 {
        if self.borrowed.until > self.lent.until { self.borrowed.until } else { self.lent.until }
    }

    /// Keeps what a bucket has lent until the second at which it is full.
    pub const fn prolong(&mut self, now: Timestamp, full_at: u32) {
        if self.lent.until > now.seconds() && self.lent.until < full_at {
            self.lent.until = full_at;
        }
    }
}

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
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.with_limit(share).rounded_up()),
            Self::SlidingWindowLog(policy) => {
                Self::SlidingWindowLog(policy.with_limit(share.min(MAX_QUEUED)))
            }
            Self::TokenBucket(policy) => Self::TokenBucket(policy.region_share(share, whole)),
            Self::Concurrency(policy) => Self::Concurrency(policy.with_limit(share.min(MAX_QUEUED))),
        }
    }

    /// Time for which a hit may count after the window, or the time, in which its region had the share that admitted it. A
    /// loan of windows lasts for one further window, or for those of some seconds.
    pub fn tail(&self) -> Duration {
        match self {
            Self::FixedWindow(policy) => policy.tail(),
            Self::SlidingWindow(policy) => policy.length().saturating_mul(3),
            Self::SlidingWindowLog(policy) => policy.window(),
            Self::TokenBucket(policy) => policy.time_to_fill(),
            Self::Concurrency(policy) => policy.lease_ttl(),
        }
    }

    /// Whether regions may lend parts of such a limit to each other.
    pub fn can_be_lent(&self) -> bool {
        match self {
            // The bound of an overdraft is not a part of loans.
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::TokenBucket(_) => !self.has_bound(),
            Self::SlidingWindowLog(_) | Self::Concurrency(_) => false,
        }
    }

    /// Returns this policy of a region's share with another limit.
    #[must_use]
    pub fn under_share(self, share: &RegionShare, effective: u32) -> Self {
        match self {
            Self::FixedWindow(policy) => Self::FixedWindow(policy.with_limit(effective)),
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.with_limit(effective).rounded_up()),
            Self::SlidingWindowLog(policy) => Self::SlidingWindowLog(policy.with_limit(effective)),
            Self::TokenBucket(policy) => Self::TokenBucket(policy.with_refill(share.refill, effective)),
            Self::Concurrency(policy) => Self::Concurrency(policy.with_limit(effective)),
        }
    }

    /// Length of the window in seconds; of a bucket that in which it refills by the limit of `share`. 0 for permits.
    pub fn window_seconds(&self, share: &RegionShare) -> u32 {
        let seconds = match self {
            Self::FixedWindow(policy) => policy.length().as_secs(),
            Self::SlidingWindow(policy) => policy.length().as_secs(),
            Self::SlidingWindowLog(policy) => policy.window().as_secs(),
            Self::TokenBucket(_) => share.refill / TICKS_PER_SECOND,
            Self::Concurrency(_) => 0,
        };
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// Microseconds in which an empty bucket fills, rounded up; 0 for other algorithms.
    pub fn fill_micros(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.capacity().div_ceil(TICKS_PER_MICRO),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingWindowLog(_)
            | Self::Concurrency(_) => 0,
        }
    }

    /// Microseconds since the epoch at which a bucket is full, rounded up; 0 for other algorithms.
    pub fn full_at(&self, state: &CounterState) -> u64 {
        match self {
            Self::TokenBucket(_) => token_bucket::full_at(state.pair()).div_ceil(TICKS_PER_MICRO),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingWindowLog(_)
            | Self::Concurrency(_) => 0,
        }
    }

    /// Makes a bucket full later by some microseconds, but no emptier than empty. Has no effect on others.
    pub fn fill_later(&self, state: &mut CounterState, now: Timestamp, micros: u64) {
        if let Self::TokenBucket(bucket) = self
            && let Some(later) = NonZeroU64::new(micros.saturating_mul(TICKS_PER_MICRO))
        {
            let charge = bucket.with_emission(Some(later));
            state.on_pair(|pair| charge.apply(pair, now, Hits::Overdraw(NonZeroU64::MIN)));
        }
    }

    /// The limit under which a counter of a region was decided: its verdict shows it, but a limit below what is used as that.
    pub fn effective_under(&self, share: &RegionShare, verdict: &Verdict) -> u32 {
        let seen = verdict.used.saturating_add(verdict.remaining.into());
        let effective = match self {
            // The verdict counts tokens, which are in proportion to the rate.
            Self::TokenBucket(bucket) => {
                let ticks = u128::from(seen).saturating_mul(share.refill.into());
                let rate = ticks.checked_div(bucket.capacity().into()).unwrap_or_default();
                u64::try_from(rate).unwrap_or(u64::MAX)
            }
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingWindowLog(_)
            | Self::Concurrency(_) => seen,
        };
        u32::try_from(effective).unwrap_or(u32::MAX).min(share.limit.get())
    }

    /// Label of a charge at `now`: the end of the window that it counts in, or of this second.
    pub fn label(&self, state: &CounterState, now: Timestamp) -> u32 {
        let [first, second, third] = state.words();
        match self {
            Self::FixedWindow(policy) => policy.label([first, second], now),
            Self::SlidingWindow(policy) => policy.label([first, second, third], now),
            Self::SlidingWindowLog(_) | Self::TokenBucket(_) | Self::Concurrency(_) => {
                now.seconds().saturating_add(1)
            }
        }
    }
}

impl TokenBucket {
    /// Returns this bucket with the rate of `limit` hits in `refill` ticks, and the same capacity in time.
    fn with_refill(self, refill: u64, limit: u32) -> Self {
        let ticks = NonZeroU32::new(limit).map(|limit| refill.div_ceil(limit.get().into()));
        self.with_emission(ticks.and_then(NonZeroU64::new))
    }
}
