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
//! A debt above the capacity (a capacity that was lowered, a clock that stepped back) counts as an empty
//! bucket. A raised or lowered rate keeps the debt in time, that is, the fraction of the bucket that is used.

use std::{num::NonZeroU64, time::Duration};

use super::{PolicyError, Verdict};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

const TICKS_PER_MICRO: u64 = 100;
const TICKS_PER_SECOND: u64 = 1_000_000 * TICKS_PER_MICRO;

/// The longest time that a bucket may take to fill: what keeps every sum below 2^53 ticks, about 2.8 years.
const MAX_FILL_TICKS: u64 = (1 << 53) - (1 << 48);

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

    /// Emission interval and capacity, both in ticks of 10 ns; an interval of 0 means that no token ever comes.
    pub(super) fn script_parameters(&self) -> [u64; 2] {
        [self.emission.map_or(0, NonZeroU64::get), self.capacity]
    }

    /// Ticks that `now` is away from the moment when the bucket is full.
    fn debt(&self, state: [u32; 2], now: Timestamp) -> u64 {
        let full = ticks(state[0], u64::from(state[1]));
        full.saturating_sub(now_in_ticks(now)).min(self.capacity)
    }

    /// The debt of `amount` tokens.
    fn cost(&self, amount: u64) -> u64 {
        self.emission.map_or(u64::MAX, |interval| interval.get().saturating_mul(amount))
    }

    pub(super) fn apply(&self, state: &mut [u32; 2], now: Timestamp, hits: Hits) -> bool {
        let debt = self.debt(*state, now);
        let (admitted, after) = match hits {
            Hits::Peek | Hits::Release(_) => (true, debt),
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => {
                match debt.saturating_add(self.cost(amount.get())) {
                    charged if charged <= self.capacity => (true, charged),
                    _ => (false, debt),
                }
            }
            Hits::Refund(amount) => (true, debt.saturating_sub(self.cost(amount.get()))),
            Hits::Undo { amount, until } => {
                // What has been refilled since is no debt any more.
                let owed = now_in_ticks(until).saturating_sub(now_in_ticks(now));
                (true, debt.saturating_sub(self.cost(amount.get()).min(owed)))
            }
        };
        *state = full_at(now, after);
        admitted
    }

    pub(super) fn verdict(&self, state: [u32; 2], now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        let debt = self.debt(state, now);
        let free = self.capacity.saturating_sub(debt);
        let tokens = |ticks: u64| self.emission.map_or(0, |interval| ticks / interval);
        Verdict {
            admitted,
            remaining: u32::try_from(tokens(free)).unwrap_or(u32::MAX),
            reset_after: duration(debt),
            retry_after: if admitted { Duration::ZERO } else { self.retry_after(debt, hits) },
            used: tokens(self.capacity).saturating_sub(tokens(free)),
            over: if admitted { 0 } else { hits.charged() },
            counts_until: Timestamp::from_micros(ticks(state[0], u64::from(state[1])) / TICKS_PER_MICRO),
        }
    }

    /// Until `hits` pass a bucket with that debt.
    fn retry_after(&self, debt: u64, hits: Hits) -> Duration {
        match self.cost(hits.charged()) {
            cost if cost > self.capacity => Duration::MAX,
            cost => duration(debt.saturating_add(cost).saturating_sub(self.capacity)),
        }
    }
}

/// A bucket is full at its TAT.
pub(super) const fn expires_at(state: [u32; 2]) -> u32 {
    state[0].saturating_add((state[1] > 0) as u32)
}

fn ticks(seconds: u32, ticks: u64) -> u64 {
    u64::from(seconds).saturating_mul(TICKS_PER_SECOND).saturating_add(ticks)
}

fn now_in_ticks(now: Timestamp) -> u64 {
    now.as_micros().saturating_mul(TICKS_PER_MICRO)
}

/// The state of a bucket that is full `debt` ticks after `now`.
fn full_at(now: Timestamp, debt: u64) -> [u32; 2] {
    let full = now_in_ticks(now).saturating_add(debt);
    let seconds = u32::try_from(full / TICKS_PER_SECOND).unwrap_or(u32::MAX);
    // Below 100,000,000, so the remainder fits.
    [seconds, (full % TICKS_PER_SECOND) as u32]
}

/// Ticks as a duration, rounded up to a whole microsecond.
const fn duration(ticks: u64) -> Duration {
    Duration::from_micros(ticks.div_ceil(TICKS_PER_MICRO))
}
