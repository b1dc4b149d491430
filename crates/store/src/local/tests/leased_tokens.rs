//! Time for which tokens are held, and their ends before it.

use super::{bans::banning, *};

#[test]
fn no_tokens_are_spent_under_an_enforced_ban() {
    let server = Server::new();
    let call = banning(600, 1, SyncMode::Leased, BanEffect::Enforce);
    let policy = call.checks().next().expect("one").policy;
    let verdict = policy.verdict(StateSummary::Words([0; 3]), NOW, Hits::ONE, true, Charging::Independent);
    let learn =
        |verdict, prefetched| server.local.learn(&call, server.at(0), &outcome(verdict, [prefetched]));
    learn(verdict, 48);
    assert!(server.local.decide(&call, server.at(1)).expect("held").0[0].1.admitted);
    let ban = Ban { until: NOW.seconds() + 600, level: NonZeroU8::MIN, is_new: true, is_enforced: true };
    learn(verdict.under(ban, Hits::ONE), 0);
    assert!(!server.local.decide(&call, server.at(1)).expect("cached").0[0].1.admitted);
}

#[tokio::test]
async fn all_tokens_are_refunded_when_the_process_drains() {
    let background = BackgroundQueue::default();
    let mut server =
        Server { local: LocalCache::new(background.clone(), OutageCache::default()), ..Server::new() };
    let leased = one(policy(Algorithm::FixedWindow, 1_000_000), 1, SyncMode::Leased);
    server.admit_all(&leased, (0..1_000).map(|at| at / 10));
    let held = server.local.held_hits(&leased, server.at(100));
    assert!(held > 0 && server.local.take_unused(server.at(100)).requests.is_empty(), "still held");
    let drained = tokio::spawn(async move { background.drain().await });
    tokio::task::yield_now().await;
    let UnusedTokens { requests, slot, has_more } = server.local.take_unused(server.at(100));
    assert_eq!((refunded(&requests), has_more), (held, false));
    assert!(!drained.is_finished(), "until they are sent");
    drop(slot);
    drained.await.expect("drained");
}

#[test]
fn a_counter_has_one_grant_and_an_evicted_one_none() {
    let (mut cache, now) = (CounterCache::default(), Instant::now());
    let check = check(0, policy(Algorithm::FixedWindow, 1_000_000), Hits::ONE, SyncMode::Leased);
    let verdict = check.policy.verdict(
        StateSummary::Words([NOW.seconds() + 60, 2, 0]),
        NOW,
        Hits::ONE,
        true,
        Charging::Independent,
    );
    let cell = |number: usize| Cell { key: cell(number), checks: [check].into_iter().collect() };
    for _ in 0..10 {
        cache.learn(&cell(0), &check, &verdict, false, 5, now);
    }
    assert_eq!(cache.granted(), 1);
    for number in 0..5 * MAX_GENERATION_ENTRIES {
        cache.learn(&cell(number), &check, &verdict, false, 5, now);
        cache.collect_evicted();
    }
    assert!(cache.granted() <= 2 * MAX_GENERATION_ENTRIES, "{}", cache.granted());
}

#[test]
fn a_counter_of_long_windows_is_leased_for_longer() {
    let calls = |sync, seconds| {
        let policy = test_prelude::policy(Algorithm::FixedWindow, 1_000_000, seconds);
        let (mut server, request) = (Server::new(), one(policy, 1, sync));
        server.admit_all(&request, (0..1_000).map(|at| at * 10));
        server.sent
    };
    let [second, minute, hour] = [1, 60, 3_600].map(|seconds| calls(SyncMode::Auto, seconds));
    assert!(
        (80..250).contains(&second) && (60..110).contains(&minute) && (30..70).contains(&hour),
        "auto, with calls until it is hot: {second} {minute} {hour}"
    );
    let [second, minute, hour] = [1, 60, 3_600].map(|seconds| calls(SyncMode::Leased, seconds));
    assert!((80..200).contains(&second) && minute < 30 && hour < 30, "leased: {second} {minute} {hour}");
}

#[test]
fn strict_requests_for_a_leased_counter_leave_its_tokens() {
    let mut server = Server::new();
    let policy = policy(Algorithm::FixedWindow, 1_000_000);
    let leased = one(policy, 1, SyncMode::Leased);
    server.admit_all(&leased, 0..1_000);
    let held = server.local.held_hits(&leased, server.at(1_000));
    assert!(held > 0);
    // A request that reserves hits of another limit, and a charge that was deferred during an outage.
    let atomic = request(Charging::AllOrNone, [check(0, policy, Hits::ONE, SyncMode::Strict)]);
    let deferred = one(policy, 3, SyncMode::Strict);
    server.send(&atomic, 1_000);
    server.send(&deferred, 1_000);
    assert_eq!(server.local.held_hits(&leased, server.at(1_000)), held);
}

#[test]
fn denials_of_a_rule_that_is_leased_no_more_are_cached_once_its_tokens_are_refunded() {
    let mut server = Server::new();
    let leased = one(policy(Algorithm::FixedWindow, 1_000_000), 1, SyncMode::Leased);
    server.admit_all(&leased, 0..1_000);
    let strict = one(policy(Algorithm::FixedWindow, 500), 1, SyncMode::Strict);
    assert!(!server.admits(&strict, 1_001), "over the new limit");
    let expired = 1_000 + 10_000;
    assert!(refunded(&server.local.take_unused(server.at(expired)).requests) > 0);
    assert!(!server.admits(&strict, expired));
    let sent = server.sent;
    assert!(!server.admits(&strict, expired + 1));
    assert_eq!(server.sent, sent);
}

#[test]
fn limit_overrides_of_a_leased_counter_leave_its_demand() {
    for sync in [SyncMode::Leased, SyncMode::Auto] {
        let mut server = Server::new();
        let leased = one(policy(Algorithm::FixedWindow, 1_000_000), 1, sync);
        let overriding = one(policy(Algorithm::FixedWindow, 2_000_000), 1, SyncMode::Strict);
        for at in 0..1_000 {
            assert!(server.admits(&leased, at) && server.admits(&overriding, at));
        }
        let sent = server.sent - 1_000;
        assert!(sent < 200, "{sync:?}: {sent}");
    }
}

#[test]
fn a_counter_with_enough_tokens_is_not_charged_ahead_again_beside_another_one() {
    let mut server = Server::new();
    let of = |seconds| test_prelude::policy(Algorithm::FixedWindow, 1_000_000, seconds);
    // The horizon of the second one is far shorter.
    let checks = [(0, of(60)), (1, of(1))].map(|(number, of)| check(number, of, Hits::ONE, SyncMode::Leased));
    let both = request(Charging::Independent, checks);
    server.admit_all(&both, 0..5_000);
    let unused = refunded(&server.local.take_unused(server.at(5_000)).requests);
    // Without regard to the tokens held, 45,000.
    assert!(server.sent > 20 && unused < 10_000, "{} sent, {unused} unused", server.sent);
}

/// A cache with 5 tokens for each of a number of counters.
fn cache_of(counters: usize, now: Instant) -> CounterCache {
    let mut cache = CounterCache::default();
    let check = check(0, policy(Algorithm::FixedWindow, 1_000_000), Hits::ONE, SyncMode::Leased);
    let summary = StateSummary::Words([NOW.seconds() + 60, 2, 0]);
    let verdict = check.policy.verdict(summary, NOW, Hits::ONE, true, Charging::Independent);
    for number in 0..counters {
        let cell = Cell { key: cell(number), checks: [check].into_iter().collect() };
        cache.learn(&cell, &check, &verdict, false, 5, now);
    }
    cache
}

/// The refunds until none is owed: their number of parts and of tokens.
fn refunded_in_parts(mut cache: CounterCache, now: Instant, of_all: bool) -> (usize, u64) {
    let (mut parts, mut all) = (0, 0);
    while cache.may_owe_refunds() {
        let requests = cache.refunds_due(now, of_all);
        assert!(requests.len() <= cache::MAX_REFUNDS);
        (parts, all) = (parts + 1, all + refunded(&requests));
    }
    (parts, all)
}

#[test]
fn tokens_of_many_counters_are_refunded_in_parts() {
    let now = Instant::now();
    let (parts, all) = refunded_in_parts(cache_of(5_000, now), now, true);
    assert_eq!((parts, all), (5_000_usize.div_ceil(cache::MAX_REFUNDS), 25_000));
}

#[test]
fn tokens_of_evicted_counters_are_refunded_though_no_other_counter_follows() {
    let (now, counters) = (Instant::now(), 2 * MAX_GENERATION_ENTRIES + 100);
    let expired = now + Duration::from_secs(20);
    for (at, of_all) in [(now, true), (expired, false)] {
        let (_, all) = refunded_in_parts(cache_of(counters, now), at, of_all);
        assert_eq!(all, 5 * counters as u64, "{of_all}");
    }
}
