//! Token bucket that refills continuously, as the generic cell rate algorithm (GCRA).
//!
//! Instead of a level and the time of its last refill, the state is one *theoretical arrival time* (TAT): the time at
//! which the bucket will be full. The time until then is the *debt*; a hit adds one *emission interval* to it, and passes
//! while the debt stays within the capacity. A denied hit costs nothing. Source: ITU-T I.371, "Traffic control and
//! congestion control in B-ISDN", virtual scheduling algorithm.
//!
//! Times are counted in ticks of 10 ns, so that an emission interval, which is rounded up to whole ticks, is at
//! most 0.1 % too long at 100,000 hits per second and 1 % at a million. The state is `[seconds, ticks]` of the
//! TAT since the epoch, exact in Lua's 53 bits because only differences are computed.
//!
//! Hits charged as an overdraft raise the debt beyond the capacity, up to a bound; nothing passes until it is within the
//! capacity again, a look included.
//!
//! A debt above the capacity counts as an empty bucket. A raised or lowered rate keeps the debt in time, that is, the
//! fraction of the bucket that is used. Only charges and refunds change a debt: a read with a smaller capacity, which a
//! limit override may have, must not refill the bucket for a request with a larger one. But after a clock stepped back, a
//! debt may exceed any capacity. So the upper 5 bits of the second word hold the *size* of the largest bucket that was
//! used while there was a debt, and a debt is bounded by the capacity of that size.
//!
//! Reserved tokens are charged ahead of their use. If the bucket were full again before they are spent, as many would
//! pass a second time: it refills no further, while a bucket that is charged when they are spent would refill only then.
//! So a reservation raises the debt to at least its hold before it adds the tokens: until the hold ends, the debt covers
//! the tokens that are reserved and not spent, and at any time it is at least the debt of a bucket that is charged when the
//! tokens are spent. Hence no more passes than the capacity and the rate allow. A refund of reserved tokens returns less
//! the later it comes, and so never what was refilled since.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{PolicyError, Prefetch, Verdict};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

const TICKS_PER_MICRO: u64 = 100;
const TICKS_PER_MILLI: u64 = 1_000 * TICKS_PER_MICRO;
const TICKS_PER_SECOND: u64 = 1_000 * TICKS_PER_MILLI;

/// Maximum time to fill a bucket, about 2.8 years: it keeps each sum below 2^53 ticks.
const MAX_FILL_TICKS: u64 = (1 << 53) - (1 << 48);

/// Capacity of size 0, a 16th of a second; each further size doubles it.
const MIN_SIZE_TICKS: u64 = TICKS_PER_SECOND / 16;

/// Size of the maximum time to fill, which fits 5 bits.
const MAX_SIZE: u32 = 31;

const SIZE_SHIFT: u32 = 27;
const TICKS_MASK: u32 = (1 << SIZE_SHIFT) - 1;

/// Unpacked state.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Theoretical arrival time, in ticks since the epoch.
    full_at: u64,
    /// Size of the largest bucket used since the bucket was last full.
    size: u32,
}

/// Bucket with a capacity, refilled at the quota's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Ticks to refill one token; `None` if the limit is 0 and the bucket never refills.
    emission: Option<NonZeroU64>,
    /// Debt of an empty bucket in ticks.
    capacity: u64,
    /// Maximum debt in ticks that hits charged as an overdraft leave.
    max_debt: u64,
}

impl TokenBucket {
    /// Returns the bucket that holds `burst` tokens and refills `quota.limit` of them in each window. Hits charged as an
    /// overdraft take at most `max_debt` tokens more than it holds.
    ///
    /// # Errors
    /// [`PolicyError`] if it takes longer than 2.8 years to fill, or if its rounded rate differs by more than 1 %.
    pub fn new(quota: Quota, burst: u32, max_debt: u32) -> Result<Self, PolicyError> {
        let bucket = Self::rounded(quota, burst, max_debt);
        let window = u64::from(quota.window.seconds()).saturating_mul(TICKS_PER_SECOND);
        let emission = bucket.emission.map_or(0, NonZeroU64::get);
        let rounded = emission.saturating_mul(u64::from(quota.limit)).saturating_sub(window);
        let total = u64::from(burst).saturating_add(max_debt.into());
        match () {
            () if emission.saturating_mul(u64::from(burst)) > MAX_FILL_TICKS => Err(PolicyError::TooSlow),
            () if emission.saturating_mul(total) > MAX_FILL_TICKS => Err(PolicyError::TooDeep),
            () if rounded > window / 100 => Err(PolicyError::TooFast),
            () => Ok(bucket),
        }
    }

    /// Returns the nearest enforceable bucket: a rate of at most 100 million per second, and at most 2.8 years to fill.
    pub(super) fn rounded(quota: Quota, burst: u32, max_debt: u32) -> Self {
        let window = u64::from(quota.window.seconds()).saturating_mul(TICKS_PER_SECOND);
        let emission = NonZeroU64::new(u64::from(quota.limit)).map(|limit| window.div_ceil(limit.get()));
        let ticks = |tokens: u64| emission.unwrap_or(0).saturating_mul(tokens).min(MAX_FILL_TICKS);
        let max_debt = u64::from(burst).saturating_add(max_debt.into());
        Self {
            emission: emission.and_then(NonZeroU64::new),
            capacity: ticks(burst.into()),
            max_debt: ticks(max_debt),
        }
    }

    /// Returns a bucket with the same capacity in time, and so a share of rate and tokens, but at least one token.
    pub(super) fn shared_by(self, instances: NonZeroU32) -> Self {
        let longest = NonZeroU64::new(MAX_FILL_TICKS).unwrap_or(NonZeroU64::MAX);
        let emission = self.emission.map(|interval| interval.saturating_mul(instances.into()).min(longest));
        let least = emission.map_or(0, NonZeroU64::get);
        let capacity = if self.capacity == 0 { 0 } else { self.capacity.max(least) };
        Self { emission, capacity, max_debt: self.max_debt.max(capacity) }
    }

    /// Capacity in tokens.
    pub(super) fn burst(&self) -> u64 {
        self.emission.map_or(0, |interval| self.capacity / interval)
    }

    /// Debt of an empty bucket in ticks.
    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Maximum debt in ticks that hits charged as an overdraft leave: the capacity, without an overdraft.
    pub(super) const fn max_debt_ticks(&self) -> u64 {
        self.max_debt
    }

    /// Maximum number of tokens that an overdraft takes beyond the capacity.
    pub fn max_debt(&self) -> u64 {
        self.emission.map_or(0, |interval| self.max_debt.saturating_sub(self.capacity) / interval)
    }

    /// Emission interval and capacity, both in ticks of 10 ns; an interval of 0 is a bucket that never refills.
    pub(super) fn script_parameters(&self) -> [u64; 2] {
        [self.emission.map_or(0, NonZeroU64::get), self.capacity]
    }

    /// Debt of `amount` tokens.
    fn cost(&self, amount: u64) -> u64 {
        self.emission.map_or(u64::MAX, |interval| interval.get().saturating_mul(amount))
    }

    pub(super) fn apply(&self, state: &mut [u32; 2], now: Timestamp, hits: Hits) -> bool {
        let (owed, size) = self.debt(*state, now);
        let (admitted, after) = match hits {
            Hits::Peek | Hits::Release(_) => (owed <= self.capacity, owed),
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => {
                match owed.saturating_add(self.cost(amount.get())) {
                    charged if charged <= self.capacity => (true, charged),
                    _ => (false, owed),
                }
            }
            Hits::Overdraw(amount) => match owed.saturating_add(self.cost(amount.get())) {
                charged if charged <= self.capacity => (true, charged),
                charged => (false, charged.min(self.max_debt).max(owed)),
            },
            Hits::Refund(amount) => (true, owed.saturating_sub(self.cost(amount.get()))),
            Hits::RefundCharge { amount, made_at } => {
                // The part refilled since the charge is no longer owed.
                let refilled = now_in_ticks(now).saturating_sub(now_in_ticks(made_at));
                (true, owed.saturating_sub(self.cost(amount.get()).saturating_sub(refilled)))
            }
        };
        *state = Bucket::full_at(now, after, size).write();
        admitted
    }

    pub(super) fn reserve(&self, state: &mut [u32; 2], now: Timestamp, prefetch: Prefetch) -> u32 {
        let (owed, size) = self.debt(*state, now);
        let held = owed.max(u64::from(prefetch.hold_millis).saturating_mul(TICKS_PER_MILLI));
        let remaining = self.emission.map_or(0, |interval| self.capacity.saturating_sub(held) / interval);
        let tokens = prefetch.granted(remaining);
        if tokens > 0 {
            let after = held.saturating_add(self.cost(u64::from(tokens)));
            *state = Bucket::full_at(now, after, size).write();
        }
        tokens
    }

    /// Debt in ticks, and the size of the largest bucket used since the bucket was last full, including this one.
    fn debt(&self, state: [u32; 2], now: Timestamp) -> (u64, u32) {
        let bucket = Bucket::read(state);
        let owed = bucket.owed(now).min(bucket.bound().max(self.max_debt));
        let size = if owed == 0 { 0 } else { bucket.size };
        (owed, size.max(size_of(self.max_debt)))
    }

    pub(super) fn verdict(&self, state: [u32; 2], now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        let owed = Bucket::read(state).owed(now);
        let free = self.capacity.saturating_sub(owed);
        let tokens = |ticks: u64| self.emission.map_or(0, |interval| ticks / interval);
        let excess = owed.saturating_sub(self.capacity);
        let excess = self.emission.map_or(0, |interval| excess.div_ceil(interval.get()));
        Verdict {
            admitted,
            remaining: u32::try_from(tokens(free)).unwrap_or(u32::MAX),
            reset_after: duration(owed),
            retry_after: if admitted { Duration::ZERO } else { self.retry_after(owed, hits) },
            used: tokens(self.capacity).saturating_sub(tokens(free)).saturating_add(excess),
            over: match hits {
                _ if admitted => 0,
                Hits::Overdraw(amount) if self.emission.is_some() => excess.min(amount.get()),
                _ => hits.charged(),
            },
            decided_at: now,
        }
    }

    /// Time until `hits` would pass a bucket with that debt, which may exceed the capacity.
    fn retry_after(&self, debt: u64, hits: Hits) -> Duration {
        match self.cost(hits.charged()) {
            cost if cost > self.capacity => Duration::MAX,
            cost => duration(debt.saturating_add(cost).saturating_sub(self.capacity)),
        }
    }
}

impl Bucket {
    fn read([seconds, word]: [u32; 2]) -> Self {
        let ticks = u64::from(seconds).saturating_mul(TICKS_PER_SECOND);
        Self { full_at: ticks.saturating_add(u64::from(word & TICKS_MASK)), size: word >> SIZE_SHIFT }
    }

    /// Returns the bucket that is full `owed` ticks after `now`.
    fn full_at(now: Timestamp, owed: u64, size: u32) -> Self {
        match owed {
            0 => Self { full_at: 0, size: 0 },
            _ => Self { full_at: now_in_ticks(now).saturating_add(owed), size },
        }
    }

    /// Ticks from `now` until the bucket is full.
    fn owed(self, now: Timestamp) -> u64 {
        self.full_at.saturating_sub(now_in_ticks(now))
    }

    /// Upper bound of the debt of buckets of this size, at most twice the largest possible debt.
    const fn bound(self) -> u64 {
        MIN_SIZE_TICKS << self.size
    }

    fn write(self) -> [u32; 2] {
        let seconds = u32::try_from(self.full_at / TICKS_PER_SECOND).unwrap_or(u32::MAX);
        // The remainder is below 100,000,000, so it fits.
        [seconds, (self.full_at % TICKS_PER_SECOND) as u32 | self.size << SIZE_SHIFT]
    }
}

/// Size of a capacity: the exponent of the least power of two that is not below it.
fn size_of(capacity: u64) -> u32 {
    let steps = capacity.div_ceil(MIN_SIZE_TICKS).max(1);
    steps.next_power_of_two().trailing_zeros().min(MAX_SIZE)
}

/// TAT in seconds since the epoch, rounded up: an unused bucket is full.
pub(super) const fn expires_at([seconds, word]: [u32; 2]) -> u32 {
    seconds.saturating_add((word & TICKS_MASK > 0) as u32)
}

fn now_in_ticks(now: Timestamp) -> u64 {
    now.as_micros().saturating_mul(TICKS_PER_MICRO)
}

/// Ticks as a duration, rounded up to a whole microsecond.
const fn duration(ticks: u64) -> Duration {
    Duration::from_micros(ticks.div_ceil(TICKS_PER_MICRO))
}
