//! The definition of every algorithm: pure functions of a counter's state, the time and the hits.
//!
//! An algorithm is one file here, which implements [`LimitAlgorithm`], one line of `algorithms!`, and one file of the same
//! name in `lua/decide/`. The memory store runs the definition directly; the Lua scripts are its twins, and a differential
//! test compares the two.

use std::time::Duration;

pub mod bucket_state;
pub mod budget;
pub mod concurrency;
pub mod effective_limit;
pub mod fixed_window;
mod last_verdict;
mod ledger;
mod limit_algorithm;
mod parameters;
mod policy;
pub mod queue;
pub mod sliding_window;
pub mod sliding_window_log;
mod state;
#[cfg(test)]
mod tests;
pub mod token_bucket;
pub mod unused_hits;

pub use self::effective_limit::{Loan, LoanTotals, RegionShare};
pub use self::ledger::{Ledger, LedgerSummary};
pub use self::parameters::{DEFAULT_LEASE_TTL, Parameters, PolicyError, Reserve, Unsettled};
pub use self::state::{CounterState, State, StateSummary, Words};
pub use self::{last_verdict::LastVerdict, limit_algorithm::LimitAlgorithm, queue::QueueSummary};

// For the files of this folder.
use self::last_verdict::{in_proportion, used_of_share};
use self::ledger::{Lease, LeaseState};
use self::limit_algorithm::{RESERVED_PART, in_proportion_of_time};
use self::queue::{MAX_QUEUED, Queue};
use self::state::StateShape;
use crate::{ban::Ban, clock::Timestamp, descriptor::Hits, quota::Quota, saturating::Count};

/// Defines the algorithms, each with its module, the number that marks its records in a store, and the value of the `algorithm`
/// key or the algorithm that a limit states instead; and the other kinds of records.
macro_rules! algorithms {
    (
        $dollar:tt
        algorithms {
            $(
                $(#[$doc:meta])*
                $name:ident in $module:ident = $number:literal $(named $key:literal)? $(stated $stated:ident)?,
            )+
        }
        other_records { $($(#[doc = $meaning:literal])+ $other:ident = $other_number:literal,)+ }
    ) => {
        $(pub use self::$module::$name;)+

        /// Algorithm of a rule, the value of its `algorithm` key.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($(#[$doc])* $name,)+
        }

        impl Algorithm {
            /// Every value of the key.
            pub const ALL: [Self; [$($($key,)?)+].len()] = [$($({ let _ = $key; Self::$name },)?)+];

            /// Value of the `algorithm` key.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$name => $key,)? $(Self::$name => Self::$stated.name(),)?)+
                }
            }

            /// The algorithm that a limit states.
            #[must_use]
            pub const fn stated(self) -> Self {
                match self {
                    $($(Self::$name => Self::$stated,)?)+
                    algorithm => algorithm,
                }
            }

            /// Kind of the records of its counters.
            pub const fn kind(self) -> RecordKind {
                match self {
                    $(Self::$name => RecordKind::$name,)+
                }
            }

            const fn shape(self) -> StateShape {
                match self {
                    $(Self::$name => <$name as LimitAlgorithm>::State::SHAPE,)+
                }
            }

            fn nearest(self, quota: Quota, parameters: &Parameters) -> Policy {
                match self {
                    $(Self::$name => $name::nearest(quota, parameters).into(),)+
                }
            }
        }

        /// Content of a record of a store, by the number that marks it: below 16, never reused. In a packed cell, kinds of 8
        /// and above have three words, the others two. The number after an even kind of three words marks the same records
        /// with large words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum RecordKind {
            $(#[doc = concat!("Counter of [`", stringify!($name), "`].")] $name = $number,)+
            $($(#[doc = $meaning])+ $other = $other_number,)+
        }

        impl RecordKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)+ $(Self::$other,)+];

            /// Content of such a record, for documentation.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!(" Counter of `", stringify!($name), "`."),)+
                    $(Self::$other => concat!($($meaning),+),)+
                }
            }
        }

        /// An algorithm with its parameters: the input of a decision besides state, time and hits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Policy {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)+
        }

        impl Policy {
            /// The algorithm without its parameters.
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$name(_) => Algorithm::$name,)+
                }
            }
        }

        $(
            impl From<$name> for Policy {
                fn from(algorithm: $name) -> Self {
                    Self::$name(algorithm)
                }
            }
        )+

        /// Evaluates an expression with the algorithm of a policy.
        macro_rules! with_algorithm {
            ($dollar policy:expr, $dollar algorithm:ident => $dollar work:expr) => {
                match $dollar policy {
                    $(Policy::$name($dollar algorithm) => $dollar work,)+
                }
            };
        }
        use with_algorithm;
    };
}

algorithms! {
    $
    algorithms {
        /// Counts hits in windows aligned to the epoch, as envoyproxy/ratelimit does.
        #[default]
        FixedWindow in fixed_window = 0 named "fixed_window",
        /// Counts hits in such windows, and those of the previous window in part.
        SlidingWindow in sliding_window = 8 named "sliding_window",
        /// Logs each hit with its time.
        SlidingWindowLog in sliding_window_log = 2 named "sliding_window_log",
        /// Keeps a bucket of tokens that refills continuously.
        TokenBucket in token_bucket = 1 named "token_bucket",
        /// Limits the number of requests in flight.
        Concurrency in concurrency = 3 named "concurrency",
        /// A fixed window with reservations: not a value of the key, but the algorithm of a limit with `reserve`.
        Budget in budget = 6 stated FixedWindow,
    }
    other_records {
        /// Hits that a region has borrowed of a counter.
        Borrowed = 4,
        /// Hits that a region has lent of a counter.
        Lent = 5,
        /// Counter of a sliding window with more than 65,535 hits.
        LargeSlidingWindow = 9,
        /// Bans of a counter. An odd number above 8, so that the words have 32 bits; the number before it is not free.
        Ban = 11,
        /// Counter of a fixed window with a limit of more than 32 bits.
        WideWindow = 14,
        /// Such a counter with more than 65,535 hits.
        LargeWideWindow = 15,
    }
}

impl Algorithm {
    /// The algorithm of a limit that states this one with these parameters.
    const fn under(self, parameters: &Parameters) -> Self {
        match (self.stated(), parameters.reserve) {
            (Self::FixedWindow, Some(_)) => Self::Budget,
            (stated, _) => stated,
        }
    }

    /// Returns the algorithm of a limit override that matches no rule, given that this one is the domain's default:
    /// permits need a rule by which they are returned.
    #[must_use]
    pub const fn without_rule(self) -> Self {
        if self.holds_permits() { Self::FixedWindow } else { self }
    }

    /// Whether each counter has a key of its own in a store because its size varies with its use.
    pub const fn has_own_key(self) -> bool {
        !self.can_be_leased()
    }

    /// Whether each hit is stored, so that a limit is bounded.
    pub const fn stores_hits(self) -> bool {
        matches!(self.shape(), StateShape::Log | StateShape::Permits)
    }

    /// Whether requests charge it under a lease, which is released or settled later.
    pub const fn takes_leases(self) -> bool {
        matches!(self.shape(), StateShape::Permits | StateShape::Ledger)
    }

    /// Whether a hit is a permit that the request holds until it ends, instead of a count in a window. Such a limit has no
    /// window to report, and its permits are returned by their lease.
    pub const fn holds_permits(self) -> bool {
        matches!(self.shape(), StateShape::Permits)
    }

    /// Whether an instance may charge a counter ahead and decide from prefetched tokens. A log needs the time of each hit,
    /// and a permit is held for as long as its request lasts.
    pub const fn can_be_leased(self) -> bool {
        matches!(self.shape(), StateShape::Words)
    }
}

/// Maximum step back of the clock in windows, or lifetimes of queued hits, after which the state is kept as it is, so
/// that nothing is granted twice once the clock is right again. A state that is further ahead was written while the clock
/// was ahead: its usage is moved to the present, so that it does not deny for as long as that.
const MAX_STEP_BACK_WINDOWS: u32 = 4;

/// Whether a denial of one descriptor prevents the others of the request from being charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charging {
    /// Each counter is charged independently, as in envoyproxy/ratelimit; a fixed window also counts denied hits.
    #[default]
    Independent,
    /// All counters of a request are charged or none, and denied hits count nowhere.
    AllOrNone,
}

/// Result of a decision on a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    pub fn empty(decided_at: Timestamp) -> Self {
        Self { decided_at, ..Self::default() }
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
/// are spent in time: within the requested hold, and by [`Policy::prefetched_until`].
/// Tokens that are not spent by then are refunded by [`Hits::RefundCharge`] as of the time of the prefetch, or are lost to
/// all instances.
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
