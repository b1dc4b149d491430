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
//! capacity again, a peek included.
//!
//! A raised or lowered rate keeps the debt in time, that is, the fraction of the bucket that is used, up to the capacity (in
//! what follows, with an overdraft: its bound). An operator's override with another rate therefore has a bucket of its own,
//! which is full at once, unless an overdraft, bans or regions need that of the rule. A debt can exceed the capacity for
//! three reasons, which the upper 5 bits of the second word distinguish. Four of them are the *size* of a bucket: the
//! exponent of the least power of four times a constant that is not below its capacity; the constant is chosen so that the
//! size of a day is exact.
//!
//! - The rule's bucket was larger. The debt is within that size, and is reduced to the capacity: no request waits for
//!   longer than the bucket takes to fill.
//! - Limit overrides use the same counter with buckets of their own. The size is then that of the largest one, the state
//!   is marked as theirs by the fifth bit until the debt is paid, and the debt within that size stays: a request with a
//!   smaller bucket does not refill it for one with a larger bucket.
//! - The clock stepped back, so that the debt exceeds the size. It stays as it is, so that nothing is granted twice once
//!   the clock is right again, up to eight times the size. Beyond that, the clock must have been ahead when the state was
//!   written, and the debt is reduced to the capacity.
//!
//! Prefetched tokens are charged ahead of their use. If the bucket were full again before they are spent, as many would
//! pass a second time: it refills no further, while a bucket that is charged when they are spent would refill only then.
//! So a prefetch raises the debt to at least its hold before it adds the tokens: until the hold ends, the debt covers
//! the tokens that are prefetched and not spent, and at any time it is at least the debt of a bucket that is charged when the
//! tokens are spent. Hence no more passes than the capacity and the rate allow. A refund of prefetched tokens returns less
//! the later it comes, and so never what was refilled since.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::{
    Charging, LastVerdict, LimitAlgorithm, Parameters, PolicyError, Prefetch, RESERVED_PART, StateSummary,
    Verdict, Words,
    bucket_state::{
        Bucket, BucketSize, TICKS_MASK, TICKS_PER_MICRO, TICKS_PER_MILLI, TICKS_PER_SECOND, now_in_ticks,
    },
};
use crate::clock::{Timestamp, micros};
use crate::quota::{Quota, Window};
use crate::{descriptor::Hits, saturating::Count};

/// Maximum time to fill a bucket, about 2.8 years: it keeps each sum below 2^53 ticks.
const MAX_FILL_TICKS: u64 = (1 << 53) - (1 << 48);

/// Debt above which a clock that was ahead wrote the state, as a multiple of the size.
const MAX_STEP_BACK_SIZES: u64 = 8;

/// Bucket with a capacity, refilled at the quota's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Ticks to refill one token; `None` if the limit is 0 and the bucket never refills.
    pub(super) emission: Option<NonZeroU64>,
    /// Debt of an empty bucket in ticks.
    pub(super) capacity: Count,
    /// Whether a limit override uses it on the rule's counter.
    pub(super) is_override: bool,
    /// Maximum debt in ticks that hits charged as an overdraft leave: the capacity, without an overdraft.
    pub(super) max_debt: Count,
}

impl TokenBucket {
    /// Whether both refill, at different rates: a state of one is another number of hits in the other.
    pub fn has_other_rate(&self, other: &Self) -> bool {
        self.emission.is_some() && other.emission.is_some() && self.emission != other.emission
    }

    /// Ticks to refill one token; 0 if the bucket never refills.
    pub(crate) fn emission_ticks(&self) -> u64 {
        self.emission.map_or(0, NonZeroU64::get)
    }

    /// Whole tokens that refill in some ticks.
    fn tokens(&self, ticks: Count) -> u64 {
        self.emission.map_or(0, |interval| ticks.0 / interval)
    }

    /// Debt of `amount` tokens.
    fn cost(&self, amount: u64) -> Count {
        self.emission.map_or(Count(u64::MAX), |interval| Count(interval.get()) * amount)
    }

    /// Debt in ticks, and the size of the state.
    fn debt(&self, state: Words, now: Timestamp) -> (Count, BucketSize) {
        let bucket = Bucket::read(state);
        let owed = bucket.owed(now);
        let known = if owed == 0 { BucketSize::default() } else { bucket.size };
        (self.bounded(owed, known), known)
    }

    /// The part of a debt that counts.
    fn bounded(&self, owed: Count, size: BucketSize) -> Count {
        let room = Count(size.room());
        let most = if self.is_override || size.of_override { room.max(self.max_debt) } else { self.max_debt };
        let is_step_back = owed > room.max(most) && owed <= room.max(most) * MAX_STEP_BACK_SIZES;
        if owed <= most || is_step_back { owed } else { most }
    }

    /// The bucket that is full `owed` ticks after `now`, after a use of this one on a state of that size. A size that a
    /// debt exceeds because the clock stepped back is not reduced.
    fn bucket(&self, now: Timestamp, owed: Count, known: BucketSize) -> Bucket {
        if owed == 0 {
            return Bucket { full_at: Count(0), size: BucketSize::default() };
        }
        let full_at = now_in_ticks(now) + owed;
        if owed > self.max_debt.max(Count(known.room())) {
            // Nor is it raised, or the debt would be reduced at the next use.
            return Bucket { full_at, size: known };
        }
        let exponent = BucketSize::exponent_of(self.max_debt.0);
        let of_override = known.of_override || (self.is_override && exponent >= known.exponent);
        let keeps = self.is_override || known.of_override || owed > self.max_debt;
        let size =
            BucketSize { exponent: if keeps { exponent.max(known.exponent) } else { exponent }, of_override };
        Bucket { full_at, size }
    }

    /// Time until `hits` would pass a bucket with that debt, which may exceed the capacity.
    fn retry_after(&self, debt: Count, hits: Hits) -> Duration {
        match self.cost(hits.charged()) {
            cost if cost > self.capacity => Duration::MAX,
            cost => duration(debt + cost - self.capacity),
        }
    }
}

impl LimitAlgorithm for TokenBucket {
    type State = Words;

    /// Holds `burst` tokens and refills the limit in each window. A rate is at most 100 million per second, and it takes at
    /// most 2.8 years to fill.
    fn nearest(quota: Quota, parameters: &Parameters) -> Self {
        let emission = emission_of(quota.limit, Count(ticks_of(quota.window)));
        let ticks = |tokens: Count| (tokens * emission.map_or(0, NonZeroU64::get)).min(Count(MAX_FILL_TICKS));
        let burst = Count(parameters.burst.unwrap_or(quota.word()).into());
        let max_debt = ticks(burst + u64::from(parameters.debt_of(quota)));
        Self { emission, capacity: ticks(burst), max_debt, is_override: false }
    }

    fn check(&self, quota: Quota, parameters: &Parameters) -> Result<(), PolicyError> {
        let emission = Count(self.emission_ticks());
        let burst = Count(parameters.burst.unwrap_or(quota.word()).into());
        let debt = burst + u64::from(parameters.debt_of(quota));
        let window = ticks_of(quota.window);
        match () {
            () if quota.is_wide() => Err(PolicyError::TooLarge),
            () if emission * burst > MAX_FILL_TICKS => Err(PolicyError::TooSlow),
            // A default is not too large, but cut.
            () if parameters.max_debt.is_some() && emission * debt > MAX_FILL_TICKS => {
                Err(PolicyError::TooDeep)
            }
            () if emission * quota.limit - window > window / 100 => Err(PolicyError::TooFast),
            () => Ok(()),
        }
    }

    fn common_parameters(&self) -> Parameters {
        Parameters { overdraft: self.has_bound(), ..Parameters::default() }
    }

    fn with_quota(self, quota: Quota) -> Self {
        Self { is_override: true, ..Self::nearest(quota, &self.common_parameters()) }
    }

    fn limit(&self) -> u64 {
        self.tokens(self.capacity)
    }

    fn apply(&self, state: &mut Words, now: Timestamp, hits: Hits, _charging: Charging) -> bool {
        let (owed, size) = self.debt(*state, now);
        let (admitted, after) = match hits {
            Hits::Peek | Hits::Release(_) | Hits::Settle { .. } => (owed <= self.capacity, owed),
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => match owed + self.cost(amount.get()) {
                charged if charged <= self.capacity => (true, charged),
                _ => (false, owed),
            },
            Hits::Overdraw(amount) => match owed + self.cost(amount.get()) {
                charged if charged <= self.capacity => (true, charged),
                charged => (false, charged.min(self.max_debt).max(owed)),
            },
            Hits::Refund(amount) => (true, owed - self.cost(amount.get())),
            Hits::RefundCharge { amount, made_at } => {
                // The part refilled since the charge is no longer owed.
                let refilled = now_in_ticks(now) - now_in_ticks(made_at);
                (true, owed - (self.cost(amount.get()) - refilled))
            }
        };
        *state = self.bucket(now, after, size).write();
        admitted
    }

    fn verdict(&self, of: StateSummary, now: Timestamp, hits: Hits, admitted: bool, _: Charging) -> Verdict {
        let owed = Bucket::read(of.words()).owed(now);
        let remaining = self.tokens(self.capacity - owed);
        let excess = (owed - self.capacity).0;
        let excess = self.emission.map_or(0, |interval| excess.div_ceil(interval.get()));
        Verdict {
            admitted,
            remaining,
            reset_after: duration(owed),
            retry_after: if admitted { Duration::ZERO } else { self.retry_after(owed, hits) },
            used: (Count(self.limit()) - remaining + excess).0,
            over: match hits {
                _ if admitted => 0,
                Hits::Overdraw(amount) if self.emission.is_some() => excess.min(amount.get()),
                _ => hits.charged(),
            },
            ..Verdict::empty(now)
        }
    }

    fn expires_at(&self, [seconds, word, _]: &Words) -> u32 {
        seconds.saturating_add(u32::from(word & TICKS_MASK > 0))
    }

    fn prefetch(&self, state: &mut Words, now: Timestamp, prefetch: Prefetch) -> u32 {
        let (owed, size) = self.debt(*state, now);
        let held = owed.max(Count(prefetch.hold_millis.into()) * TICKS_PER_MILLI);
        let tokens = prefetch.granted(self.tokens(self.capacity - held));
        if tokens > 0 {
            let after = held + self.cost(u64::from(tokens));
            *state = self.bucket(now, after, size).write();
        }
        tokens
    }

    /// Emission interval and capacity, both in ticks of 10 ns; an interval of 0 is a bucket that never refills. The capacity
    /// of a limit override is negative, and -1 if it is 0.
    fn script_parameters(&self, _store_time: impl FnOnce() -> Timestamp) -> [i64; 2] {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let capacity = signed(self.capacity.0);
        let signed_capacity = if self.is_override { capacity.max(1).saturating_neg() } else { capacity };
        [signed(self.emission_ticks()), signed_capacity]
    }

    fn script_bound(&self) -> u64 {
        self.max_debt.0
    }

    fn has_bound(&self) -> bool {
        self.max_debt > self.capacity
    }

    fn max_debt(&self) -> Option<u64> {
        Some(self.tokens(self.max_debt - self.capacity)).filter(|debt| *debt > 0)
    }

    /// Returns a bucket of this rate with the same capacity in time, but at least one token.
    fn with_limit(self, limit: u64, window: Duration) -> Self {
        debug_assert!(limit == 0 || !window.is_zero(), "the window of a bucket's limit");
        let emission = emission_of(limit, ticks_in(window));
        let capacity = match emission {
            Some(least) if self.capacity > 0 => self.capacity.max(Count(least.get())),
            Some(_) | None => Count(0),
        };
        Self { emission, capacity, max_debt: self.max_debt.max(capacity), ..self }
    }

    /// Returns a bucket with the same capacity in time, and so a share of rate and tokens, but at least one token.
    fn shared_by(self, instances: NonZeroU32) -> Self {
        let longest = NonZeroU64::new(MAX_FILL_TICKS).unwrap_or(NonZeroU64::MAX);
        let emission = self.emission.map(|interval| interval.saturating_mul(instances.into()).min(longest));
        let least = Count(emission.map_or(0, NonZeroU64::get));
        let capacity = if self.capacity == 0 { self.capacity } else { self.capacity.max(least) };
        Self { emission, capacity, max_debt: self.max_debt.max(capacity), ..self }
    }

    fn with_reserve(self) -> Self {
        let part = self.limit() / RESERVED_PART;
        Self { capacity: self.capacity - if part > 0 { self.cost(part) } else { Count(0) }, ..self }
    }

    /// Returns a bucket with the same capacity in time. It may hold less than a token.
    fn region_share(self, share: u32, whole: u32) -> Self {
        let interval = |emission: NonZeroU64| {
            let ticks = u128::from(emission.get()).saturating_mul(whole.into());
            // Rounded up: the rates of all shares add up to at most the whole.
            let ticks = ticks.div_ceil(u128::from(share).max(1)).min(MAX_FILL_TICKS.into());
            NonZeroU64::new(u64::try_from(ticks).unwrap_or(MAX_FILL_TICKS))
        };
        // Without a share it never refills, but may borrow a rate.
        Self { emission: self.emission.filter(|_| share > 0).and_then(interval), ..self }
    }

    /// Time in which an empty bucket is filled, and a debt too.
    fn tail(&self) -> Duration {
        duration(self.max_debt)
    }

    fn can_be_lent(&self) -> bool {
        // The bound of an overdraft is not a part of loans.
        !self.has_bound()
    }

    fn last_verdict(&self, verdict: &Verdict, prefetched: u32) -> LastVerdict {
        let last = LastVerdict::of(verdict, prefetched);
        let refilled_in = duration(self.cost(prefetched.into()).min(Count(MAX_FILL_TICKS)));
        LastVerdict {
            is_of_override: self.is_override || verdict.reset_after > duration(self.max_debt),
            reset_at: last.reset_at.plus(refilled_in),
            ..last
        }
    }

    fn after(&self, _whole: &Self, last: &LastVerdict, _instances: NonZeroU32) -> Option<Words> {
        // A share has the capacity of the whole in time.
        let owed = ticks_in(last.reset_at.since(last.decided_at));
        let (owed, size) = if last.is_of_override {
            (owed, BucketSize { exponent: BucketSize::exponent_of(owed.0), of_override: true })
        } else {
            (owed.min(self.max_debt), BucketSize::default())
        };
        Some(self.bucket(last.decided_at, owed, size).write())
    }

    fn expected_hits(&self, _used: u64, _from: Timestamp, elapsed: Duration) -> u64 {
        self.tokens(ticks_in(elapsed))
    }
}

/// Ticks in which a token refills, of `limit` ones in a window, rounded up.
fn emission_of(limit: u64, window: Count) -> Option<NonZeroU64> {
    window.0.div_ceil(NonZeroU64::new(limit)?.get()).try_into().ok()
}

fn ticks_in(time: Duration) -> Count {
    Count(micros(time)) * TICKS_PER_MICRO
}

/// Ticks of a window.
pub(super) fn ticks_of(window: Window) -> u64 {
    (Count(window.seconds().into()) * TICKS_PER_SECOND).0
}

/// Ticks as a duration, rounded up to a whole microsecond.
const fn duration(ticks: Count) -> Duration {
    Duration::from_micros(ticks.0.div_ceil(TICKS_PER_MICRO))
}
