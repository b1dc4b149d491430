//! Counters that are charged ahead, and refunds of what is not used.

use super::*;

#[test]
fn counters_in_demand_are_charged_ahead_and_never_too_much() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let mut server = Server::new();
        let leased = one(policy(algorithm, 1_000), 1, SyncMode::Leased);
        let admitted = (0..3_000).filter(|at| server.admits(&leased, at / 10)).count();
        // A bucket refills five tokens meanwhile.
        let max_admitted = if algorithm == Algorithm::TokenBucket { 1_005 } else { 1_000 };
        assert!((980..=max_admitted).contains(&admitted), "{algorithm:?}: {admitted}");
        assert!(server.sent < 1_000, "{algorithm:?}: {}", server.sent);
    }
}

#[test]
fn rarely_used_counters_are_not_charged_ahead() {
    let mut server = Server::new();
    let leased = one(policy(Algorithm::FixedWindow, 1_000_000), 1, SyncMode::Leased);
    for at in 0..20 {
        assert!(server.admits(&leased, at * 12_000));
        assert_eq!(server.local.held_hits(&leased, server.at(at * 12_000)), 0);
    }
    assert_eq!(server.sent, 20);
}

#[test]
fn unused_tokens_are_refunded_once() {
    let mut server = Server::new();
    let leased = one(policy(Algorithm::FixedWindow, 1_000_000), 1, SyncMode::Leased);
    server.admit_all(&leased, (0..1_000).map(|at| at / 10));
    let charged = count(&server.states[0]);
    assert!(charged > 1_000, "{charged}");
    assert!(server.local.take_unused(server.at(100)).requests.is_empty(), "still held");
    let UnusedTokens { requests, slot, has_more } = server.local.take_unused(server.at(10_100));
    assert!(slot.is_some() && !has_more, "the slot ends with its refunds");
    let refunded = refunded(&requests);
    assert_eq!(u64::from(charged), 1_000 + refunded);
    assert!(server.local.take_unused(server.at(20_000)).requests.is_empty());
}

#[test]
fn tokens_of_an_ended_window_are_neither_refunded_nor_spent() {
    let mut server = Server::new();
    let leased = one(policy(Algorithm::FixedWindow, 1_000_000), 1, SyncMode::Leased);
    // Up to the end of the window.
    server.admit_all(&leased, (0..1_000).map(|at| 29_890 + at / 10));
    let sent = server.sent;
    assert!(server.admits(&leased, 30_000));
    assert!(server.sent > sent, "a token of the window before");
    let UnusedTokens { requests, .. } = server.local.take_unused(server.at(31_000));
    let undone = requests.iter().flat_map(TagRequest::checks).filter(|check| match check.hits {
        Hits::RefundCharge { made_at, .. } => made_at < NOW.plus(Duration::from_secs(30)),
        _ => false,
    });
    assert_eq!(undone.count(), 0);
}

#[test]
fn a_changed_rule_refunds_the_tokens_held() {
    let mut server = Server::new();
    let leased = |limit| one(policy(Algorithm::FixedWindow, limit), 1, SyncMode::Leased);
    server.admit_all(&leased(1_000_000), (0..1_000).map(|at| at / 10));
    let held = count(&server.states[0]) - 1_000;
    assert!(held > 0);
    let sent = server.sent;
    server.admits(&leased(2), 101);
    assert_eq!(server.sent, sent + 1);
    let UnusedTokens { requests, .. } = server.local.take_unused(server.at(101));
    let refunded = requests.iter().flat_map(TagRequest::checks).any(
        |check| matches!(check.hits, Hits::RefundCharge { amount, .. } if amount.get() == u64::from(held)),
    );
    assert!(refunded);
}

#[test]
fn tokens_granted_after_a_change_of_the_rule_are_refunded() {
    let mut server = Server::new();
    let leased = |limit| one(policy(Algorithm::FixedWindow, limit), 1, SyncMode::Leased);
    let (before, after) = (leased(1_000_000), leased(2_000_000));
    server.decide(&before, 0);
    let (_, verdict) = server.send(&before, 0)[0];
    // The rule changes while the request is in flight.
    assert!(server.local.decide(&after, server.at(1)).is_none());
    server.local.learn(&before, server.at(0), &outcome(verdict, [48]));
    let refunded: Vec<_> = server
        .local
        .take_unused(server.at(2))
        .requests
        .iter()
        .flat_map(TagRequest::checks)
        .map(|check| check.hits)
        .collect();
    assert!(
        matches!(refunded[..], [Hits::RefundCharge { amount, .. }] if amount.get() == 48),
        "{refunded:?}"
    );
}

#[test]
fn counters_checked_twice_are_not_charged_ahead() {
    let server = Server::new();
    let policy = policy(Algorithm::TokenBucket, 1_000_000);
    let hits = [Hits::charge(1), Hits::charge(2)];
    let twice = request(Charging::Independent, hits.map(|hits| check(0, policy, hits, SyncMode::Leased)));
    for at in 0..100 {
        server.local.decide(&twice, server.at(at));
    }
    assert!(server.local.attachment(&twice, server.at(100)).prefetches.is_empty());
    let once = one(policy, 1, SyncMode::Leased);
    assert!(!server.local.attachment(&once, server.at(100)).prefetches.is_empty());
}
