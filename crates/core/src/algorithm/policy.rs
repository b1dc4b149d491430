//! Policies: algorithms with their parameters, and their operations on the state of a counter.

use std::time::Duration;

use super::{
    Algorithm, Budget, Charging, Concurrency, CounterState, FixedWindow, LedgerSummary, Parameters,
    PolicyError, Prefetch, QueueSummary, Reserve, SlidingWindow, SlidingWindowLog, StateSummary, TokenBucket,
    Verdict, fixed_window, queue::MAX_QUEUED, sliding_window, token_bucket,
};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

/// An algorithm with its parameters: the input of a decision besides state, time and hits.
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
    /// See [`Budget`].
    Budget(Budget),
}

impl Policy {
    /// Returns the policy for `quota` under `algorithm`.
    ///
    /// # Errors
    /// [`PolicyError`] if the algorithm cannot enforce this quota with these parameters.
    pub fn new(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Result<Self, PolicyError> {
        let Parameters { burst, min_interval, .. } = *parameters;
        if algorithm == Algorithm::TokenBucket {
            let max_debt = parameters.debt_of(quota);
            let burst = burst.unwrap_or(quota.word());
            return match TokenBucket::new(quota, burst, max_debt) {
                // A default is not too large, but cut.
                Err(PolicyError::TooDeep) if parameters.max_debt.is_none() => {
                    Ok(Self::TokenBucket(TokenBucket::rounded(quota, burst, max_debt)))
                }
                bucket => bucket.map(Self::TokenBucket),
            };
        }
        match Self::nearest(algorithm, quota, parameters) {
            _ if algorithm.stores_hits() && quota.word() > MAX_QUEUED => Err(PolicyError::TooMany),
            policy if quota.is_wide() && !policy.can_be_wide() => Err(PolicyError::TooLarge),
            Self::SlidingWindowLog(log) if min_interval > log.window => Err(PolicyError::TooRare),
            policy => Ok(policy),
        }
    }

    /// Returns the nearest enforceable policy to `quota`, for limit overrides: the nearest rate of a bucket, the maximum
    /// length of a log or a list of leases, and an interval of at most the window.
    pub fn nearest(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Self {
        let Parameters { burst, min_interval, lease_ttl, carry, unused_percent, .. } = *parameters;
        let max_debt = parameters.debt_of(quota);
        match algorithm {
            Algorithm::FixedWindow | Algorithm::Budget => {
                let max_carried = if carry { max_debt } else { 0 };
                match parameters.reserve {
                    Some(reserve) => Self::Budget(Budget::new(FixedWindow::new(quota, 0), reserve)),
                    None => Self::FixedWindow(FixedWindow {
                        unused_percent,
                        ..FixedWindow::new(quota, max_carried)
                    }),
                }
            }
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::new(quota)),
            Algorithm::SlidingWindowLog => {
                let window = Duration::from_secs(u64::from(quota.window.seconds()));
                Self::SlidingWindowLog(SlidingWindowLog::new(
                    quota.word().min(MAX_QUEUED),
                    window,
                    min_interval.min(window),
                ))
            }
            Algorithm::TokenBucket => {
                Self::TokenBucket(TokenBucket::rounded(quota, burst.unwrap_or(quota.word()), max_debt))
            }
            Algorithm::Concurrency => {
                Self::Concurrency(Concurrency::new(quota.word().min(MAX_QUEUED), lease_ttl))
            }
        }
    }

    /// Returns this policy for the quota of a limit override, whose burst and maximum debt equal its limit.
    #[must_use]
    pub fn with_quota(&self, quota: Quota) -> Self {
        let defaults = Parameters::default();
        let parameters = match self {
            Self::SlidingWindowLog(log) => Parameters { min_interval: log.min_interval, ..defaults },
            Self::Concurrency(policy) => Parameters { lease_ttl: policy.lease_ttl, ..defaults },
            Self::FixedWindow(policy) => {
                let carry = policy.max_carried > 0;
                Parameters { overdraft: carry, carry, unused_percent: policy.unused_percent, ..defaults }
            }
            Self::TokenBucket(_) => Parameters { overdraft: self.has_bound(), ..defaults },
            Self::Budget(policy) => Parameters { reserve: Some(policy.reserve), ..defaults },
            Self::SlidingWindow(_) => defaults,
        };
        match (Self::nearest(self.algorithm(), quota, &parameters), self) {
            (Self::TokenBucket(bucket), _) => Self::TokenBucket(bucket.for_override()),
            (Self::SlidingWindow(window), Self::SlidingWindow(of_rule)) => {
                Self::SlidingWindow(window.beside(*of_rule))
            }
            (policy, _) => policy,
        }
    }

    /// Whether [`Policy::succeeding`] may differ.
    pub const fn depends_on_former(&self) -> bool {
        matches!(self, Self::SlidingWindow(_))
    }

    /// Returns this policy for the counters that `former` decided until `now`. Only a sliding window differs: it must know
    /// since when it has its length.
    #[must_use]
    pub fn succeeding(self, former: &Self, now: Timestamp) -> Self {
        let Self::SlidingWindow(policy) = self else { return self };
        let former = if let Self::SlidingWindow(former) = former { Some(*former) } else { None };
        Self::SlidingWindow(policy.succeeding(former, now))
    }

    /// Whether hits that it denies are counted, where each counter is charged for itself: not those on a limit of 0, so that
    /// none of them is counted once the limit is raised.
    pub const fn counts_denied(&self) -> bool {
        matches!(self, Self::FixedWindow(FixedWindow { limit: 1.., .. }))
    }

    /// The algorithm without its parameters.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::FixedWindow(_) => Algorithm::FixedWindow,
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::SlidingWindowLog(_) => Algorithm::SlidingWindowLog,
            Self::TokenBucket(_) => Algorithm::TokenBucket,
            Self::Concurrency(_) => Algorithm::Concurrency,
            Self::Budget(_) => Algorithm::Budget,
        }
    }

    /// Parameters of the algorithm's script, in the order documented in the script. Windows of a calendar need an estimate of
    /// the store's time.
    pub fn script_parameters(&self, store_time: impl FnOnce() -> Timestamp) -> [i64; 2] {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        match self {
            Self::FixedWindow(policy) => policy.script_parameters(store_time),
            Self::SlidingWindow(policy) => policy.script_parameters(),
            Self::SlidingWindowLog(policy) => [i64::from(policy.limit), micros(policy.window)],
            Self::TokenBucket(policy) => policy.script_parameters(),
            Self::Concurrency(policy) => [i64::from(policy.limit), micros(policy.lease_ttl)],
            Self::Budget(policy) => policy.script_parameters(),
        }
    }

    /// The time of a charge that is to be refunded, as the script has it: of a window in a calendar, its end.
    pub fn script_charge_time(&self, made_at: Timestamp) -> Timestamp {
        match self {
            Self::FixedWindow(policy) if policy.calendar.is_some() => {
                Timestamp::from_seconds(policy.window_end(made_at))
            }
            _ => made_at,
        }
    }

    /// The bound of an overdraft, as the script has it: ticks of debt of a bucket, hits otherwise.
    pub fn script_bound(&self) -> u64 {
        match self {
            Self::FixedWindow(policy) if policy.carries_unused() => policy.unused_bound(),
            Self::FixedWindow(policy) => policy.max_used().unwrap_or(policy.max_counted()),
            Self::SlidingWindow(_) | Self::Concurrency(_) | Self::Budget(_) => u64::from(u32::MAX),
            Self::SlidingWindowLog(policy) => policy.max_logged(),
            Self::TokenBucket(policy) => policy.max_debt.0,
        }
    }

    /// Maximum number of hits that an overdraft takes beyond the limit; `None` without a bound.
    pub fn max_debt(&self) -> Option<u64> {
        let max_debt = match self {
            Self::TokenBucket(policy) => Some(policy.max_debt()),
            Self::FixedWindow(policy) => Some(policy.max_carried.into()),
            _ => None,
        };
        max_debt.filter(|debt| *debt > 0 && self.has_bound())
    }

    /// Share of the unused hits of a window that raises the next one, in percent; 0 for none.
    pub const fn unused_percent(&self) -> u8 {
        match self {
            Self::FixedWindow(policy) => policy.unused_percent,
            _ => 0,
        }
    }

    /// Whether every operation needs the bound of the overdraft, not only a charge: a window with a carry, a bucket that
    /// goes into debt.
    pub fn has_bound(&self) -> bool {
        match self {
            Self::FixedWindow(policy) => policy.carries_unused() || policy.max_used().is_some(),
            Self::TokenBucket(policy) => policy.max_debt > policy.capacity,
            _ => false,
        }
    }

    /// Whether regions may lend parts of such a limit to each other.
    pub fn can_be_lent(&self) -> bool {
        match self {
            // Loans end with windows of one length.
            Self::FixedWindow(policy) if policy.calendar.is_some() => false,
            // The bound of an overdraft is not a part of loans.
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::TokenBucket(_) => !self.has_bound(),
            Self::SlidingWindowLog(_) | Self::Concurrency(_) | Self::Budget(_) => false,
        }
    }

    /// Capacity of a bucket in hits; `None` for other algorithms.
    pub fn burst(&self) -> Option<u64> {
        match self {
            Self::TokenBucket(policy) => Some(policy.burst()),
            _ => None,
        }
    }

    /// Whether requests reserve its hits.
    pub const fn is_budget(&self) -> bool {
        matches!(self, Self::Budget(_))
    }

    /// Terms of the reservations; `None` for limits without any.
    pub const fn reserve_terms(&self) -> Option<Reserve> {
        match self {
            Self::Budget(policy) => Some(policy.reserve),
            _ => None,
        }
    }

    /// Maximum time for which a permit is held; `None` for algorithms without permits.
    pub const fn lease_ttl(&self) -> Option<Duration> {
        match self {
            Self::Concurrency(policy) => Some(policy.lease_ttl),
            _ => None,
        }
    }

    /// Minimum time between two admitted requests; zero without one.
    pub const fn min_interval(&self) -> Duration {
        match self {
            Self::SlidingWindowLog(policy) => policy.min_interval,
            _ => Duration::ZERO,
        }
    }

    /// Whether `hits` would pass at `now` after `earlier` hits of the same request, for algorithms that store each hit;
    /// `None` for others. Charges nothing, but may advance the state to `now`.
    pub fn passes(&self, state: &mut CounterState, now: Timestamp, earlier: u64, hits: Hits) -> Option<bool> {
        match self {
            Self::SlidingWindowLog(policy) => {
                Some(state.on_log(|log| policy.passes(log, now, earlier, hits)))
            }
            Self::Concurrency(policy) => {
                Some(state.on_leases(|held| policy.passes(held, now, earlier, hits)))
            }
            Self::Budget(policy) => Some(state.on_ledger(|ledger| policy.passes(ledger, now, earlier, hits))),
            Self::FixedWindow(_) | Self::SlidingWindow(_) | Self::TokenBucket(_) => None,
        }
    }

    /// Decides `hits` at `now`, updates `state`, and returns whether the hits pass.
    pub fn apply(&self, state: &mut CounterState, now: Timestamp, hits: Hits, charging: Charging) -> bool {
        let hits = match hits {
            // A charge cannot be found in a debt that spans windows.
            Hits::RefundCharge { amount, .. } if self.has_bound() => Hits::Refund(amount),
            hits => hits,
        };
        match self {
            Self::FixedWindow(policy) => state.on_words(|words| policy.apply(words, now, hits, charging)),
            Self::SlidingWindow(policy) => state.on_words(|words| policy.apply(words, now, hits)),
            Self::SlidingWindowLog(policy) => state.on_log(|log| policy.apply(log, now, hits)),
            Self::TokenBucket(policy) => state.on_words(|words| policy.apply(words, now, hits)),
            Self::Concurrency(policy) => state.on_leases(|held| policy.apply(held, now, hits)),
            Self::Budget(policy) => state.on_ledger(|ledger| policy.apply(ledger, now, hits)),
        }
    }

    /// Decides `hits` at `now`, updates `state`, and returns the verdict.
    pub fn decide(
        &self,
        state: &mut CounterState,
        now: Timestamp,
        hits: Hits,
        charging: Charging,
    ) -> Verdict {
        let admitted = self.apply(state, now, hits, charging);
        self.verdict(self.summary(state, now, hits), now, hits, admitted, charging)
    }

    /// Returns the summary of a counter's state after a decision at `now` on `hits`.
    pub fn summary(&self, state: &CounterState, now: Timestamp, hits: Hits) -> StateSummary {
        match (self, state) {
            (Self::SlidingWindowLog(policy), CounterState::Log(log)) => {
                StateSummary::Queue(policy.summary(log, now, hits))
            }
            (Self::Concurrency(policy), CounterState::Leases(held)) => {
                StateSummary::Queue(policy.summary(held, now, hits))
            }
            (Self::Budget(_), CounterState::Ledger(ledger)) => StateSummary::Ledger(ledger.summary(hits)),
            (_, state) => StateSummary::Words(state.words()),
        }
    }

    /// Returns the verdict of a decision after which the state has this summary.
    pub fn verdict(
        &self,
        summary: StateSummary,
        now: Timestamp,
        hits: Hits,
        admitted: bool,
        charging: Charging,
    ) -> Verdict {
        let (mut words, mut queued, mut ledger) = ([0; 3], QueueSummary::default(), LedgerSummary::default());
        match summary {
            StateSummary::Words(known) => words = known,
            StateSummary::Queue(known) => queued = known,
            StateSummary::Ledger(known) => ledger = known,
        }
        match self {
            Self::FixedWindow(policy) => policy.verdict(words, now, hits, admitted, charging),
            Self::SlidingWindow(policy) => policy.verdict(words, now, hits, admitted),
            Self::TokenBucket(policy) => policy.verdict(words, now, hits, admitted),
            Self::SlidingWindowLog(policy) => queued.verdict(policy.limit, now, hits, admitted),
            Self::Concurrency(policy) => queued.verdict(policy.limit, now, hits, admitted),
            Self::Budget(policy) => policy.verdict(ledger, now, hits, admitted),
        }
    }

    /// Time from which `state` equals an unused one and may be dropped, in seconds since the epoch, rounded up. A queue of
    /// hits is kept for a lifetime more, in case that the lifetime is lengthened meanwhile.
    pub fn expires_at(&self, state: &CounterState) -> u32 {
        match (self, state) {
            (Self::FixedWindow(_), state) => fixed_window::expires_at(state.words()),
            (Self::SlidingWindow(_), state) => sliding_window::expires_at(state.words()),
            (Self::TokenBucket(_), state) => token_bucket::expires_at(state.words()),
            (Self::SlidingWindowLog(policy), CounterState::Log(log)) => log.kept_until(policy.window),
            (Self::Concurrency(policy), CounterState::Leases(held)) => held.kept_until(policy.lease_ttl),
            (Self::Budget(policy), CounterState::Ledger(ledger)) => policy.expires_at(ledger),
            (Self::SlidingWindowLog(_) | Self::Concurrency(_) | Self::Budget(_), _) => 0,
        }
    }

    /// Charges the tokens that are granted to `prefetch` at `now`, and returns their number. Algorithms that store each hit
    /// grant none.
    pub fn prefetch(&self, state: &mut CounterState, now: Timestamp, prefetch: Prefetch) -> u32 {
        match self {
            Self::FixedWindow(policy) => state.on_words(|words| policy.prefetch(words, now, prefetch)),
            Self::SlidingWindow(policy) => state.on_words(|words| policy.prefetch(words, now, prefetch)),
            Self::TokenBucket(policy) => state.on_words(|words| policy.prefetch(words, now, prefetch)),
            Self::SlidingWindowLog(_) | Self::Concurrency(_) | Self::Budget(_) => 0,
        }
    }

    /// Time until which tokens prefetched at `now` may be spent: the end of the window. `None` for a bucket, where only the
    /// requested hold applies.
    pub fn prefetched_until(&self, now: Timestamp) -> Option<Timestamp> {
        let end = match self {
            Self::FixedWindow(policy) => policy.window_end(now),
            Self::SlidingWindow(policy) => policy.window_end(now),
            Self::TokenBucket(_) | Self::SlidingWindowLog(_) | Self::Concurrency(_) | Self::Budget(_) => {
                return None;
            }
        };
        Some(Timestamp::from_seconds(end))
    }
}
