//! Histories in which the scripts once differed from the algorithms or from their documentation.

use super::*;
use crate::support::stores::policy as plain;

/// The wait of a denied check after a refund of all hits and new ones, in one call.
#[tokio::test]
async fn a_log_refunded_and_charged_in_one_call_waits_for_the_new_hits() {
    let redis = Redis::start();
    let policy = plain(Algorithm::SlidingWindowLog, 5, 60);
    for subject in [Subject::memory(), Subject::redis(redis.store())] {
        subject.decide(at(0), &call("log", &[(0, policy, Hits::ONE)])).await;
        let checks = [(0, policy, Hits::refund(1)), (0, policy, Hits::charge(5)), (0, policy, Hits::ONE)];
        let verdicts = subject.decide(at(50_000_000), &call("log", &checks)).await;
        assert_eq!(verdicts[2].retry_after, Duration::from_secs(60), "{subject:?}");
    }
}

fn budget(limit: u64, seconds: u32, ttl: u32, unsettled: Unsettled) -> Policy {
    let quota = Quota { limit, window: Window::from_seconds(seconds).expect("in range") };
    let reserve = Reserve { ttl: ttl.try_into().expect("not 0"), unsettled, add: 0, cap: None };
    let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
    Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid")
}

fn lease_of(number: u64) -> LeaseId {
    LeaseId::new(NonZeroU64::new(number).expect("not 0"))
}

/// A check of a call that charges all or none is weighed before the call's settlements, whatever it charges.
#[tokio::test]
async fn a_peek_beside_a_settlement_is_weighed_before_it() {
    let redis = Redis::start();
    let wide = budget(20, 3_600, 90, Unsettled::Release);
    let narrow = budget(10, 3_600, 90, Unsettled::Release);
    let mut found = Vec::new();
    for subject in [Subject::memory(), Subject::redis(redis.store())] {
        let hold = Hits::Acquire { amount: NonZeroU64::new(15).expect("not 0"), lease: lease_of(1) };
        subject.decide(at(0), &call("peek", &[(0, wide, hold)])).await;
        let checks = [
            ((0, narrow, Hits::Settle { lease: lease_of(1), used: 1 }), Veto::Alone),
            ((0, narrow, Hits::Peek), Veto::Alone),
        ];
        let verdicts =
            subject.decide(at(1_000_000), &charging_with(Charging::AllOrNone, "peek", &checks)).await;
        found.push(verdicts[1].admitted);
    }
    assert_eq!(found, [false, false], "in memory and in Redis");
}

/// A reservation that is never settled counts as used until the end of the window, also if the counter is idle.
#[tokio::test]
async fn what_an_unsettled_lease_reserved_counts_after_idle_time_in_memory() {
    let policy = budget(10, 3_600, 10, Unsettled::Charge);
    let subject = Subject::memory();
    let hold = Hits::Acquire { amount: NonZeroU64::new(8).expect("not 0"), lease: lease_of(1) };
    assert!(subject.decide_one(at(0), "idle", policy, hold).await.admitted);
    // Far more than both lifetimes of the lease, but the window goes on.
    // Other counters make the store drop the expired ones.
    for second in 1..600 {
        let other = format!("another-{second}");
        subject.decide_one(at(second * 1_000_000), &other, policy, Hits::ONE).await;
    }
    let seen = subject.decide_one(at(600_000_000), "idle", policy, Hits::Peek).await;
    assert_eq!((seen.used, seen.remaining), (8, 2));
}

#[tokio::test]
async fn what_an_unsettled_lease_reserved_counts_after_idle_time_in_redis() {
    let (_redis, store) = Redis::start_store();
    let policy = budget(10, 31_536_000, 1, Unsettled::Charge);
    let hold = Hits::Acquire { amount: NonZeroU64::new(8).expect("not 0"), lease: lease_of(1) };
    assert!(store.decide(&call("idle", &[(0, policy, hold)])).await.expect("decided")[0].1.admitted);
    sleep(Duration::from_millis(3_200)).await;
    let seen = store.decide(&call("idle", &[(0, policy, Hits::Peek)])).await.expect("decided")[0].1;
    assert_eq!((seen.used, seen.remaining), (8, 2));
}

/// Denied calls after the clock stepped back leave a bucket as it is, however many there are.
#[tokio::test]
async fn a_bucket_ahead_of_the_clock_stays_for_each_denied_call() {
    let redis = Redis::start();
    let (small, large) =
        (plain(Algorithm::TokenBucket, 16, 86_400), plain(Algorithm::TokenBucket, 16, 86_500));
    let mut found = Vec::new();
    for is_run in [false, true] {
        let store = |micros: u64| redis.store().at_time(at(micros));
        let name = format!("ahead-{is_run}");
        store(20_000_000_000).decide(&call(&name, &[(0, small, Hits::charge(16))])).await.expect("decided");
        let one = call(&name, &[(0, large, Hits::ONE)]);
        if is_run {
            let run = Run { request: &one, times: 2, prefetches: &[], reported: &[] };
            store(2_000_000_000).decide_runs(&[run], CommandKeys::NoSlots).await.expect("decided");
        } else {
            for _ in 0..2 {
                store(2_000_000_000).decide(&one).await.expect("decided");
            }
        }
        // The clock is right again.
        let seen =
            store(20_000_000_000).decide(&call(&name, &[(0, large, Hits::Peek)])).await.expect("decided")[0]
                .1;
        found.push(seen.remaining);
    }
    assert_eq!(found, [0, 0]);
}
