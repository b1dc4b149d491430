//! Bans that are decided without the server.

use super::*;

/// A check with a ban.
pub(super) fn banning(limit: u32, hits: u64, sync: SyncMode, effect: BanEffect) -> TagRequest {
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
        let outcome = outcome(verdict.under(ban, Hits::charge(2)), []);
        server.local.learn(&of_two, server.at(0), &outcome);
        for hits in [1, 2, 50] {
            let call = banning(600, hits, sync, BanEffect::Enforce);
            let cached = server.local.decide(&call, server.at(9_999)).expect("cached").0[0].1;
            assert_eq!((cached.admitted, cached.over), (false, hits));
            assert_eq!(cached.retry_after, Duration::from_millis(600_000 - 9_999));
            assert_eq!(cached.ban, Some(ban.known()), "reported as new once");
            assert!(server.local.decide(&call, server.at(10_000)).is_none());
        }
        assert!(
            server.local.attachment(&of_two, server.at(9_999)).reported.iter().all(|hits| *hits == 0),
            "banned hits do not count"
        );
    }
}

#[test]
fn hits_denied_from_the_cache_are_reported_once_for_a_counter_with_a_ban() {
    let mut server = Server::new();
    assert!(server.admits(&banning(1, 1, SyncMode::Strict, BanEffect::Watch), 0));
    let more = banning(1, 3, SyncMode::Strict, BanEffect::Watch);
    assert!(server.local.attachment(&more, server.at(4)).reported.is_empty(), "nothing is cached");
    assert!(!server.admits(&more, 0));
    assert_eq!(*server.local.attachment(&more, server.at(4)).reported, [0], "the store denied them");
    assert!(!server.admits(&more, 1) && !server.admits(&more, 2));
    assert_eq!(server.sent, 2);
    assert_eq!(*server.local.attachment(&more, server.at(4)).reported, [6]);
    assert_eq!(*server.local.attachment(&more, server.at(4)).reported, [0]);
    let without = one(policy(Algorithm::TokenBucket, 1), 3, SyncMode::Strict);
    assert!(!server.admits(&without, 3));
    assert_eq!(*server.local.attachment(&more, server.at(4)).reported, [0], "of a rule without a ban");
    for _ in 0..30_000 {
        server.admits(&more, 4);
    }
    assert_eq!(*server.local.attachment(&more, server.at(4)).reported, [u16::MAX], "bounded");
    assert!(!server.admits(&more, 5));
    assert_eq!(*server.local.attachment(&more, server.at(5_000)).reported, [0], "long ago");
}

#[test]
fn a_refund_or_a_read_does_not_end_a_cached_ban() {
    for hits in [Hits::refund(1), Hits::Peek] {
        let mut server = Server::new();
        let call = banning(60_000, 1, SyncMode::Leased, BanEffect::Enforce);
        server.admit_all(&call, (0..1_000).map(|at| at / 10));
        assert!(server.local.held_hits(&call, server.at(100)) > 1);
        // Denied hits of another instance have begun a ban, which the reply to a larger request shows.
        let ban = Ban { until: NOW.seconds() + 600, level: NonZeroU8::MIN, is_new: true, is_enforced: true };
        let large = banning(60_000, 1_000, SyncMode::Leased, BanEffect::Enforce);
        let policy = large.checks().next().expect("one").policy;
        let outcome = |hits: Hits, ban: Option<Ban>| {
            let summary = policy.summary(&server.states[0], NOW, hits);
            let verdict = policy.verdict(summary, NOW, hits, true, Charging::Independent);
            outcome(ban.map_or(verdict, |ban| verdict.under(ban, hits)), [])
        };
        server.local.learn(&large, server.at(100), &outcome(Hits::charge(1_000), Some(ban)));
        assert!(!server.local.decide(&call, server.at(100)).expect("cached").0[0].1.admitted, "banned");
        let (other, ban) = match hits {
            Hits::Peek => (banning(60_000, 0, SyncMode::Leased, BanEffect::Enforce), Some(ban)),
            // As the cache itself refunds unused tokens.
            hits => (request(Charging::Independent, [check(0, policy, hits, SyncMode::Strict)]), None),
        };
        server.local.learn(&other, server.at(100), &outcome(hits, ban));
        let verdict = server.local.decide(&call, server.at(100)).map(|(verdicts, _)| verdicts[0].1);
        assert!(verdict.is_some_and(|verdict| !verdict.admitted), "{hits:?}: {verdict:?}");
    }
}
