//! Operations of a policy: those of its algorithm, on the state of a counter.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Algorithm, Charging, CounterState, Decision, LastVerdict, LimitAlgorithm, Parameters, Policy,
    PolicyError, Prefetch, RecordKind, Reserve, State, StateSummary, Verdict, for_algorithm, share_start,
    with_algorithm,
};
use crate::{
    clock::Timestamp,
    descriptor::Hits,
    quota::{Quota, Window},
};

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
    script_charge_time(made_at: Timestamp) -> Timestamp;
    script_bound() -> u64;
    has_bound() -> bool;
    max_debt() -> Option<u64>;
    common_parameters() -> Parameters;
    tail() -> Duration;
    can_be_lent() -> bool;
    prefetched_until(now: Timestamp) -> Option<Timestamp>;
    last_verdict(verdict: &Verdict, prefetched: u32) -> LastVerdict;
    with_quota(quota: Quota) -> Self;
    region_share(share: u32, whole: u32) -> Self;
    shared_by(instances: NonZeroU32) -> Self;
    with_reserve() -> Self;
}

impl Policy {
    /// Returns the policy for `quota` under `algorithm`.
    ///
    /// # Errors
    /// [`PolicyError`] if the algorithm cannot enforce this quota with these parameters.
    pub fn new(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Result<Self, PolicyError> {
        for_algorithm!(algorithm.under(parameters), A => A::check(quota, parameters)?);
        Ok(Self::nearest(algorithm, quota, parameters))
    }

    /// Returns the nearest enforceable policy to `quota`, for limit overrides: the nearest rate of a bucket, the maximum
    /// length of a log or a list of leases, and an interval of at most the window.
    pub fn nearest(algorithm: Algorithm, quota: Quota, parameters: &Parameters) -> Self {
        for_algorithm!(algorithm.under(parameters), A => A::nearest(quota, parameters).into())
    }

    /// Whether [`Policy::succeeding`] may differ.
    pub const fn depends_on_former(&self) -> bool {
        matches!(self, Self::SlidingWindow(_))
    }

    /// Returns this policy for the counters that `former` decided until `now`. Only a sliding window differs: it must know
    /// since when it has its length.
    #[must_use]
    pub fn succeeding(self, former: &Self, now: Timestamp) -> Self {
        match (self, former) {
            (Self::SlidingWindow(window), Self::SlidingWindow(former)) => {
                Self::SlidingWindow(window.succeeding(Some(*former), now))
            }
            (Self::SlidingWindow(window), _) => Self::SlidingWindow(window.succeeding(None, now)),
            (policy, _) => policy,
        }
    }

    /// Number that marks the counters in a store.
    pub fn kind(&self) -> RecordKind {
        let is_wide = with_algorithm!(self, algorithm => algorithm.is_wide());
        if is_wide { RecordKind::WideWindow } else { self.algorithm().kind() }
    }

    /// Capacity of a bucket in hits; `None` for other algorithms.
    pub fn burst(&self) -> Option<u64> {
        matches!(self, Self::TokenBucket(_)).then(|| self.limit())
    }

    /// Terms of the reservations; `None` for limits without any.
    pub fn reserve_terms(&self) -> Option<Reserve> {
        self.common_parameters().reserve
    }

    /// Share of the unused hits of a window that raises the next one, in percent; 0 for none.
    pub fn unused_percent(&self) -> u8 {
        self.common_parameters().unused_percent
    }

    /// Minimum time between two admitted requests; zero without one.
    #[inline]
    pub fn min_interval(&self) -> Duration {
        self.common_parameters().min_interval
    }

    /// Whether requests reserve its hits.
    pub const fn is_budget(&self) -> bool {
        matches!(self, Self::Budget(_))
    }

    /// Maximum time for which a permit is held; `None` for algorithms without permits.
    pub fn lease_ttl(&self) -> Option<Duration> {
        self.algorithm().holds_permits().then(|| self.common_parameters().lease_ttl)
    }

    /// Returns this policy with another limit, in the same window. A bucket keeps its capacity in time.
    #[must_use]
    pub fn with_limit(self, limit: u32, window: Window) -> Self {
        let quota = Quota { limit: limit.into(), window };
        with_algorithm!(self, algorithm => algorithm.with_rate(quota).into())
    }

    /// Returns the state of the share of one of `instances` after `last`, if the store last replied at `last_reply_at`.
    /// `None` for permits, which end with their requests.
    pub fn share_after(
        &self,
        last: &LastVerdict,
        last_reply_at: Timestamp,
        instances: NonZeroU32,
    ) -> Option<CounterState> {
        let mut counter = CounterState::default();
        with_algorithm!(self, algorithm => {
            let start = share_start::state(algorithm, last, last_reply_at, instances)?;
            State::update(&mut counter, |state| *state = start);
        });
        Some(counter)
    }

    /// Whether `hits` would pass at `now` after `earlier` hits of the same request, for algorithms that store each hit;
    /// `None` for others. Charges nothing, but may advance the state to `now`.
    pub fn passes(
        &self,
        counter: &mut CounterState,
        now: Timestamp,
        earlier: u64,
        hits: Hits,
    ) -> Option<bool> {
        with_algorithm!(self, algorithm => {
            State::update(counter, |state| algorithm.passes(state, now, earlier, hits))
        })
    }

    /// Decides `hits` at `now`, updates the counter's state, and returns whether the hits pass.
    #[inline]
    pub fn apply(&self, counter: &mut CounterState, now: Timestamp, hits: Hits, charging: Charging) -> bool {
        let hits = match hits {
            // A charge cannot be found in a debt that spans windows.
            Hits::RefundCharge { amount, .. } if self.has_bound() => Hits::Refund(amount),
            hits => hits,
        };
        with_algorithm!(self, algorithm => {
            State::update(counter, |state| algorithm.apply(state, now, hits, charging))
        })
    }

    /// Returns the summary of a counter's state after a decision at `now` on `hits`.
    #[inline]
    pub fn summary(&self, counter: &CounterState, now: Timestamp, hits: Hits) -> StateSummary {
        with_algorithm!(self, algorithm => match State::read(counter) {
            Some(state) => algorithm.summary(state, now, hits).into(),
            None => StateSummary::default(),
        })
    }

    /// Returns the verdict of a decision after which the state has this summary.
    #[inline]
    pub fn verdict(
        &self,
        summary: StateSummary,
        now: Timestamp,
        hits: Hits,
        admitted: bool,
        charging: Charging,
    ) -> Verdict {
        let decision = Decision { now, hits, admitted, charging };
        with_algorithm!(self, algorithm => algorithm.verdict(summary.into(), &decision))
    }

    /// Decides `hits` at `now`, updates the counter's state, and returns the verdict.
    pub fn decide(
        &self,
        counter: &mut CounterState,
        now: Timestamp,
        hits: Hits,
        charging: Charging,
    ) -> Verdict {
        let admitted = self.apply(counter, now, hits, charging);
        self.verdict(self.summary(counter, now, hits), now, hits, admitted, charging)
    }

    /// Time from which a counter equals an unused one and may be dropped, in seconds since the epoch, rounded up. A queue of
    /// hits is kept for a lifetime more, in case that the lifetime is lengthened meanwhile.
    #[inline]
    pub fn expires_at(&self, counter: &CounterState) -> u32 {
        with_algorithm!(self, algorithm => State::read(counter).map_or(0, |state| algorithm.expires_at(state)))
    }

    /// Charges the tokens that are granted to `prefetch` at `now`, and returns their number. Algorithms that store each hit
    /// grant none.
    pub fn prefetch(&self, counter: &mut CounterState, now: Timestamp, prefetch: Prefetch) -> u32 {
        with_algorithm!(self, algorithm => {
            State::update(counter, |state| algorithm.prefetch(state, now, prefetch))
        })
    }

    /// Hits that count in a counter at `now`, and which it advances to then.
    pub fn used(&self, counter: &mut CounterState, now: Timestamp) -> u64 {
        self.decide(counter, now, Hits::Peek, Charging::Independent).used
    }

    /// Hits that would still pass at `now`.
    pub fn unused(&self, counter: &mut CounterState, now: Timestamp) -> u64 {
        self.decide(counter, now, Hits::Peek, Charging::Independent).remaining
    }

    /// Whether a counter leaves less than `other` at `now`.
    pub fn is_fuller(&self, counter: &mut CounterState, other: &mut CounterState, now: Timestamp) -> bool {
        let [one, other] =
            [counter, other].map(|counter| self.decide(counter, now, Hits::Peek, Charging::Independent));
        (one.used, one.reset_after) > (other.used, other.reset_after)
    }
}
