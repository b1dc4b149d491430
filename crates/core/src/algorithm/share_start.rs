//! Shares of a limit, and their start from the last verdict of the whole counter.
//!
//! Instances that cannot count together enforce a share of each limit. Of a counter that was in use before, they divide
//! what remained: the state of the share is one after which it admits the remaining hits, divided by the number of
//! instances and rounded down. So a denial lasts as long as it would, windows end, and buckets refill.
//!
//! Other instances may have charged the counter after its last verdict here. Their charges until the store failed are
//! estimated from the usage up to the verdict, and at most half of what remained is set aside for them: a counter that was
//! not exhausted is not denied by an estimate.

use std::num::NonZeroU32;

use super::{Charging, LastVerdict, LimitAlgorithm, Verdict};
use crate::{clock::Timestamp, descriptor::Hits};

/// Returns the state of the share of one of `instances` after `last`, if the store last replied at `last_reply_at`.
pub(super) fn state<A: LimitAlgorithm>(
    whole: &A,
    last: &LastVerdict,
    last_reply_at: Timestamp,
    instances: NonZeroU32,
) -> Option<A::State> {
    let (share, now) = (whole.shared_by(instances), last.decided_at);
    let mut state = share.after(whole, last, instances)?;
    if instances.get() > 1 {
        let Verdict { used, remaining, .. } =
            share.decide(&mut state, now, Hits::Peek, Charging::Independent);
        let missed = share.expected_hits(used, now, last_reply_at.since(now)).min(remaining / 2);
        if let Hits::Charge(missed) = Hits::charge(missed) {
            share.apply(&mut state, now, Hits::Overdraw(missed), Charging::Independent);
        }
    }
    Some(state)
}

#[cfg(test)]
mod tests {
    use crate::{
        algorithm::{Algorithm, Parameters, Policy},
        quota::{Quota, Unit, Window},
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
