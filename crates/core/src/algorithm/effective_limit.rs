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

use std::num::{NonZeroU32, NonZeroU64};

use super::bucket_state::{Bucket, TICKS_PER_MICRO, TICKS_PER_SECOND};
use super::{
    Charging, CounterState, LimitAlgorithm, Policy, State, TokenBucket, Verdict, token_bucket::ticks_of,
    with_algorithm,
};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota, saturating::Count};

/// Share of a limit that a region owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionShare {
    /// Hits that the region owns.
    pub base: u32,
    /// Hits of the whole limit.
    pub limit: NonZeroU32,
    /// Ticks in which a bucket of the whole limit emits the limit.
    pub refill: u64,
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
    /// Returns the share of `base` hits of a quota; `None` of one without hits, or of more than 32 bits.
    pub fn new(quota: Quota, base: u32) -> Option<Self> {
        let limit = NonZeroU32::new(u32::try_from(quota.limit).ok()?)?;
        // As a bucket of the whole limit rounds its emission interval.
        let hits = u64::from(limit.get());
        let refill = Count(ticks_of(quota.window).div_ceil(hits)) * hits;
        Some(Self { base: base.min(limit.get()), limit, refill: refill.0 })
    }

    /// Returns the policy of the region with this limit in place of its share.
    #[must_use]
    pub fn under(&self, policy: Policy, effective: u32) -> Policy {
        match policy {
            Policy::TokenBucket(policy) => {
                let ticks = NonZeroU32::new(effective).map(|limit| self.refill.div_ceil(limit.get().into()));
                Policy::TokenBucket(TokenBucket { emission: ticks.and_then(NonZeroU64::new), ..policy })
            }
            policy => policy.region_share(effective, self.limit.get()),
        }
    }

    /// Length of the window in seconds; of a bucket that in which it refills by the whole limit. 0 without windows.
    pub fn window_seconds(&self, policy: &Policy) -> u32 {
        let seconds = match policy {
            Policy::TokenBucket(_) => self.refill / TICKS_PER_SECOND,
            policy => policy.length().as_secs(),
        };
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// The limit under which a counter of a region was decided: its verdict shows it, but a limit below what is used as that.
    pub fn effective_in(&self, policy: &Policy, verdict: &Verdict) -> u32 {
        let Count(seen) = Count(verdict.used) + verdict.remaining;
        let effective = match policy {
            // The verdict counts tokens, which are in proportion to the rate.
            Policy::TokenBucket(bucket) => {
                let ticks = u128::from(seen).saturating_mul(self.refill.into());
                let rate = ticks.checked_div(bucket.capacity.0.into()).unwrap_or_default();
                u64::try_from(rate).unwrap_or(u64::MAX)
            }
            _ => seen,
        };
        u32::try_from(effective).unwrap_or(u32::MAX).min(self.limit.get())
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

/// Microseconds in which an empty bucket fills, rounded up; 0 for other algorithms.
pub fn fill_micros(policy: &Policy) -> u64 {
    if let Policy::TokenBucket(bucket) = policy { bucket.capacity.0.div_ceil(TICKS_PER_MICRO) } else { 0 }
}

/// Microseconds since the epoch at which a bucket is full, rounded up; 0 for other algorithms.
pub fn full_at(policy: &Policy, counter: &CounterState) -> u64 {
    let is_bucket = matches!(policy, Policy::TokenBucket(_));
    if is_bucket { Bucket::read(counter.words()).full_at.0.div_ceil(TICKS_PER_MICRO) } else { 0 }
}

/// Makes a bucket full later by some microseconds, but no emptier than empty. Has no effect on others.
pub fn fill_later(policy: &Policy, counter: &mut CounterState, now: Timestamp, micros: u64) {
    if let Policy::TokenBucket(bucket) = policy
        && let Some(later) = NonZeroU64::new((Count(micros) * TICKS_PER_MICRO).0)
    {
        let charge = TokenBucket { emission: Some(later), ..*bucket };
        let hits = Hits::Overdraw(NonZeroU64::MIN);
        State::update(counter, |state| charge.apply(state, now, hits, Charging::Independent));
    }
}

/// Label of a charge at `now`: the end of the window that it counts in, or of this second.
pub fn label(policy: &Policy, counter: &CounterState, now: Timestamp) -> u32 {
    with_algorithm!(policy, algorithm => algorithm.label(State::read(counter).unwrap_or(&Default::default()), now))
}
