//! Shares of counters in debt, and of windows with a carry.

use super::*;

/// A counter after an overdraft, and the denial that follows it.
fn overdrawn(policy: Policy, hits: u64) -> (Counter, Verdict) {
    let mut whole = Counter { policy, state: CounterState::default() };
    whole.charge(0, Hits::Overdraw(hits.try_into().expect("not 0")));
    let denial = whole.charge(0, Hits::ONE);
    (whole, denial)
}

#[test]
fn hits_that_a_window_carries_are_remembered_until_the_end_of_the_next() {
    let parameters = Parameters { overdraft: true, carry: true, unused_percent: 20, ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota_of(100, 60), &parameters).expect("valid");
    let (whole, denial) = overdrawn(policy, 220);
    assert_eq!(denial.retry_after, Duration::from_secs(100));
    let last = policy.last_verdict(&denial, 0);
    assert!(!last.is_over(Timestamp::from_micros(START + 99_000_000)));
    assert!(last.is_over(Timestamp::from_micros(START + 100_000_000)));
    assert_eq!(whole.share(&denial, 0, instances(3)).drain(99_000_000), 0);
}

#[test]
fn a_debt_lasts_as_long_with_more_instances_than_hits() {
    let parameters = Parameters { overdraft: true, carry: true, max_debt: Some(30), ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota_of(3, 60), &parameters).expect("valid");
    let sliding = Counter::whole(Algorithm::SlidingWindow, quota_of(3, 60)).policy;
    for (policy, debt) in [(policy, 33), (sliding, 23)] {
        let (whole, denial) = overdrawn(policy, debt);
        assert!(denial.retry_after > Duration::from_secs(60));
        let mut share = whole.share(&denial, 0, instances(10));
        let retry_at = denial.retry_after.as_micros() as u64;
        let admitted = (share.drain(retry_at - 1), share.drain(retry_at + 1_000_000));
        assert_eq!(admitted, (0, 1), "{policy:?}");
    }
}

#[test]
fn the_debt_of_a_limit_override_denies_as_long() {
    let mut whole = Counter::whole(Algorithm::TokenBucket, quota_of(10, 60));
    let rule = whole.policy;
    whole.policy = rule.with_quota(quota_of(100, 3_600));
    whole.drain(0);
    whole.policy = rule;
    let denial = whole.charge(0, Hits::ONE);
    assert_eq!(denial.retry_after, Duration::from_secs(3_546));
    let mut share = whole.share(&denial, 0, instances(1));
    assert_eq!((share.drain(3_545_000_000), share.drain(3_546_000_000)), (0, 1));
}

#[test]
fn a_debt_of_a_log_denies_no_longer() {
    let parameters = Parameters { overdraft: true, ..Parameters::default() };
    let policy = Policy::new(Algorithm::SlidingWindowLog, quota_of(10, 60), &parameters).expect("valid");
    let mut whole = Counter { policy, state: CounterState::default() };
    for (at, hits) in [(0, 9_u64), (1_000_000, 9), (50_000_000, 1)] {
        whole.charge(at, Hits::Overdraw(hits.try_into().expect("not 0")));
    }
    let denial = whole.charge(50_000_000, Hits::ONE);
    assert_eq!(denial.retry_after, Duration::from_secs(11));
    let mut share = whole.share(&denial, 0, instances(1));
    assert_eq!((share.drain(60_999_999), share.drain(61_000_000)), (0, 1));
}

#[test]
fn a_small_debt_of_a_limit_override_denies_as_long() {
    let rule = Counter::whole(Algorithm::TokenBucket, quota_of(10, 60)).policy;
    let mut whole = Counter { policy: rule.with_quota(quota_of(100, 3_600)), state: CounterState::default() };
    // 108 s, of which the rule's bucket can owe 60 s.
    whole.charge(0, Hits::charge(3));
    whole.policy = rule;
    let denial = whole.charge(0, Hits::ONE);
    assert_eq!(denial.retry_after, Duration::from_secs(54));
    let mut share = whole.share(&denial, 0, instances(1));
    assert_eq!((share.drain(53_000_000), share.drain(54_000_000)), (0, 1));
}

#[test]
fn the_debt_of_a_limit_override_that_passed_denies_as_long() {
    let rule = Counter::whole(Algorithm::TokenBucket, quota_of(10, 60)).policy;
    let of_override = rule.with_quota(quota_of(100, 3_600));
    let mut whole = Counter { policy: of_override, state: CounterState::default() };
    let passed = whole.charge(0, Hits::charge(100));
    let last = of_override.last_verdict(&passed, 0);
    whole.policy = rule;
    assert!(!whole.charge(60_000_000, Hits::ONE).admitted);
    let state = rule.share_after(&last, passed.decided_at, instances(1)).expect("remembered");
    assert_eq!(Counter { policy: rule, state }.drain(60_000_000), 0);
}

#[test]
fn a_request_larger_than_a_bucket_is_not_taken_for_a_limit_override() {
    let of = |burst| {
        let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
        Policy::new(Algorithm::TokenBucket, quota_of(60, 60), &parameters).expect("valid")
    };
    let (old, new) = (of(600), of(10));
    let mut whole = Counter { policy: old, state: CounterState::default() };
    whole.charge(0, Hits::charge(600));
    let denial = whole.charge(0, Hits::charge(601));
    let last = old.last_verdict(&denial, 0);
    // After a reload, no request waits for longer than the bucket takes to fill.
    let state = new.share_after(&last, denial.decided_at, instances(1)).expect("remembered");
    assert_eq!(Counter { policy: new, state }.drain(2_000_000), 2);
}

#[test]
fn a_carried_debt_lasts_no_longer_where_shares_are_rounded_down() {
    let parameters =
        Parameters { overdraft: true, carry: true, max_debt: Some(190), ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota_of(19, 60), &parameters).expect("valid");
    let (whole, denial) = overdrawn(policy, 209);
    assert_eq!(denial.reset_after, Duration::from_secs(640));
    let mut share = whole.share(&denial, 0, instances(10));
    assert_eq!(share.drain(640_000_000), 1);
}

#[test]
fn unused_hits_of_the_window_before_are_no_debt() {
    let parameters = Parameters { overdraft: true, carry: true, unused_percent: 20, ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota_of(10, 60), &parameters).expect("valid");
    let mut whole = Counter { policy, state: CounterState::default() };
    assert_eq!(whole.drain(0), 12);
    let denial = whole.charge(0, Hits::ONE);
    let end = denial.retry_after.as_micros() as u64;
    let mut share = whole.share(&denial, 0, instances(10));
    assert_eq!((whole.drain(end), share.drain(end)), (10, 1));
}

#[test]
fn the_rest_of_a_window_with_unused_hits_is_divided() {
    let parameters = Parameters { unused_percent: 100, ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota_of(14, 60), &parameters).expect("valid");
    let mut whole = Counter { policy, state: CounterState::default() };
    let verdict = whole.charge(0, Hits::charge(14));
    assert_eq!(verdict.remaining, 14);
    assert_eq!(whole.share(&verdict, 0, instances(100)).drain(0), 0);
}
