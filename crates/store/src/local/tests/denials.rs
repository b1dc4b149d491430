//! Denials that are decided without the server.

use super::*;

fn strict(policy: Policy, hits: Hits) -> TagRequest {
    request(Charging::Independent, [check(0, policy, hits, SyncMode::Strict)])
}

/// A request of a hit of each of these limits.
fn both(charging: Charging, limits: [u32; 2]) -> TagRequest {
    let [first, second] = limits.map(|limit| policy(Algorithm::FixedWindow, limit));
    request(
        charging,
        [(0, first), (1, second)].map(|(at, policy)| check(at, policy, Hits::ONE, SyncMode::Strict)),
    )
}

#[test]
fn a_denial_is_valid_for_its_time_and_half_a_second_at_most() {
    for (algorithm, limit, stands) in [
        (Algorithm::FixedWindow, 2, 500),
        (Algorithm::SlidingWindow, 2, 500),
        (Algorithm::SlidingWindowLog, 2, 500),
        // One token per 100 ms.
        (Algorithm::TokenBucket, 600, 100),
    ] {
        let mut server = Server::new();
        let policy = policy(algorithm, limit);
        assert!(server.admits(&one(policy, u64::from(limit), SyncMode::Strict), 0));
        let more = one(policy, 1, SyncMode::Strict);
        assert!(!server.admits(&more, 0));
        assert_eq!(server.sent, 2);
        assert!(!server.admits(&more, stands - 1));
        assert_eq!(server.sent, 2, "{algorithm:?}");
        assert_eq!(server.admits(&more, stands), algorithm == Algorithm::TokenBucket);
        assert_eq!(server.sent, 3, "{algorithm:?}");
    }
}

#[test]
fn a_cached_denial_returns_the_remaining_times() {
    let mut server = Server::new();
    let policy = policy(Algorithm::FixedWindow, 1);
    server.admits(&one(policy, 1, SyncMode::Strict), 0);
    let first = server.decide(&one(policy, 1, SyncMode::Strict), 0)[0];
    let background = server.decide(&one(policy, 1, SyncMode::Strict), 300)[0];
    let passed = Duration::from_millis(300);
    let expected = Verdict {
        reset_after: first.reset_after - passed,
        retry_after: first.retry_after - passed,
        decided_at: first.decided_at.plus(passed),
        ..first
    };
    assert_eq!((server.sent, background), (2, expected));
}

#[test]
fn a_denial_covers_as_many_hits_or_more() {
    let mut server = Server::new();
    let policy = policy(Algorithm::TokenBucket, 10);
    assert!(server.admits(&one(policy, 7, SyncMode::Strict), 0));
    assert!(!server.admits(&one(policy, 5, SyncMode::Strict), 0));
    let denied = server.decide(&one(policy, 6, SyncMode::Strict), 0)[0];
    assert_eq!((server.sent, denied.admitted, denied.over), (2, false, 6));
    assert!(server.admits(&one(policy, 3, SyncMode::Strict), 0));
    assert_eq!(server.sent, 3);
}

#[test]
fn denials_from_memory_count_the_rest_of_a_limit_only_once() {
    let over = |charging, millis: &[u64]| {
        let mut server = Server::new();
        let policy = policy(Algorithm::FixedWindow, 12);
        let five = request(charging, [check(0, policy, Hits::charge(5), SyncMode::Strict)]);
        assert!(server.admits(&five, 0) && server.admits(&five, 0));
        let over: Vec<_> = millis.iter().map(|at| server.decide(&five, *at)[0].over).collect();
        (over, server.sent)
    };
    // The third call takes the remaining 2, as its denied hits count.
    assert_eq!(over(Charging::Independent, &[0, 10, 20]), (vec![3, 5, 5], 3));
    assert_eq!(over(Charging::Independent, &[0, 600, 1_200]), (vec![3, 5, 5], 5));
    // They do not where one denial keeps all counters from being charged.
    assert_eq!(over(Charging::AllOrNone, &[0, 10, 600]), (vec![3, 3, 3], 4));
}

#[test]
fn a_denial_ends_with_a_refund_or_a_change_of_the_rule() {
    let mut server = Server::new();
    let strict = |limit, hits| strict(policy(Algorithm::FixedWindow, limit), hits);
    assert!(server.admits(&strict(2, Hits::charge(2)), 0));
    assert!(!server.admits(&strict(2, Hits::ONE), 0));
    assert!(server.admits(&strict(9, Hits::ONE), 0), "the limit was raised");
    assert!(!server.admits(&strict(2, Hits::ONE), 0));
    server.decide(&strict(2, Hits::reset()), 0);
    assert!(server.admits(&strict(2, Hits::ONE), 0), "hits were refunded");
}

#[test]
fn peeks_and_refunds_are_always_sent() {
    let mut server = Server::new();
    let policy = policy(Algorithm::FixedWindow, 1);
    server.admits(&strict(policy, Hits::ONE), 0);
    server.admits(&strict(policy, Hits::ONE), 0);
    for (sent, hits) in [(3, Hits::Peek), (4, Hits::refund(1))] {
        server.decide(&strict(policy, hits), 0);
        assert_eq!(server.sent, sent);
    }
}

#[test]
fn permits_are_always_requested_from_the_store() {
    let mut server = Server::new();
    let policy = policy(Algorithm::Concurrency, 1);
    for _ in 0..3 {
        let hits = Hits::Acquire { amount: NonZeroU64::MIN, lease: LeaseId::random() };
        server.decide(&strict(policy, hits), 0);
    }
    assert_eq!(server.sent, 3);
}

#[test]
fn independent_counters_are_sent_unless_all_are_denied() {
    let mut server = Server::new();
    for sent in 1..=3 {
        server.decide(&both(Charging::Independent, [1, 9]), 0);
        assert_eq!(server.sent, sent);
    }
    assert_eq!(count(&server.states[1]), 3, "the other counter was charged each time");
}

#[test]
fn one_denial_suffices_for_counters_charged_all_or_none() {
    let mut server = Server::new();
    let both = both(Charging::AllOrNone, [1, 9]);
    assert!(server.admits(&both, 0));
    let first = server.decide(&both, 0);
    let second = server.decide(&both, 0);
    assert_eq!((server.sent, &first), (2, &second));
    assert_eq!(first.iter().map(|verdict| verdict.admitted).collect::<Vec<_>>(), [false, true]);
    // The other check alone is not denied.
    let other = check(1, policy(Algorithm::FixedWindow, 9), Hits::ONE, SyncMode::Strict);
    server.decide(&request(Charging::AllOrNone, [other]), 0);
    assert_eq!(server.sent, 3);
}

#[test]
fn a_failure_invalidates_the_cache() {
    let mut server = Server::new();
    let denied = one(policy(Algorithm::FixedWindow, 1), 1, SyncMode::Strict);
    server.admits(&denied, 0);
    server.admits(&denied, 0);
    server.local.forget(&denied);
    server.admits(&denied, 0);
    assert_eq!(server.sent, 3);
    server.local.forget_all();
    server.admits(&denied, 0);
    assert_eq!(server.sent, 4);
}

/// Figures of docs/internals/local-cache.md.
#[test]
fn the_cache_stays_within_its_documented_memory() {
    let (mut cache, now, policy) =
        (CounterCache::default(), Instant::now(), policy(Algorithm::FixedWindow, 1));
    let check = check(0, policy, Hits::ONE, SyncMode::Strict);
    let verdict = policy.verdict(
        StateSummary::Words([NOW.seconds() + 60, 2, 0]),
        NOW,
        Hits::ONE,
        false,
        Charging::Independent,
    );
    let mut largest = 0;
    for number in 0..4 * MAX_GENERATION_ENTRIES {
        let cell = Cell { key: cell(number), checks: [check].into_iter().collect() };
        cache.learn(&cell, &check, &verdict, true, 0, now);
        cache.collect_evicted();
        largest = largest.max(cache.allocated_bytes());
    }
    assert!(largest <= 28_500_000, "{largest}");
}
