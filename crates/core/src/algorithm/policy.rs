//! Operations of a policy: those of its algorithm, on the state of a counter.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Algorithm, Charging, CounterState, LastVerdict, LimitAlgorithm, Parameters, Policy, PolicyError,
    Prefetch, RecordKind, Reserve, State, StateSummary, Verdict, with_algorithm,
};
use crate::clock::{Timestamp, micros};
use crate::descriptor::Hits;
use crate::quota::{Quota, Unit, Window};

/// Defines operations of a policy that are those of its algorithm, by the names that they have there.
macro_rules! operations_of_the_algorithm {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        impl Policy {
            $(
                #[doc = concat!("See [`LimitAlgorithm::", stringify!($name), "`].")]
                #[inline]
                pub fn $name(&self, $($argument: $type),*) -> $result {
                    with_algorithm!(self, algorithm => algorithm.$name($($argument),*).into())
                }
            )+
        }
    };
}

operations_of_the_algorithm! {
    limit() -> u64;
    length() -> Duration;
    window_end(now: Timestamp) -> Option<u32>;
    counts_denied() -> bool;
    script_parameters(store_time: impl FnOnce() -> Timestamp) -> [i64; 2];
    script_bound() -> u64;
    has_bound() -> bool;
    max_debt() -> Option<u64>;
    common_parameters() -> Parameters;
    tail() -> Duration;
    can_be_lent() -> bool;
    verdict(of: StateSummary, now: Timestamp, hits: Hits, admitted: bool, charging: Charging) -> Verdict;
    prefetched_until(now: Timestamp) -> Option<Timestamp>;
    last_verdict(verdict: &Verdict, prefetched: u32) -> LastVerdict;
    expected_hits(used: u64, from: Timestamp, elapsed: Duration) -> u64;
    with_quota(quota: Quota) -> Self;
    with_limit(limit: u64, window: Duration) -> Self;
    region_share(share: u32, whole: u32) -> Self;
    shared_by(instances: NonZeroU32) -> Self;
    with_reserve() -> Self;
}

/// Construction, and what only some algorithms have.
impl Policy {
    /// Returns the policy for `quota` under `algorithm`.
    ///
    /// # Errors
    /// [`PolicyError`] if the algorithm cannot enforce this quota with these parameters.
    pub fn new(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Result<Self, PolicyError> {
        let policy = Self::nearest(algorithm, quota, parameters);
        with_algorithm!(&policy, algorithm => algorithm.check(quota, parameters))?;
        Ok(policy)
    }

    /// Returns the nearest enforceable policy to `quota`, for limit overrides: the nearest rate of a bucket, the maximum
    /// length of a log or a list of leases, and an interval of at most the window.
    pub fn nearest(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Self {
        algorithm.under(parameters).nearest(quota, parameters)
    }

    /// A concurrency limit as high as possible, whose permits expire after `lease_ttl`: for holders that are only counted.
    pub fn of_holders(lease_ttl: Duration) -> Self {
        let quota = Quota { limit: u32::MAX.into(), window: Window::of(Unit::Second) };
        Self::nearest(Algorithm::Concurrency, quota, &Parameters { lease_ttl, ..Parameters::default() })
    }

    /// Whether [`Policy::succeeding`] may differ.
    pub const fn depends_on_former(&self) -> bool {
        matches!(self, Self::SlidingWindow(_))
    }

    /// Returns this policy for the counters that `former` decided until `now`. Only a sliding window differs: it must know
    /// since when it has its length.
    #[must_use]
    pub fn succeeding(self, former: &Self, now: Timestamp) -> Self {
        let Self::SlidingWindow(window) = self else { return self };
        let former = if let Self::SlidingWindow(former) = former { Some(*former) } else { None };
        Self::SlidingWindow(window.succeeding(former, now))
    }

    /// Kind of the records of its counters.
    pub fn kind(&self) -> RecordKind {
        match self {
            Self::FixedWindow(window) if window.is_wide() => RecordKind::WideWindow,
            _ => self.algorithm().kind(),
        }
    }

    /// The time of a charge that is to be refunded, as the script has it: of a window in a calendar, its end.
    pub fn script_charge_time(&self, made_at: Timestamp) -> Timestamp {
        match self {
            Self::FixedWindow(window) if window.calendar.is_some() => {
                Timestamp::from_seconds(window.end_of_window(made_at))
            }
            _ => made_at,
        }
    }

    /// Capacity of a bucket in hits; `None` for other algorithms.
    pub fn burst(&self) -> Option<u64> {
        matches!(self, Self::TokenBucket(_)).then(|| self.limit())
    }

    /// Whether requests reserve its hits.
    pub const fn is_budget(&self) -> bool {
        matches!(self, Self::Budget(_))
    }

    /// Terms of the reservations; `None` for limits without any.
    pub fn reserve_terms(&self) -> Option<Reserve> {
        self.common_parameters().reserve
    }

    /// Share of the unused hits of a window that raises the next one, in percent; 0 for none.
    pub fn unused_percent(&self) -> u8 {
        self.common_parameters().unused_percent
    }

    /// Whether hits have a time between them, so that room alone does not admit one.
    pub fn spaces_hits(&self) -> bool {
        !self.min_interval().is_zero()
    }

    /// The time between two admitted requests in microseconds, as the script has it.
    pub fn script_spacing(&self) -> u64 {
        micros(self.min_interval())
    }

    /// Minimum time between two admitted requests; zero without one.
    pub fn min_interval(&self) -> Duration {
        self.common_parameters().min_interval
    }

    /// Maximum time for which a permit is held; `None` for algorithms without permits.
    pub fn lease_ttl(&self) -> Option<Duration> {
        self.algorithm().holds_permits().then(|| self.common_parameters().lease_ttl)
    }
}

/// Decisions on a counter.
impl Policy {
    /// Whether `hits` would pass at `now` after `earlier` hits of the same request, for algorithms that store each hit;
    /// `None` for others. Charges nothing, but may advance the state to `now`.
    pub fn passes(&self, state: &mut CounterState, now: Timestamp, earlier: u64, hits: Hits) -> Option<bool> {
        with_algorithm!(self, algorithm => {
            State::update(state, |state| algorithm.passes(state, now, earlier, hits))
        })
    }

    /// Decides `hits` at `now`, updates `state`, and returns whether the hits pass.
    #[inline]
    pub fn apply(&self, state: &mut CounterState, now: Timestamp, hits: Hits, charging: Charging) -> bool {
        let hits = match hits {
            // A charge cannot be found in a debt that spans windows.
            Hits::RefundCharge { amount, .. } if self.has_bound() => Hits::Refund(amount),
            hits => hits,
        };
        with_algorithm!(self, algorithm => {
            State::update(state, |state| algorithm.apply(state, now, hits, charging))
        })
    }

    /// Returns the summary of a counter's state after a decision at `now` on `hits`.
    #[inline]
    pub fn summary(&self, state: &CounterState, now: Timestamp, hits: Hits) -> StateSummary {
        if let CounterState::Words(words) = state {
            return StateSummary::Words(*words);
        }
        with_algorithm!(self, algorithm => {
            State::read(state).map_or(StateSummary::Words([0; 3]), |state| algorithm.summary(state, now, hits))
        })
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

    /// Time from which `state` equals an unused one and may be dropped, in seconds since the epoch, rounded up. A queue of
    /// hits is kept for a lifetime more, in case that the lifetime is lengthened meanwhile.
    pub fn expires_at(&self, state: &CounterState) -> u32 {
        with_algorithm!(self, algorithm => State::read(state).map_or(0, |state| algorithm.expires_at(state)))
    }

    /// Charges the tokens that are granted to `prefetch` at `now`, and returns their number. Algorithms that store each hit
    /// grant none.
    pub fn prefetch(&self, state: &mut CounterState, now: Timestamp, prefetch: Prefetch) -> u32 {
        with_algorithm!(self, algorithm => {
            State::update(state, |state| algorithm.prefetch(state, now, prefetch))
        })
    }

    /// Returns the state of the share of one of `instances` after `last`, if the store last replied at `last_reply_at`.
    /// `None` for permits, which end with their requests.
    pub fn share_after(
        &self,
        last: &LastVerdict,
        last_reply_at: Timestamp,
        instances: NonZeroU32,
    ) -> Option<CounterState> {
        let now = last.decided_at;
        let mut state: CounterState = with_algorithm!(self, whole => {
            whole.shared_by(instances).after(whole, last, instances)?.into()
        });
        if instances.get() > 1 {
            let share = self.shared_by(instances);
            let Verdict { used, remaining, .. } = share.peek(&mut state, now);
            let missed = share.expected_hits(used, now, last_reply_at.since(now)).min(remaining / 2);
            if let Hits::Charge(missed) = Hits::charge(missed) {
                share.apply(&mut state, now, Hits::Overdraw(missed), Charging::Independent);
            }
        }
        Some(state)
    }

    /// The verdict of a read at `now`, to which it advances `state`.
    pub fn peek(&self, state: &mut CounterState, now: Timestamp) -> Verdict {
        self.decide(state, now, Hits::Peek, Charging::Independent)
    }

    /// Whether `state` leaves less than `other` at `now`.
    pub fn is_fuller(&self, state: &mut CounterState, other: &mut CounterState, now: Timestamp) -> bool {
        let [one, other] = [state, other].map(|state| self.peek(state, now));
        (one.used, one.reset_after) > (other.used, other.reset_after)
    }
}
