//! A bucket of tokens that refills continuously, as the generic cell rate algorithm (GCRA).
//!
//! Instead of a level and the time of its last refill, the state is one *theoretical arrival time* (TAT): when
//! the bucket will be full. Being `debt` away from full, a hit costs one *emission interval* of debt, and
//! passes while the debt stays within the capacity. Source: ITU-T I.371, "Traffic control and congestion
//! control in B-ISDN", virtual scheduling algorithm. A denied hit costs nothing.
//!
//! Times are counted in ticks of 10 ns, so that an emission interval, which is rounded up to whole ticks, is at
//! most 0.1 % too long at 100,000 hits per second and 1 % at a million. The state is `[seconds, ticks]` of the
//! TAT since the epoch, exact in Lua's 53 bits because only differences are computed.
//!
//! A debt above the capacity counts as an empty bucket. A raised or lowered rate keeps the debt in time, that is,
//! the fraction of the bucket that is used. Only what is charged or given back changes a debt: one who looks with a
//! smaller capacity, as a limit that a request brings along may have, must not fill the bucket for one with a larger.
//! But a clock that stepped back may have left a debt that no capacity explains. So the upper 5 bits of the second
//! word keep the *size* of the largest bucket that was asked while there was a debt, and a debt is cut to what that
//! size can owe.
//!
//! Tokens that are reserved are charged ahead of their use. If the bucket were full again before they are spent, as
//! many would pass a second time: it refills no further, while a bucket that was charged when they are spent would
//! refill only then. So a reservation makes the bucket owe at least its hold before the tokens: until the hold is over
//! it owes at least what is reserved and not spent, and always at least what a bucket would owe that was charged when
//! the tokens are spent. What such a bucket admits is what passes: no more than the capacity and what the rate
//! gives. Giving tokens back as an undo returns the less the later it comes, and so never what was refilled since.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{PolicyError, Prefetch, Verdict};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

const TICKS_PER_MICRO: u64 = 100;
const TICKS_PER_MILLI: u64 = 1_000 * TICKS_PER_MICRO;
const TICKS_PER_SECOND: u64 = 1_000 * TICKS_PER_MILLI;

/// The longest time that a bucket may take to fill: what keeps every sum below 2^53 ticks, about 2.8 years.
const MAX_FILL_TICKS: u64 = (1 << 53) - (1 << 48);

/// Sizes are powers of two times so many ticks: a 16th of a second.
const SMALLEST: u64 = TICKS_PER_SECOND / 16;

/// The size of the longest time to fill, which 5 bits hold.
const LARGEST_SIZE: u32 = 31;

const SIZE_SHIFT: u32 = 27;
const TICKS_MASK: u32 = (1 << SIZE_SHIFT) - 1;

/// A state, taken apart.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The theoretical arrival time, in ticks since the epoch.
    full_at: u64,
    /// The size of the largest bucket that was asked since it was last full.
    size: u32,
}

/// Tokens up to a capacity, refilled at the quota's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Ticks that refill one token; `None` when the limit is 0 and none ever comes.
    emission: Option<NonZeroU64>,
    /// Ticks of debt that an empty bucket has.
    capacity: u64,
}

impl TokenBucket {
    /// The bucket that holds `burst` tokens and refills `quota.limit` of them each window.
    ///
    /// # Errors
    /// [`PolicyError`] when filling it takes longer than 2.8 years, or its rate can't be met.
    pub fn new(quota: Quota, burst: u32) -> Result<Self, PolicyError> {
        let bucket = Self::rounded(quota, burst);
        let window = u64::from(quota.window.seconds()).saturating_mul(TICKS_PER_SECOND);
        let emission = bucket.emission.map_or(0, NonZeroU64::get);
        let rounded = emission.saturating_mul(u64::from(quota.limit)).saturating_sub(window);
        match () {
            () if emission.saturating_mul(u64::from(burst)) > MAX_FILL_TICKS => Err(PolicyError::TooSlow),
            () if rounded > window / 100 => Err(PolicyError::TooFast),
            () => Ok(bucket),
        }
    }

    /// The bucket that comes nearest: no rate is above 100 million per second, and no bucket takes longer to fill
    /// than 2.8 years.
    pub(super) fn rounded(quota: Quota, burst: u32) -> Self {
        let window = u64::from(quota.window.seconds()).saturating_mul(TICKS_PER_SECOND);
        let emission = NonZeroU64::new(u64::from(quota.limit)).map(|limit| window.div_ceil(limit.get()));
        let capacity = emission.unwrap_or(0).saturating_mul(u64::from(burst)).min(MAX_FILL_TICKS);
        Self { emission: emission.and_then(NonZeroU64::new), capacity }
    }

    /// A bucket that refills so many times slower, and holds so many times less but at least one token.
    pub(super) fn shared_by(self, shares: NonZeroU32) -> Self {
        let longest = NonZeroU64::new(MAX_FILL_TICKS).unwrap_or(NonZeroU64::MAX);
        let emission = self.emission.map(|interval| interval.saturating_mul(shares.into()).min(longest));
        let least = emission.map_or(0, NonZeroU64::get);
        Self { emission, capacity: if self.capacity == 0 { 0 } else { self.capacity.max(least) } }
    }

    /// Tokens that it holds when it is full.
    pub(super) fn burst(&self) -> u64 {
        self.emission.map_or(0, |interval| self.capacity / interval)
    }

    /// Emission interval and capacity, both in ticks of 10 ns; an interval of 0 means that no token ever comes.
    pub(super) fn script_parameters(&self) -> [u64; 2] {
        [self.emission.map_or(0, NonZeroU64::get), self.capacity]
    }

    /// The debt of `amount` tokens.
    fn cost(&self, amount: u64) -> u64 {
        self.emission.map_or(u64::MAX, |interval| interval.get().saturating_mul(amount))
    }

    pub(super) fn apply(&self, state: &mut [u32; 2], now: Timestamp, hits: Hits) -> bool {
        let (owed, size) = self.debt(*state, now);
        let (admitted, after) = match hits {
            Hits::Peek | Hits::Release(_) => (true, owed),
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => {
                match owed.saturating_add(self.cost(amount.get())) {
                    charged if charged <= self.capacity => (true, charged),
                    _ => (false, owed),
                }
            }
            Hits::Refund(amount) => (true, owed.saturating_sub(self.cost(amount.get()))),
            Hits::Undo { amount, made_at } => {
                // What has been refilled since is owed no more.
                let refilled = now_in_ticks(now).saturating_sub(now_in_ticks(made_at));
                (true, owed.saturating_sub(self.cost(amount.get()).saturating_sub(refilled)))
            }
        };
        *state = Bucket::full_at(now, after, size).write();
        admitted
    }

    pub(super) fn reserve(&self, state: &mut [u32; 2], now: Timestamp, wish: Prefetch) -> u32 {
        let (owed, size) = self.debt(*state, now);
        let held = owed.max(u64::from(wish.hold_millis).saturating_mul(TICKS_PER_MILLI));
        let remaining = self.emission.map_or(0, |interval| self.capacity.saturating_sub(held) / interval);
        let tokens = wish.granted(remaining);
        if tokens > 0 {
            let after = held.saturating_add(self.cost(u64::from(tokens)));
            *state = Bucket::full_at(now, after, size).write();
        }
        tokens
    }

    /// The ticks that are owed, and the size of the largest bucket that was asked since it was last full, this one
    /// included.
    fn debt(&self, state: [u32; 2], now: Timestamp) -> (u64, u32) {
        let bucket = Bucket::read(state);
        let owed = bucket.owed(now).min(bucket.bound().max(self.capacity));
        let size = if owed == 0 { 0 } else { bucket.size };
        (owed, size.max(size_of(self.capacity)))
    }

    pub(super) fn verdict(&self, state: [u32; 2], now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        let owed = Bucket::read(state).owed(now);
        let free = self.capacity.saturating_sub(owed);
        let tokens = |ticks: u64| self.emission.map_or(0, |interval| ticks / interval);
        Verdict {
            admitted,
            remaining: u32::try_from(tokens(free)).unwrap_or(u32::MAX),
            reset_after: duration(owed),
            retry_after: if admitted { Duration::ZERO } else { self.retry_after(owed, hits) },
            used: tokens(self.capacity).saturating_sub(tokens(free)),
            over: if admitted { 0 } else { hits.charged() },
            decided_at: now,
        }
    }

    /// Until `hits` pass a bucket with that debt, which may be above the capacity.
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

    /// The bucket that is full `owed` ticks after `now`.
    fn full_at(now: Timestamp, owed: u64, size: u32) -> Self {
        match owed {
            0 => Self { full_at: 0, size: 0 },
            _ => Self { full_at: now_in_ticks(now).saturating_add(owed), size },
        }
    }

    /// Ticks from `now` until it is full.
    fn owed(self, now: Timestamp) -> u64 {
        self.full_at.saturating_sub(now_in_ticks(now))
    }

    /// The most ticks that a bucket of its size can owe, and up to as many more.
    const fn bound(self) -> u64 {
        SMALLEST << self.size
    }

    fn write(self) -> [u32; 2] {
        let seconds = u32::try_from(self.full_at / TICKS_PER_SECOND).unwrap_or(u32::MAX);
        // Below 100,000,000, so the remainder fits.
        [seconds, (self.full_at % TICKS_PER_SECOND) as u32 | self.size << SIZE_SHIFT]
    }
}

/// The size that stands for a capacity: the exponent of the power of two that has room for it.
fn size_of(capacity: u64) -> u32 {
    let steps = capacity.div_ceil(SMALLEST).max(1);
    steps.next_power_of_two().trailing_zeros().min(LARGEST_SIZE)
}

/// A bucket is full at its TAT.
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
