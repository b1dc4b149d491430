//! An algorithm with its parameters, and what it does to a counter.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Algorithm, Charging, Concurrency, FixedWindow, Prefetch, QueueSummary, SlidingWindow, SlidingWindowLog,
    State, StateSummary, TokenBucket, Verdict, concurrency::DEFAULT_LEASE_TTL, fixed_window,
    queue::MAX_QUEUED, sliding_window, token_bucket,
};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

/// An algorithm with its parameters: all that deciding needs beside state, time and hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`SlidingWindowLog`].
    SlidingWindowLog(SlidingWindowLog),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`Concurrency`].
    Concurrency(Concurrency),
}

/// What some algorithms take beside a quota; the others don't look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// A token bucket's capacity in hits; the limit when absent.
    pub burst: Option<u32>,
    /// The least time between two requests that pass an exact log; zero when there is none.
    pub min_interval: Duration,
    /// How long a place of a concurrency limit is held when nobody gives it up.
    pub lease_ttl: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { burst: None, min_interval: Duration::ZERO, lease_ttl: DEFAULT_LEASE_TTL }
    }
}

/// Why a quota can't be enforced under an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The bucket takes too long to fill.
    #[error("expected a burst that refills within 2.8 years at this rate")]
    TooSlow,
    /// The bucket's emission interval is so short that rounding it changes the rate by more than 1 %.
    #[error(
        "expected a rate of a token bucket that is met within 1 %: about a million per second at the most"
    )]
    TooFast,
    /// A log or a list of leases would be too long.
    #[error("expected a limit of {MAX_QUEUED} at the most: this algorithm keeps each hit by itself")]
    TooMany,
    /// A request after the minimal interval would find an empty log.
    #[error("expected a min_interval that is no longer than the window")]
    TooRare,
}

impl Policy {
    /// The policy for `quota` under `algorithm`.
    ///
    /// # Errors
    /// [`PolicyError`] when a counter of that quota and those parameters can't be kept.
    pub fn new(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Result<Self, PolicyError> {
        let Parameters { burst, min_interval, .. } = *parameters;
        if algorithm == Algorithm::TokenBucket {
            return TokenBucket::new(quota, burst.unwrap_or(quota.limit)).map(Self::TokenBucket);
        }
        match Self::nearest(algorithm, quota, parameters) {
            _ if algorithm.has_own_key() && quota.limit > MAX_QUEUED => Err(PolicyError::TooMany),
            Self::SlidingWindowLog(log) if min_interval > log.window() => Err(PolicyError::TooRare),
            policy => Ok(policy),
        }
    }

    /// The policy that comes nearest to `quota`, for one that a request brings along: a bucket's rate is the
    /// nearest that can be kept, a log or a list of leases is as long as it can be, and an interval as long as the
    /// window.
    pub fn nearest(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Self {
        let Parameters { burst, min_interval, lease_ttl } = *parameters;
        let short = Quota { limit: quota.limit.min(MAX_QUEUED), ..quota };
        match algorithm {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(quota)),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota)),
            Algorithm::SlidingWindowLog => {
                let window = Duration::from_secs(u64::from(quota.window.seconds()));
                Self::SlidingWindowLog(SlidingWindowLog::new(short, min_interval.min(window)))
            }
            Algorithm::TokenBucket => {
                Self::TokenBucket(TokenBucket::rounded(quota, burst.unwrap_or(quota.limit)))
            }
            Algorithm::Concurrency => Self::Concurrency(Concurrency::new(short.limit, lease_ttl)),
        }
    }

    /// This policy for a quota that a request brings along: a burst is as large as the limit.
    #[must_use]
    pub fn with_quota(&self, quota: Quota) -> Self {
        let defaults = Parameters::default();
        let parameters = match self {
            Self::SlidingWindowLog(log) => Parameters { min_interval: log.min_interval(), ..defaults },
            Self::Concurrency(policy) => Parameters { lease_ttl: policy.lease_ttl(), ..defaults },
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::TokenBucket(_) => defaults,
        };
        Self::nearest(self.algorithm(), quota, &parameters)
    }

    /// The algorithm without its parameters.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::FixedWindow(_) => Algorithm::FixedWindow,
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::SlidingWindowLog(_) => Algorithm::SlidingWindowLog,
            Self::TokenBucket(_) => Algorithm::TokenBucket,
            Self::Concurrency(_) => Algorithm::Concurrency,
        }
    }

    /// The two numbers that the algorithm's script takes, in the order that the script documents.
    pub fn script_parameters(&self) -> [u64; 2] {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        match self {
            Self::FixedWindow(policy) => policy.script_parameters(),
            Self::SlidingWindow(policy) => policy.script_parameters(),
            Self::SlidingWindowLog(policy) => [u64::from(policy.limit()), micros(policy.window())],
            Self::TokenBucket(policy) => policy.script_parameters(),
            Self::Concurrency(policy) => [u64::from(policy.limit()), micros(policy.lease_ttl())],
        }
    }

    /// Hits that a bucket holds when it is full.
    pub fn burst(&self) -> Option<u64> {
        match self {
            Self::TokenBucket(policy) => Some(policy.burst()),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingWindowLog(_)
            | Self::Concurrency(_) => None,
        }
    }

    /// How long a permit is held at most when it is not returned; `None` where there are no permits.
    pub const fn lease_ttl(&self) -> Option<Duration> {
        match self {
            Self::Concurrency(policy) => Some(policy.lease_ttl()),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingWindowLog(_)
            | Self::TokenBucket(_) => None,
        }
    }

    /// The least time between two requests that pass.
    pub const fn min_interval(&self) -> Duration {
        match self {
            Self::SlidingWindowLog(policy) => policy.min_interval(),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::TokenBucket(_) | Self::Concurrency(_) => {
                Duration::ZERO
            }
        }
    }

    /// Whether `hits` would pass at `now` after `earlier` hits that were charged at the same time, for an algorithm
    /// that keeps hits by themselves; `None` for another one. Charges none, but may move the state on to `now`.
    pub fn passes(&self, state: &mut State, now: Timestamp, earlier: u64, hits: Hits) -> Option<bool> {
        let charged = hits.charged();
        match self {
            Self::SlidingWindowLog(policy) => {
                Some(state.on_log(|log| policy.passes(log, now, earlier, charged)))
            }
            Self::Concurrency(policy) => {
                Some(state.on_leases(|held| policy.passes(held, now, earlier, charged)))
            }
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::TokenBucket(_) => None,
        }
    }

    /// Decides `hits` at `now`, moves `state` on, and says whether the hits pass.
    pub fn apply(&self, state: &mut State, now: Timestamp, hits: Hits, charging: Charging) -> bool {
        match self {
            Self::FixedWindow(policy) => state.on_pair(|pair| policy.apply(pair, now, hits, charging)),
            Self::SlidingWindow(policy) => {
                let mut words = state.words();
                let admitted = policy.apply(&mut words, now, hits);
                *state = State::Words(words);
                admitted
            }
            Self::SlidingWindowLog(policy) => state.on_log(|log| policy.apply(log, now, hits)),
            Self::TokenBucket(policy) => state.on_pair(|pair| policy.apply(pair, now, hits)),
            Self::Concurrency(policy) => state.on_leases(|held| policy.apply(held, now, hits)),
        }
    }

    /// Where a counter stands after a decision at `now` on `hits`.
    pub fn summary(&self, state: &State, now: Timestamp, hits: Hits) -> StateSummary {
        match (self, state) {
            (Self::SlidingWindowLog(policy), State::Log(log)) => {
                StateSummary::QueueSummary(policy.summary(log, now, hits))
            }
            (Self::Concurrency(policy), State::Leases(held)) => {
                StateSummary::QueueSummary(policy.summary(held, now, hits))
            }
            (_, state) => StateSummary::Words(state.words()),
        }
    }

    /// What a decision came to that left the counter standing so.
    pub fn verdict(
        &self,
        summary: StateSummary,
        now: Timestamp,
        hits: Hits,
        admitted: bool,
        charging: Charging,
    ) -> Verdict {
        let (words, queued) = match summary {
            StateSummary::Words(words) => (words, QueueSummary::default()),
            StateSummary::QueueSummary(queued) => ([0; 3], queued),
        };
        let [first, second, _] = words;
        match self {
            Self::FixedWindow(policy) => policy.verdict([first, second], now, hits, admitted, charging),
            Self::SlidingWindow(policy) => policy.verdict(words, now, hits, admitted),
            Self::TokenBucket(policy) => policy.verdict([first, second], now, hits, admitted),
            Self::SlidingWindowLog(policy) => queued.verdict(policy.limit(), now, hits, admitted),
            Self::Concurrency(policy) => queued.verdict(policy.limit(), now, hits, admitted),
        }
    }

    /// When `state` becomes as good as unused and may be dropped, rounded up to a whole second since the
    /// epoch.
    pub fn expires_at(&self, state: &State) -> u32 {
        match (self, state) {
            (Self::FixedWindow(_), state) => fixed_window::expires_at(state.pair()),
            (Self::SlidingWindow(_), state) => sliding_window::expires_at(state.words()),
            (Self::TokenBucket(_), state) => token_bucket::expires_at(state.pair()),
            (Self::SlidingWindowLog(policy), State::Log(log)) => log.expires_at(policy.window()),
            (Self::Concurrency(policy), State::Leases(held)) => held.expires_at(policy.lease_ttl()),
            (Self::SlidingWindowLog(_) | Self::Concurrency(_), _) => 0,
        }
    }

    /// Charges at `now` as many tokens as the wish allows, and says how many. Algorithms that keep hits by themselves
    /// reserve none.
    pub fn reserve(&self, state: &mut State, now: Timestamp, wish: Prefetch) -> u32 {
        match self {
            Self::FixedWindow(policy) => state.on_pair(|pair| policy.reserve(pair, now, wish)),
            Self::SlidingWindow(policy) => {
                let mut words = state.words();
                let tokens = policy.reserve(&mut words, now, wish);
                *state = State::Words(words);
                tokens
            }
            Self::TokenBucket(policy) => state.on_pair(|pair| policy.reserve(pair, now, wish)),
            Self::SlidingWindowLog(_) | Self::Concurrency(_) => 0,
        }
    }

    /// The time by which what was reserved at `now` must be spent for the algorithm's sake: the window's end. A bucket
    /// owes the hold that was wished, and nothing else.
    pub fn reserved_until(&self, now: Timestamp) -> Option<Timestamp> {
        let end = match self {
            Self::FixedWindow(policy) => policy.window_end(now),
            Self::SlidingWindow(policy) => policy.window_end(now),
            Self::TokenBucket(_) | Self::SlidingWindowLog(_) | Self::Concurrency(_) => return None,
        };
        Some(Timestamp::from_micros(u64::from(end).saturating_mul(1_000_000)))
    }

    /// The policy of one of so many equal shares, for a counter of its own.
    #[must_use]
    pub fn shared_by(self, shares: NonZeroU32) -> Self {
        match self {
            Self::FixedWindow(policy) => Self::FixedWindow(policy.shared_by(shares)),
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.shared_by(shares)),
            Self::SlidingWindowLog(policy) => Self::SlidingWindowLog(policy.shared_by(shares)),
            Self::TokenBucket(policy) => Self::TokenBucket(policy.shared_by(shares)),
            Self::Concurrency(policy) => Self::Concurrency(policy.shared_by(shares)),
        }
    }
}
