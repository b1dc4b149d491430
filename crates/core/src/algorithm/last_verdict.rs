//! Shares of a limit, and their start from the last verdict of the whole counter.
//!
//! Instances that cannot count together enforce a share of each limit. Of a counter that was in use before, they divide
//! what remained: the state of the share is one after which it admits the remaining hits, divided by the number of
//! instances and rounded down. So a denial lasts as long as it would, windows end, and buckets refill.
//!
//! Other instances may have charged the counter after its last verdict here. Their charges until the store failed are
//! estimated from the usage up to the verdict, and at most half of what remained is set aside for them: a counter that was
//! not exhausted is not denied by an estimate.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{
    Charging, CounterState, FixedWindow, Policy, Verdict, fixed_window::WIDE_KIND, queue::MAX_QUEUED,
};
use crate::{
    clock::Timestamp,
    descriptor::Hits,
    quota::{Quota, Window},
    saturating::Count,
};

/// Knowledge of a counter since its last verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastVerdict {
    /// Hits that counted, with the tokens that were charged ahead of their use.
    pub(super) used: u64,
    /// Part of `used` that decays before the end of the window of the verdict.
    pub(super) decaying: u32,
    /// Whether a limit override may have charged a bucket more than the rule's can owe.
    pub(super) is_of_override: bool,
    /// Time of the verdict.
    pub decided_at: Timestamp,
    /// Time at which the counter equals an unused one.
    pub(super) reset_at: Timestamp,
    /// Time at which denied hits would pass; that of the verdict if they passed.
    pub(super) retry_at: Timestamp,
}

impl LastVerdict {
    /// Hits that do not decay before the end of the window of the verdict.
    pub(super) const fn current(&self) -> u64 {
        self.used.saturating_sub(self.decaying as u64)
    }

    /// Whether nothing of it counts any more at `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.reset_at <= now
    }
}

/// Hits of a share that corresponds to `used` hits of a limit: it admits the remaining ones, divided by `instances`.
pub(super) fn used_of_share(limit: u64, used: u64, share: u64, instances: NonZeroU32) -> u64 {
    let (remaining, excess) = (Count(limit) - used, Count(used) - limit);
    let used = match excess {
        Count(0) => Count(share) - remaining.0 / NonZeroU64::from(instances),
        Count(excess) => Count(share) + in_proportion(excess, share, limit),
    };
    used.0
}

/// Hits of a share that correspond to `hits` of a limit, rounded up.
pub(super) fn in_proportion(hits: u64, share: u64, limit: u64) -> u64 {
    let part = u128::from(hits).saturating_mul(share.into()).div_ceil(u128::from(limit.max(1)));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Part of a share, as a divisor, that is not granted while the store is slow and still charges the counter.
const RESERVED_PART: u64 = 8;

impl Policy {
    /// Maximum number of hits that count at the same time, without an overdraft.
    pub fn limit(&self) -> u64 {
        match self {
            Self::FixedWindow(policy) => policy.limit,
            Self::SlidingWindow(policy) => policy.limit.into(),
            Self::SlidingWindowLog(policy) => policy.limit.into(),
            Self::TokenBucket(policy) => policy.burst(),
            Self::Concurrency(policy) => policy.limit.into(),
            Self::Budget(policy) => policy.window.limit,
        }
    }

    /// End of the window that contains `now`, in seconds since the epoch; `None` where usage never begins anew.
    pub fn window_end(&self, now: Timestamp) -> Option<u32> {
        match self {
            Self::FixedWindow(policy) => Some(policy.window_end(now)),
            Self::Budget(policy) => Some(policy.window.window_end(now)),
            _ => None,
        }
    }

    /// Whether the limit may have more than 32 bits.
    pub(super) const fn can_be_wide(&self) -> bool {
        matches!(self, Self::FixedWindow(policy) if policy.max_carried == 0 && !policy.carries_unused())
    }

    /// Number that marks the counters in a store.
    pub const fn kind(&self) -> u8 {
        match self {
            Self::FixedWindow(policy) if policy.is_wide() => WIDE_KIND,
            policy => policy.algorithm().kind(),
        }
    }

    /// Returns this policy with another limit, in the same window. A bucket keeps its capacity in time.
    #[must_use]
    pub fn with_limit(self, limit: u32, window: Window) -> Self {
        let quota = Quota { limit: limit.into(), window };
        let bounded = limit.min(MAX_QUEUED);
        match self {
            Self::FixedWindow(policy) => Self::FixedWindow(policy.with_limit(limit.into())),
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.with_limit(limit)),
            Self::SlidingWindowLog(policy) => Self::SlidingWindowLog(policy.with_limit(bounded)),
            Self::TokenBucket(policy) => Self::TokenBucket(policy.with_rate(quota)),
            Self::Concurrency(policy) => Self::Concurrency(policy.with_limit(bounded)),
            Self::Budget(policy) => Self::Budget(policy.with_limit(limit.into())),
        }
    }

    /// Returns this policy of a limit of `whole` hits with a part of `share` hits: in the same window, or with a part of a
    /// bucket's rate and of its tokens.
    #[must_use]
    pub fn region_share(self, share: u32, whole: u32) -> Self {
        let part = |of: u32| {
            let part = (Count(of.into()) * u64::from(share)).0.checked_div(whole.into()).unwrap_or(0);
            u32::try_from(part).unwrap_or(of)
        };
        match self {
            Self::FixedWindow(policy) => {
                let max_carried = part(policy.max_carried);
                Self::FixedWindow(FixedWindow { max_carried, ..policy.with_limit(share.into()) })
            }
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.with_limit(share).rounded_up()),
            Self::SlidingWindowLog(policy) => {
                Self::SlidingWindowLog(policy.with_limit(share.min(MAX_QUEUED)))
            }
            Self::TokenBucket(policy) => Self::TokenBucket(policy.region_share(share, whole)),
            Self::Concurrency(policy) => Self::Concurrency(policy.with_limit(share.min(MAX_QUEUED))),
            Self::Budget(policy) => Self::Budget(policy.with_limit(share.into())),
        }
    }

    /// Time for which a hit may count after the window, or the time, in which its region had the share that admitted it. A
    /// loan of windows lasts for one further window, or for those of some seconds.
    pub fn tail(&self) -> Duration {
        match self {
            Self::FixedWindow(policy) => policy.tail(),
            Self::SlidingWindow(policy) => policy.length().saturating_mul(3),
            Self::SlidingWindowLog(policy) => policy.window,
            Self::TokenBucket(policy) => policy.time_to_fill(),
            Self::Concurrency(policy) => policy.lease_ttl,
            Self::Budget(policy) => policy.window.tail(),
        }
    }

    /// Returns the policy of one of `instances` equal shares, each with its own counter.
    #[must_use]
    pub fn shared_by(self, instances: NonZeroU32) -> Self {
        match self {
            Self::FixedWindow(policy) => Self::FixedWindow(policy.shared_by(instances)),
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.shared_by(instances)),
            Self::SlidingWindowLog(policy) => Self::SlidingWindowLog(policy.shared_by(instances)),
            Self::TokenBucket(policy) => Self::TokenBucket(policy.shared_by(instances)),
            Self::Concurrency(policy) => Self::Concurrency(policy.shared_by(instances)),
            Self::Budget(policy) => Self::Budget(policy.shared_by(instances)),
        }
    }

    /// Returns this share of a limit without the part that the other instances may have charged by now: a limit from 8 hits
    /// on is reduced by an eighth.
    #[must_use]
    pub fn with_reserve(self) -> Self {
        let wide = |limit: u64| (Count(limit) - limit / RESERVED_PART).0;
        let reduced = |limit: u32| Count(wide(limit.into())).word();
        match self {
            Self::FixedWindow(policy) => Self::FixedWindow(policy.with_limit(wide(policy.limit))),
            Self::SlidingWindow(policy) => Self::SlidingWindow(policy.with_limit(reduced(policy.limit))),
            Self::SlidingWindowLog(policy) => {
                Self::SlidingWindowLog(policy.with_limit(reduced(policy.limit)))
            }
            Self::TokenBucket(policy) if policy.burst() >= RESERVED_PART => {
                Self::TokenBucket(policy.without_part(RESERVED_PART))
            }
            Self::Budget(policy) => Self::Budget(policy.with_limit(wide(policy.window.limit))),
            Self::TokenBucket(_) | Self::Concurrency(_) => self,
        }
    }

    /// Returns what a verdict of this policy leaves to know, given that `prefetched` tokens were charged after it.
    pub fn last_verdict(&self, verdict: &Verdict, prefetched: u32) -> LastVerdict {
        let decided_at = verdict.decided_at;
        let reset_at = decided_at.plus(verdict.reset_after);
        let reset_at = match self {
            Self::TokenBucket(policy) => reset_at.plus(policy.time_of(prefetched.into())),
            // What is left of a window, or owed, counts in the next one too.
            Self::FixedWindow(policy) if policy.carries_unused() => {
                let (_, next_end) = policy.next_ends(decided_at);
                Timestamp::from_seconds(next_end).max(reset_at)
            }
            Self::SlidingWindow(policy) => policy.reset_with(verdict, prefetched),
            _ => reset_at,
        };
        LastVerdict {
            used: (Count(verdict.used) + verdict.held + u64::from(prefetched)).0,
            decaying: u32::try_from(verdict.decaying).unwrap_or(u32::MAX),
            is_of_override: matches!(self, Self::TokenBucket(policy) if policy.is_owed_by_override(verdict)),
            decided_at,
            reset_at,
            retry_at: decided_at.plus(verdict.retry_after),
        }
    }

    /// Returns the state of the share of one of `instances` after `last`, if the store last replied at `last_reply_at`.
    /// `None` for permits, which end with their requests.
    pub fn share_after(
        &self,
        last: &LastVerdict,
        last_reply_at: Timestamp,
        instances: NonZeroU32,
    ) -> Option<CounterState> {
        let share = self.shared_by(instances);
        let whole = last.used;
        let mut state = match (self, &share) {
            (Self::FixedWindow(policy), Self::FixedWindow(share)) => {
                CounterState::Words(share.after(policy, last, instances))
            }
            (Self::SlidingWindow(policy), Self::SlidingWindow(share)) => {
                CounterState::Words(share.after(policy, last, instances))
            }
            (Self::TokenBucket(_), Self::TokenBucket(share)) => CounterState::Words(share.after(last)),
            (Self::SlidingWindowLog(policy), Self::SlidingWindowLog(share)) => {
                let used = used_of_share(policy.limit.into(), whole, share.limit.into(), instances);
                let mut state = CounterState::default();
                state.on_log(|log| share.fill(log, used, last, whole >= policy.limit.into()));
                state
            }
            (Self::Budget(policy), Self::Budget(share)) => {
                CounterState::Ledger(Box::new(share.after(policy, last, instances)))
            }
            _ => return None,
        };
        if instances.get() > 1 {
            let now = last.decided_at;
            let Verdict { used, remaining, .. } =
                share.decide(&mut state, now, Hits::Peek, Charging::Independent);
            let missed = share.charged_meanwhile(used, now, last_reply_at).min(remaining / 2);
            if let Hits::Charge(missed) = Hits::charge(missed) {
                share.apply(&mut state, now, Hits::Overdraw(missed), Charging::Independent);
            }
        }
        Some(state)
    }

    /// Hits that count in `state` at `now`, and which it advances to then.
    pub fn used(&self, state: &mut CounterState, now: Timestamp) -> u64 {
        self.decide(state, now, Hits::Peek, Charging::Independent).used
    }

    /// Hits that would still pass at `now`.
    pub fn unused(&self, state: &mut CounterState, now: Timestamp) -> u64 {
        self.decide(state, now, Hits::Peek, Charging::Independent).remaining
    }

    /// Whether `state` leaves less than `other` at `now`.
    pub fn is_fuller(&self, state: &mut CounterState, other: &mut CounterState, now: Timestamp) -> bool {
        let read = |state| self.decide(state, now, Hits::Peek, Charging::Independent);
        let [one, other] = [state, other].map(read);
        (one.used, one.reset_after) > (other.used, other.reset_after)
    }

    /// Estimate of the hits that others charged to a counter between `from` and `to`, of which `used` hits counted at
    /// `from`: as many in that time as before.
    fn charged_meanwhile(&self, used: u64, from: Timestamp, to: Timestamp) -> u64 {
        let elapsed = to.since(from);
        let within = match self {
            Self::FixedWindow(policy) => policy.elapsed(from),
            Self::SlidingWindow(policy) => policy.length(),
            Self::SlidingWindowLog(policy) => policy.window,
            Self::TokenBucket(policy) => return policy.refill(elapsed),
            Self::Concurrency(_) => return 0,
            Self::Budget(policy) => policy.window.elapsed(from),
        };
        let product = u128::from(used).saturating_mul(elapsed.as_micros());
        let expected = product.checked_div(within.as_micros().max(1)).unwrap_or(0);
        u64::try_from(expected).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Algorithm, Parameters},
        quota::Unit,
    };

    #[test]
    fn a_reserve_takes_an_eighth_of_limits_of_8_hits_and_more() {
        let algorithms = [
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::SlidingWindowLog,
            Algorithm::TokenBucket,
        ];
        for algorithm in algorithms {
            for (limit, reduced) in [(0, 0), (1, 1), (7, 7), (8, 7), (166, 146), (800, 700)] {
                let quota = Quota { limit, window: Window::of(Unit::Hour) };
                let policy = Policy::nearest(algorithm, quota, &Parameters::default()).with_reserve();
                assert_eq!(policy.limit(), reduced, "{algorithm:?} of {limit}");
            }
        }
    }
}
