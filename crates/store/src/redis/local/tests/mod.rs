use std::{num::NonZeroU8, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{
    RecordId,
    algorithm::{Algorithm, CounterState, Parameters, Policy, StateSummary, Verdict},
    ban::{Ban, BanCheck, BanEffect, BanParameters, BanPolicy},
    clock::Timestamp,
    descriptor::{Entry, Hits},
    quota::{Quota, Window},
};

use super::{two_generation_map::MAX_GENERATION_ENTRIES, *};
use crate::{key::CellKey, request::Veto};

mod auto;
mod held_tokens;

/// A second of the clock of Redis, in the middle of a minute.
const NOW: Timestamp = Timestamp::from_micros(1_700_000_010_000_000);

fn policy(algorithm: Algorithm, limit: u32) -> Policy {
    let quota = Quota { limit: limit.into(), window: Window::from_seconds(60).expect("in range") };
    Policy::new(algorithm, quota, &Parameters::default()).expect("valid")
}

fn check(number: u8, policy: Policy, hits: Hits, sync: SyncMode) -> Check {
    let record = RecordId::numbered(number, policy.algorithm());
    Check {
        descriptor: usize::from(number),
        record,
        policy,
        hits,
        veto: Veto::Alone,
        sync,
        ban: None,
        share: None,
    }
}

fn request(charging: Charging, checks: impl IntoIterator<Item = Check>) -> TagRequest {
    let key = CellKey::open("d", [Entry { key: "k", value: "v" }].into_iter());
    TagRequest {
        cells: SmallVec::from_iter([Cell { key, checks: checks.into_iter().collect() }]),
        charging,
        is_of_rule: false,
    }
}

/// Hits in a window.
fn count(state: &CounterState) -> u32 {
    match state {
        CounterState::Words([_, count, _]) => *count,
        other => panic!("{other:?}"),
    }
}

fn one(policy: Policy, hits: u64, sync: SyncMode) -> TagRequest {
    request(Charging::Independent, [check(0, policy, Hits::charge(hits), sync)])
}

/// A simulated store with one state for each counter of one request.
struct Server {
    local: LocalCache,
    started: Instant,
    states: Vec<CounterState>,
    /// Number of requests sent.
    sent: usize,
}

impl Server {
    fn new() -> Self {
        let local = LocalCache::new(BackgroundQueue::default());
        Self { local, started: Instant::now(), states: vec![CounterState::default(); 3], sent: 0 }
    }

    fn at(&self, millis: u64) -> Instant {
        self.started + Duration::from_millis(millis)
    }

    /// Decides a request after `millis` milliseconds, from the cache if that suffices.
    fn decide(&mut self, request: &TagRequest, millis: u64) -> Vec<Verdict> {
        let now = self.at(millis);
        let verdicts = self.local.decide(request, now).unwrap_or_else(|| self.send(request, millis));
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    fn send(&mut self, request: &TagRequest, millis: u64) -> Verdicts {
        self.sent += 1;
        let (sent_at, time) = (self.at(millis), NOW.plus(Duration::from_millis(millis)));
        let prefetches = self.local.prefetches(request, sent_at);
        let mut passes = Vec::new();
        for (at, check) in request.checks().enumerate() {
            passes.push(check.policy.apply(&mut self.states[at].clone(), time, check.hits, request.charging));
        }
        let is_vetoed = request.charging == Charging::AllOrNone && passes.contains(&false);
        let (mut verdicts, mut prefetched) = (Verdicts::new(), SmallVec::new());
        for (at, check) in request.checks().enumerate() {
            let state = &mut self.states[at];
            let hits = if is_vetoed { Hits::Peek } else { check.hits };
            check.policy.apply(state, time, hits, request.charging);
            let summary = check.policy.summary(state, time, check.hits);
            let verdict = check.policy.verdict(summary, time, check.hits, passes[at], request.charging);
            verdicts.push((check.descriptor, verdict));
            if let Some(prefetch) = prefetches.get(at) {
                prefetched.push(if passes[at] { check.policy.prefetch(state, time, *prefetch) } else { 0 });
            }
        }
        let outcome = RunOutcome { verdicts: SmallVec::from_iter([verdicts.clone()]), prefetched };
        self.local.learn(request, sent_at, &outcome);
        verdicts
    }

    fn admits(&mut self, request: &TagRequest, millis: u64) -> bool {
        self.decide(request, millis).iter().all(|verdict| verdict.admitted)
    }
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
    let strict = |limit, hits| {
        request(
            Charging::Independent,
            [check(0, policy(Algorithm::FixedWindow, limit), hits, SyncMode::Strict)],
        )
    };
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
    let hits = |hits| request(Charging::Independent, [check(0, policy, hits, SyncMode::Strict)]);
    server.admits(&hits(Hits::ONE), 0);
    server.admits(&hits(Hits::ONE), 0);
    for (sent, hits) in [(3, hits(Hits::Peek)), (4, hits(Hits::refund(1)))] {
        server.decide(&hits, 0);
        assert_eq!(server.sent, sent);
    }
}

#[test]
fn permits_are_always_requested_from_the_store() {
    let mut server = Server::new();
    let policy = policy(Algorithm::Concurrency, 1);
    for _ in 0..3 {
        let lease = tollgate_core::lease::LeaseId::random();
        let hits = Hits::Acquire { amount: std::num::NonZeroU64::MIN, lease };
        server.decide(&request(Charging::Independent, [check(0, policy, hits, SyncMode::Strict)]), 0);
    }
    assert_eq!(server.sent, 3);
}

#[test]
fn independent_counters_are_sent_unless_all_are_denied() {
    let mut server = Server::new();
    let policies = [1, 9].map(|limit| policy(Algorithm::FixedWindow, limit));
    let both = |charging| {
        request(
            charging,
            [
                check(0, policies[0], Hits::ONE, SyncMode::Strict),
                check(1, policies[1], Hits::ONE, SyncMode::Strict),
            ],
        )
    };
    for sent in 1..=3 {
        server.decide(&both(Charging::Independent), 0);
        assert_eq!(server.sent, sent);
    }
    assert_eq!(count(&server.states[1]), 3, "the other counter was charged each time");
}

#[test]
fn one_denial_suffices_for_counters_charged_all_or_none() {
    let mut server = Server::new();
    let policies = [1, 9].map(|limit| policy(Algorithm::FixedWindow, limit));
    let both = |first| {
        request(
            Charging::AllOrNone,
            [
                check(0, policies[0], Hits::ONE, SyncMode::Strict),
                check(1, policies[first], Hits::ONE, SyncMode::Strict),
            ],
        )
    };
    assert!(server.admits(&both(1), 0));
    let first = server.decide(&both(1), 0);
    let second = server.decide(&both(1), 0);
    assert_eq!((server.sent, &first), (2, &second));
    assert_eq!(first.iter().map(|verdict| verdict.admitted).collect::<Vec<_>>(), [false, true]);
    // The other check alone is not denied.
    let other = request(Charging::AllOrNone, [check(1, policies[1], Hits::ONE, SyncMode::Strict)]);
    server.decide(&other, 0);
    assert_eq!(server.sent, 3);
}

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

/// The hits that requests refund.
fn refunded(requests: &Requests) -> u64 {
    let amount = |check: &Check| match check.hits {
        Hits::RefundCharge { amount, .. } => amount.get(),
        other => panic!("{other:?}"),
    };
    requests.iter().flat_map(TagRequest::checks).map(amount).sum()
}

#[test]
fn unused_tokens_are_refunded_once() {
    let mut server = Server::new();
    let leased = one(policy(Algorithm::FixedWindow, 1_000_000), 1, SyncMode::Leased);
    for at in 0..1_000 {
        assert!(server.admits(&leased, at / 10));
    }
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
    for at in 0..1_000 {
        assert!(server.admits(&leased, 29_890 + at / 10));
    }
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
    for at in 0..1_000 {
        assert!(server.admits(&leased(1_000_000), at / 10));
    }
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
    let outcome = RunOutcome {
        verdicts: SmallVec::from_iter([Verdicts::from_iter([(0, verdict)])]),
        prefetched: SmallVec::from_iter([48]),
    };
    server.local.learn(&before, server.at(0), &outcome);
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
    assert!(server.local.prefetches(&twice, server.at(100)).is_empty());
    let once = one(policy, 1, SyncMode::Leased);
    assert!(!server.local.prefetches(&once, server.at(100)).is_empty());
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
    let (mut largest, mut lasting) = (0, 0);
    for number in 0..3 * MAX_GENERATION_ENTRIES {
        let value = number.to_string();
        let key = CellKey::open("d", [Entry { key: "k", value: &value }].into_iter());
        let cell = Cell { key, checks: [check].into_iter().collect() };
        cache.learn((&cell, &check), &verdict, true, 0, now);
        largest = largest.max(cache.allocated_bytes());
        cache.collect_evicted();
        lasting = lasting.max(cache.allocated_bytes());
    }
    assert!(lasting <= 19_000_000, "{lasting}");
    assert!(largest <= 27_000_000, "{largest}");
}

/// A check with a ban.
fn banning(limit: u32, hits: u64, sync: SyncMode, effect: BanEffect) -> TagRequest {
    let policy = policy(Algorithm::TokenBucket, limit);
    let quota = Quota { limit: limit.into(), window: Window::from_seconds(60).expect("in range") };
    let ban = BanPolicy::new(&BanParameters::default(), quota).expect("in range");
    let check =
        Check { ban: Some(BanCheck { policy: ban, effect }), ..check(0, policy, Hits::charge(hits), sync) };
    request(Charging::Independent, [check])
}

#[test]
fn an_enforced_ban_is_cached_for_ten_seconds_whatever_the_hits_and_the_sync_mode() {
    for sync in SyncMode::ALL {
        let server = Server::new();
        let ban = Ban { until: NOW.seconds() + 600, level: NonZeroU8::MIN, is_new: true, is_enforced: true };
        let of_two = banning(600, 2, sync, BanEffect::Enforce);
        let policy = of_two.checks().next().expect("one").policy;
        let summary = StateSummary::Words([0; 3]);
        let verdict = policy.verdict(summary, NOW, Hits::charge(2), true, Charging::Independent);
        let verdicts = Verdicts::from_iter([(0, verdict.under(ban, Hits::charge(2)))]);
        let outcome = RunOutcome { verdicts: SmallVec::from_iter([verdicts]), prefetched: SmallVec::new() };
        server.local.learn(&of_two, server.at(0), &outcome);
        for hits in [1, 2, 50] {
            let call = banning(600, hits, sync, BanEffect::Enforce);
            let cached = server.local.decide(&call, server.at(9_999)).expect("cached")[0].1;
            assert_eq!((cached.admitted, cached.over), (false, hits));
            assert_eq!(cached.retry_after, Duration::from_millis(600_000 - 9_999));
            assert_eq!(cached.ban, Some(ban.known()), "reported as new once");
            assert!(server.local.decide(&call, server.at(10_000)).is_none());
        }
        assert!(
            server.local.take_reported(&of_two, server.at(9_999)).iter().all(|hits| *hits == 0),
            "banned hits do not count"
        );
    }
}

#[test]
fn hits_denied_from_the_cache_are_reported_once_for_a_counter_with_a_ban() {
    let mut server = Server::new();
    assert!(server.admits(&banning(1, 1, SyncMode::Strict, BanEffect::Watch), 0));
    let more = banning(1, 3, SyncMode::Strict, BanEffect::Watch);
    assert!(server.local.take_reported(&more, server.at(4)).is_empty(), "nothing is cached");
    assert!(!server.admits(&more, 0));
    assert_eq!(*server.local.take_reported(&more, server.at(4)), [0], "the store denied them");
    assert!(!server.admits(&more, 1) && !server.admits(&more, 2));
    assert_eq!(server.sent, 2);
    assert_eq!(*server.local.take_reported(&more, server.at(4)), [6]);
    assert_eq!(*server.local.take_reported(&more, server.at(4)), [0]);
    let without = one(policy(Algorithm::TokenBucket, 1), 3, SyncMode::Strict);
    assert!(!server.admits(&without, 3));
    assert_eq!(*server.local.take_reported(&more, server.at(4)), [0], "of a rule without a ban");
    for _ in 0..30_000 {
        server.admits(&more, 4);
    }
    assert_eq!(*server.local.take_reported(&more, server.at(4)), [u16::MAX], "bounded");
    assert!(!server.admits(&more, 5));
    assert_eq!(*server.local.take_reported(&more, server.at(5_000)), [0], "long ago");
}
