//! Shares of counters in debt, and of windows with a carry.

use super::*;

/// A counter after an overdraft, and the denial that follows it.
fn overdrawn(mut whole: Counter, hits: u64) -> (Counter, Verdict) {
    whole.charge(0, Hits::Overdraw(hits.try_into().expect("not 0")));
    let denial = whole.charge(0, Hits::ONE);
    (whole, denial)
}

#[test]
fn hits_that_a_window_carries_are_remembered_until_the_end_of_the_next() {
    let parameters = Parameters { overdraft: true, carry: true, unused_percent: 20, ..Parameters::default() };
    let (whole, denial) =
        overdrawn(Counter::with(Algorithm::FixedWindow, quota_of(100, 60), parameters), 220);
    assert_eq!(denial.retry_after, Duration::from_secs(100));
    let last = whole.policy.last_verdict(&denial, 0);
    assert!(!last.is_over(Timestamp::from_micros(START + 99_000_000)));
    assert!(last.is_over(Timestamp::from_micros(START + 100_000_000)));
    assert_eq!(whole.share(&denial, 0, instances(3)).drain(99_000_000), 0);
}

#[test]
fn a_debt_lasts_as_long_with_more_instances_than_hits() {
    let parameters = Parameters { overdraft: true, carry: true, max_debt: Some(30), ..Parameters::default() };
    let fixed = Counter::with(Algorithm::FixedWindow, quota_of(3, 60), parameters);
    let sliding = Counter::whole(Algorithm::SlidingWindow, quota_of(3, 60));
    for (counter, debt) in [(fixed, 33), (sliding, 23)] {
        let (whole, denial) = overdrawn(counter, debt);
        assert!(denial.retry_after > Duration::from_secs(60));
        let mut share = whole.share(&denial, 0, instances(10));
        let retry_at = denial.retry_after.as_micros() as u64;
        let admitted = (share.drain(retry_at - 1), share.drain(retry_at + 1_000_000));
        assert_eq!(admitted, (0, 1), "{debt}");
    }
}

#[test]
fn the_debt_of_a_limit_override_denies_as_long() {
    let rule = Counter::whole(Algorithm::TokenBucket, quota_of(10, 60)).policy;
    // Also one of 108 s, of which the rule's bucket can owe 60 s.
    for (hits, seconds) in [(100, 3_546), (3, 54)] {
        let mut whole = Counter::of(rule.with_quota(quota_of(100, 3_600)));
        assert!(whole.charge(0, Hits::charge(hits)).admitted);
        whole.policy = rule;
        let denial = whole.charge(0, Hits::ONE);
        assert_eq!(denial.retry_after, Duration::from_secs(seconds));
        let mut share = whole.share(&denial, 0, instances(1));
        let admitted = (share.drain((seconds - 1) * 1_000_000), share.drain(seconds * 1_000_000));
        assert_eq!(admitted, (0, 1), "{hits}");
    }
}

#[test]
fn a_debt_of_a_log_denies_no_longer() {
    let parameters = Parameters { overdraft: true, ..Parameters::default() };
    let mut whole = Counter::with(Algorithm::SlidingWindowLog, quota_of(10, 60), parameters);
    for (at, hits) in [(0, 9_u64), (1_000_000, 9), (50_000_000, 1)] {
        whole.charge(at, Hits::Overdraw(hits.try_into().expect("not 0")));
    }
    let denial = whole.charge(50_000_000, Hits::ONE);
    assert_eq!(denial.retry_after, Duration::from_secs(11));
    let mut share = whole.share(&denial, 0, instances(1));
    assert_eq!((share.drain(60_999_999), share.drain(61_000_000)), (0, 1));
}

#[test]
fn the_debt_of_a_limit_override_that_passed_denies_as_long() {
    let rule = Counter::whole(Algorithm::TokenBucket, quota_of(10, 60)).policy;
    let of_override = rule.with_quota(quota_of(100, 3_600));
    let mut whole = Counter::of(of_override);
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
    let mut whole = Counter::of(old);
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
    let (whole, denial) = overdrawn(Counter::with(Algorithm::FixedWindow, quota_of(19, 60), parameters), 209);
    assert_eq!(denial.reset_after, Duration::from_secs(640));
    let mut share = whole.share(&denial, 0, instances(10));
    assert_eq!(share.drain(640_000_000), 1);
}

#[test]
fn unused_hits_of_the_window_before_are_no_debt() {
    let parameters = Parameters { overdraft: true, carry: true, unused_percent: 20, ..Parameters::default() };
    let mut whole = Counter::with(Algorithm::FixedWindow, quota_of(10, 60), parameters);
    assert_eq!(whole.drain(0), 12);
    let denial = whole.charge(0, Hits::ONE);
    let end = denial.retry_after.as_micros() as u64;
    let mut share = whole.share(&denial, 0, instances(10));
    assert_eq!((whole.drain(end), share.drain(end)), (10, 1));
}

#[test]
fn the_rest_of_a_window_with_unused_hits_is_divided() {
    let parameters = Parameters { unused_percent: 100, ..Parameters::default() };
    let mut whole = Counter::with(Algorithm::FixedWindow, quota_of(14, 60), parameters);
    let verdict = whole.charge(0, Hits::charge(14));
    assert_eq!(verdict.remaining, 14);
    assert_eq!(whole.share(&verdict, 0, instances(100)).drain(0), 0);
}
