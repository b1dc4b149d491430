//! Charges beyond the limit, and the debts that they leave.

use super::*;

promises!(
    a_charge_beyond_the_limit_is_refused_for_exactly_its_debt,
    a_charge_beyond_the_limit_is_not_withheld,
    a_denied_check_that_is_charged_stays_denied,
    a_bucket_goes_into_debt_up_to_its_bound,
    a_log_keeps_twice_its_limit_of_the_newest_hits,
    a_window_with_a_carry_takes_its_overrun_to_the_next_windows,
);

/// A hundred a minute, with an overdraft of as much.
fn overdrawn(algorithm: Algorithm) -> Policy {
    let quota = Quota { limit: 100, window: Window::from_seconds(60).expect("in range") };
    let parameters = Parameters { overdraft: true, ..Parameters::default() };
    Policy::new(algorithm, quota, &parameters).expect("valid")
}

fn beyond(hits: u64) -> Hits {
    Hits::Overdraw(NonZeroU64::new(hits).expect("not 0"))
}

async fn a_charge_beyond_the_limit_is_refused_for_exactly_its_debt(store: &Subject) {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.holds_permits()) {
        let (name, policy) = (algorithm.name(), overdrawn(algorithm));
        assert!(store.decide_one(at(0), name, policy, Hits::charge(60)).await.admitted, "{name}");
        let charged = store.decide_one(at(0), name, policy, beyond(80)).await;
        assert_eq!((charged.admitted, charged.used, charged.over), (false, 140, 40), "{name}");
        let look = store.decide_one(at(0), name, policy, Hits::Peek).await;
        assert_eq!((look.admitted, look.remaining, look.used), (false, 0, 140), "{name}");
        let paid_at = u64::try_from(look.retry_after.as_micros()).expect("finite");
        assert!(!store.decide_one(at(paid_at - 1), name, policy, Hits::Peek).await.admitted, "{name}");
        assert!(store.decide_one(at(paid_at), name, policy, Hits::Peek).await.admitted, "{name}");
    }
}

async fn a_charge_beyond_the_limit_is_not_withheld(store: &Subject) {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.holds_permits()) {
        let (name, policy) = (algorithm.name(), overdrawn(algorithm));
        let plain = limited(Algorithm::TokenBucket);
        let checks = [((0, policy, beyond(30)), true), ((1, plain, Hits::charge(4)), true)];
        let both = charging(Charging::AllOrNone, name, &checks);
        for used in [30, 60, 90, 120] {
            let verdicts = store.decide(at(0), &both).await;
            assert_eq!((verdicts[0].used, verdicts[1].used), (used, 0), "{name}");
            assert_eq!(verdicts[0].admitted, used <= 100, "{name}");
        }
        // Over the limit itself, it keeps others from being charged.
        let checks = [((0, policy, beyond(1)), true), ((1, plain, Hits::ONE), true)];
        let verdicts = store.decide(at(0), &charging(Charging::AllOrNone, name, &checks)).await;
        assert_eq!((verdicts[0].used, verdicts[1].used), (121, 0), "{name}");
    }
}

/// Two checks of one counter, of which the second denies the request: without the charge of the first it would pass.
async fn a_denied_check_that_is_charged_stays_denied(store: &Subject) {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.holds_permits()) {
        let (name, policy) = (algorithm.name(), policy(algorithm, 10, 60));
        let decide = async |hits: [Hits; 2], veto| {
            let checks = hits.map(|hits| ((0, policy, hits), veto));
            let verdicts = store.decide(at(0), &charging_with(Charging::AllOrNone, name, &checks)).await;
            ([verdicts[0].admitted, verdicts[1].admitted], verdicts[1].used)
        };
        let (two, counts_denied) = (Hits::charge(2), algorithm == Algorithm::FixedWindow);
        assert_eq!(decide([two, Hits::charge(6)], Veto::Counted).await, ([true; 2], 8), "{name}");
        let used = if counts_denied { 10 } else { 8 };
        assert_eq!(decide([two, two], Veto::Counted).await, ([true, false], used), "{name}");
        // A charge beyond the limit is made, and denies.
        store.decide_one(at(0), name, policy, Hits::refund(used - 8)).await;
        assert_eq!(decide([two, beyond(1)], Veto::Alone).await, ([true, false], 9), "{name}");
    }
}

async fn a_bucket_goes_into_debt_up_to_its_bound(store: &Subject) {
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let parameters =
        Parameters { burst: Some(10), overdraft: true, max_debt: Some(5), ..Parameters::default() };
    let bucket = Policy::new(Algorithm::TokenBucket, quota, &parameters).expect("valid");
    let charged = store.decide_one(at(0), "a", bucket, beyond(1_000)).await;
    assert_eq!((charged.used, charged.reset_after.as_secs()), (15, 15));
    assert!(!store.decide_one(at(5 * SECOND - 1), "a", bucket, Hits::Peek).await.admitted);
    assert!(store.decide_one(at(5 * SECOND), "a", bucket, Hits::Peek).await.admitted);
    assert!(store.decide_one(at(6 * SECOND), "a", bucket, Hits::ONE).await.admitted);
}

async fn a_log_keeps_twice_its_limit_of_the_newest_hits(store: &Subject) {
    let log = limited(Algorithm::SlidingWindowLog);
    for (second, used) in [(0, 6), (10, 6), (20, 6)] {
        let charged = store.decide_one(at(second * SECOND), "a", log, beyond(1_000)).await;
        assert_eq!((charged.used, charged.reset_after.as_secs()), (used, 60));
    }
    assert!(!store.decide_one(at(80 * SECOND - 1), "a", log, Hits::Peek).await.admitted);
    assert!(store.decide_one(at(80 * SECOND), "a", log, Hits::Peek).await.admitted);
}

async fn a_window_with_a_carry_takes_its_overrun_to_the_next_windows(store: &Subject) {
    let quota = Quota { limit: 100, window: Window::from_seconds(60).expect("in range") };
    let parameters =
        Parameters { overdraft: true, carry: true, max_debt: Some(150), ..Parameters::default() };
    let window = Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid");
    store.decide_one(at(0), "a", window, beyond(60)).await;
    let charged = store.decide_one(at(0), "a", window, beyond(180)).await;
    assert_eq!((charged.used, charged.over, charged.reset_after.as_secs()), (240, 140, 180));
    let look = store.decide_one(at(0), "a", window, Hits::Peek).await;
    assert_eq!((look.admitted, look.retry_after.as_secs()), (false, 120));
    for (second, used, admitted) in [(59, 240, false), (60, 140, false), (119, 140, false), (120, 40, true)] {
        let look = store.decide_one(at(second * SECOND), "a", window, Hits::Peek).await;
        assert_eq!((look.used, look.admitted), (used, admitted), "after {second} s");
    }
    assert_eq!(store.decide_one(at(120 * SECOND), "a", window, beyond(500)).await.used, 250);
    assert_eq!(store.decide_one(at(360 * SECOND), "a", window, beyond(1)).await.used, 1);
}
