//! The definition of every algorithm: pure functions of a counter's state, the time and the hits.
//!
//! The memory store runs them directly. The scripts in `lua/decide/` are their twins, and a differential test compares
//! the two. An algorithm is one file here, one file of the same name in `lua/decide/`, and one variant of [`Algorithm`]
//! and of [`Policy`].

pub mod budget;
pub mod concurrency;
pub mod effective_limit;
pub mod fixed_window;
mod last_verdict;
pub mod policy;
pub mod queue;
pub mod sliding_window;
pub mod sliding_window_log;
mod state;
pub mod token_bucket;
mod unused_hits;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::{
    budget::{Budget, Reserve, Unsettled},
    concurrency::Concurrency,
    effective_limit::{Loan, LoanTotals, RegionShare},
    fixed_window::FixedWindow,
    last_verdict::LastVerdict,
    policy::Policy,
    sliding_window::SlidingWindow,
    sliding_window_log::SlidingWindowLog,
    state::{Charging, CounterState, Ledger, LedgerSummary, QueueSummary, StateSummary, Words},
    token_bucket::TokenBucket,
};
use self::{concurrency::DEFAULT_LEASE_TTL, queue::MAX_QUEUED};
use crate::{ban::Ban, clock::Timestamp, descriptor::Hits, quota::Quota, saturating::Count};

/// Maximum step back of the clock in windows, or lifetimes of queued hits, after which the state is kept as it is, so
/// that nothing is granted twice once the clock is right again. A state that is further ahead was written while the clock
/// was ahead: its usage is moved to the present, so that it does not deny for as long as that.
const MAX_STEP_BACK_WINDOWS: u32 = 4;

/// Algorithm of a rule, the value of its `algorithm` key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Counts hits in windows aligned to the epoch, as envoyproxy/ratelimit does.
    #[default]
    FixedWindow,
    /// Counts hits in such windows, and those of the previous window in part.
    SlidingWindow,
    /// Logs each hit with its time.
    SlidingWindowLog,
    /// Keeps a bucket of tokens that refills continuously.
    TokenBucket,
    /// Limits the number of requests in flight.
    Concurrency,
    /// A fixed window with reservations: not a value of the key, but that of a limit with `reserve`.
    Budget,
}

impl Algorithm {
    /// Every value of the key.
    pub const ALL: [Self; 5] = [
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingWindowLog,
        Self::TokenBucket,
        Self::Concurrency,
    ];

    /// Value of the `algorithm` key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow | Self::Budget => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::TokenBucket => "token_bucket",
            Self::Concurrency => "concurrency",
        }
    }

    /// Number that marks the algorithm's counters in a store: below 16, never reused. In a packed cell, kinds of 8 and
    /// above have three words, the others two. The number after a kind of three words marks counters with large words, so
    /// those kinds are even.
    pub const fn kind(self) -> u8 {
        match self {
            Self::FixedWindow => 0,
            Self::TokenBucket => 1,
            Self::SlidingWindowLog => 2,
            Self::Concurrency => 3,
            Self::Budget => 6,
            Self::SlidingWindow => 8,
        }
    }

    /// Whether each counter has a key of its own in a store because its size varies with its use.
    pub const fn has_own_key(self) -> bool {
        matches!(self, Self::SlidingWindowLog | Self::Concurrency | Self::Budget)
    }

    /// Whether each hit is stored, so that a limit is bounded.
    pub const fn stores_hits(self) -> bool {
        matches!(self, Self::SlidingWindowLog | Self::Concurrency)
    }

    /// Whether requests charge it under a lease, which is released or settled later.
    pub const fn takes_leases(self) -> bool {
        matches!(self, Self::Concurrency | Self::Budget)
    }

    /// Whether a hit is a permit that the request holds until it ends, instead of a count in a window. Such a limit has no
    /// window to report, and its permits are returned by their lease.
    pub const fn holds_permits(self) -> bool {
        matches!(self, Self::Concurrency)
    }

    /// The algorithm that a limit states.
    #[must_use]
    pub const fn stated(self) -> Self {
        match self {
            Self::Budget => Self::FixedWindow,
            algorithm => algorithm,
        }
    }

    /// Returns the algorithm of a limit override that matches no rule, given that this one is the domain's default:
    /// permits need a rule by which they are returned.
    #[must_use]
    pub const fn without_rule(self) -> Self {
        if self.holds_permits() { Self::FixedWindow } else { self }
    }

    /// Whether an instance may charge a counter ahead and decide from prefetched tokens. A log needs the time of each hit,
    /// and a permit is held for as long as its request lasts.
    pub const fn can_be_leased(self) -> bool {
        matches!(self, Self::FixedWindow | Self::SlidingWindow | Self::TokenBucket)
    }
}

/// Parameters besides the quota; each is ignored by the algorithms that do not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Capacity of a token bucket in hits; the limit if absent.
    pub burst: Option<u32>,
    /// Minimum time between two requests admitted by an exact log; zero disables it.
    pub min_interval: Duration,
    /// Time after which a permit of a concurrency limit that was not returned expires.
    pub lease_ttl: Duration,
    /// Whether charges count beyond the limit.
    pub overdraft: bool,
    /// Number of hits that an overdraft of a bucket, or of a window with a carry, takes beyond the limit at most; the limit
    /// if absent.
    pub max_debt: Option<u32>,
    /// Whether hits beyond the limit of a fixed window with an overdraft count in the next windows.
    pub carry: bool,
    /// Share of the unused hits of a fixed window that raises the next one, in percent.
    pub unused_percent: u8,
    /// Terms of the reservations of a fixed window, if it has any.
    pub reserve: Option<Reserve>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            burst: None,
            min_interval: Duration::ZERO,
            lease_ttl: DEFAULT_LEASE_TTL,
            overdraft: false,
            max_debt: None,
            carry: false,
            unused_percent: 0,
            reserve: None,
        }
    }
}

/// Error of a quota that an algorithm cannot enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A bucket that takes too long to fill.
    #[error("expected a burst that refills within 2.8 years at this rate")]
    TooSlow,
    /// A debt that takes too long to refill.
    #[error("expected a max_debt that refills within 2.8 years at this rate, together with the burst")]
    TooDeep,
    /// A bucket whose emission interval is so short that rounding changes the rate by more than 1 %.
    #[error("expected a token bucket rate that is exact within 1 %: at most about a million per second")]
    TooFast,
    /// A limit with more bits than the algorithm's state has for it.
    #[error("expected a limit of at most 4294967295, or `fixed_window` without `carry` and `reserve`")]
    TooLarge,
    /// A log or a list of leases that would be too long.
    #[error("expected a limit of at most {MAX_QUEUED}, since this algorithm stores each hit")]
    TooMany,
    /// A minimum interval longer than the window: a request that waits for it would find an empty log.
    #[error("expected a min_interval that is no longer than the window")]
    TooRare,
}

impl Parameters {
    /// Maximum number of hits beyond the limit of `quota`.
    fn debt_of(&self, quota: Quota) -> u32 {
        if self.overdraft { self.max_debt.unwrap_or(quota.word()) } else { 0 }
    }
}

/// Result of a decision on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the hits pass. A read passes unless the counter is over its limit.
    pub admitted: bool,
    /// Hits that would still pass now.
    pub remaining: u64,
    /// Time until the counter equals an unused one.
    pub reset_after: Duration,
    /// Time until the same hits would pass: zero if they passed, [`Duration::MAX`] if they never can.
    pub retry_after: Duration,
    /// Hits that count now, without those that are held.
    pub used: u64,
    /// Part of `used` that decays before the present aligned window ends: in a sliding window, hits of the previous one.
    pub decaying: u64,
    /// Hits that open leases of a budget hold.
    pub held: u64,
    /// Number of the charged hits that exceed the limit; 0 if they passed.
    pub over: u64,
    /// Time of the decision.
    pub decided_at: Timestamp,
    /// The active ban of the counter, if any.
    pub ban: Option<Ban>,
}

impl Verdict {
    /// A denial in which all numbers and times are 0.
    pub const fn empty(decided_at: Timestamp) -> Self {
        Self {
            admitted: false,
            remaining: 0,
            reset_after: Duration::ZERO,
            retry_after: Duration::ZERO,
            used: 0,
            decaying: 0,
            held: 0,
            over: 0,
            decided_at,
            ban: None,
        }
    }

    /// Returns the verdict on `hits` under a ban: a denial until its end if the ban is enforced. A refund is never denied.
    #[must_use]
    pub fn under(self, ban: Ban, hits: Hits) -> Self {
        if !ban.is_enforced || hits.is_refund() {
            return Self { ban: Some(ban), ..self };
        }
        let left = ban.ends_at().since(self.decided_at);
        Self {
            admitted: false,
            remaining: 0,
            reset_after: left,
            retry_after: left,
            over: hits.charged(),
            ban: Some(ban),
            ..self
        }
    }

    /// Whether hits were to be reserved under a known lease that does not hold them: because it was settled or has ended, or
    /// holds fewer.
    pub fn has_conflict(&self) -> bool {
        // Of all denials of hits, this one alone exceeds no limit.
        !self.admitted && self.over == 0 && self.retry_after == Duration::MAX
    }

    /// Returns the verdict as of `elapsed` later, given that the counter is not used in between.
    #[must_use]
    pub fn later(self, elapsed: Duration) -> Self {
        let left = |time: Duration| if time == Duration::MAX { time } else { time.saturating_sub(elapsed) };
        Self {
            reset_after: left(self.reset_after),
            retry_after: left(self.retry_after),
            decided_at: self.decided_at.plus(elapsed),
            ..self
        }
    }
}

/// Fraction of the requested tokens, as a divisor, below which a grant is not worth its risk.
const MIN_GRANT_DIVISOR: u32 = 2;

/// Request of an instance to charge tokens ahead of its own use, to be spent without another call to the store.
///
/// Prefetched tokens are charged like any hits, so that no limit is exceeded however they are spent, provided that they
/// are spent in time: within the requested hold, and by [`Policy::prefetched_until`]. Tokens that are not spent by then are
/// refunded by [`Hits::RefundCharge`] as of the time of the prefetch, or are lost to all instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetch {
    /// Maximum number of tokens; 0 requests none.
    pub max_tokens: u32,
    /// Maximum share of the remaining hits, in 65536ths.
    pub share: u16,
    /// Time for which the tokens are held, in milliseconds.
    pub hold_millis: u16,
}

impl Prefetch {
    /// Number of tokens granted while `remaining` hits remain. Zero shortly before the limit: the last hits would be held
    /// by one instance while another one denies.
    fn granted(self, remaining: u64) -> u32 {
        let share = (Count(remaining) * u64::from(self.share)).0 >> u16::BITS;
        let tokens = Count(share).word().min(self.max_tokens);
        if tokens < self.max_tokens / MIN_GRANT_DIVISOR { 0 } else { tokens }
    }
}
