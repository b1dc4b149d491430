//! Bans of counters that keep denying.

use tollgate::ban::{BanCheck, BanEffect, BanParameters, BanPolicy};

use super::*;

promises!(
    a_counter_that_keeps_denying_is_banned_until_an_end_that_requests_do_not_extend,
    a_ban_that_is_watched_denies_nothing,
    a_lifted_ban_leaves_its_level_and_a_forgiven_one_nothing,
    a_reset_ends_a_ban,
    bans_of_the_maximum_length_are_counted_until_the_client_is_listed,
    reads_and_refunds_do_not_count_for_a_ban,
    a_ban_denies_all_of_a_call_that_is_charged_all_or_none,
);

/// Three bad seconds within ten ban for 20 s, then for 40 s.
fn ban(effect: BanEffect) -> BanCheck {
    let parameters = BanParameters {
        threshold: 3,
        interval: 10,
        duration: 20,
        max_duration: Some(3_600),
        ..BanParameters::default()
    };
    let quota = Quota { limit: 1, window: Window::from_seconds(3_600).expect("in range") };
    BanCheck { policy: BanPolicy::new(&parameters, quota).expect("in range"), effect }
}

/// A call on a counter of one hit an hour with a ban.
fn banning(name: &str, hits: Hits, effect: BanEffect) -> TagRequest {
    let mut call = call(name, &[(0, policy(Algorithm::FixedWindow, 1, 3_600), hits)]);
    call.cells[0].checks[0].ban = Some(ban(effect));
    call
}

async fn decide(store: &Subject, second: u64, name: &str, hits: Hits, effect: BanEffect) -> Verdict {
    store.decide(at(second * SECOND), &banning(name, hits, effect)).await[0]
}

/// Uses up the limit, and has it deny once a second until a ban begins.
async fn get_banned(store: &Subject, first: u64, name: &str) -> (u64, Verdict) {
    for second in first..first + 8 {
        let verdict = decide(store, second, name, Hits::ONE, BanEffect::Enforce).await;
        if verdict.ban.is_some_and(|ban| ban.is_new) {
            return (second, verdict);
        }
    }
    panic!("no ban began");
}

async fn a_counter_that_keeps_denying_is_banned_until_an_end_that_requests_do_not_extend(store: &Subject) {
    let (began, verdict) = get_banned(store, 0, "a").await;
    // One second admits the only hit.
    assert_eq!(began, 4);
    let ban = verdict.ban.expect("banned");
    assert_eq!((ban.level.get(), ban.is_enforced), (1, true));
    assert_eq!((verdict.admitted, verdict.retry_after.as_secs(), verdict.over), (false, 20, 1));
    for second in 5..24 {
        let verdict = decide(store, second, "a", Hits::ONE, BanEffect::Enforce).await;
        assert_eq!((verdict.admitted, verdict.retry_after.as_secs()), (false, 24 - second));
        assert_eq!(verdict.ban, Some(ban.known()));
        // One was admitted and three were denied before; banned hits are not charged.
        assert_eq!(verdict.used, 4);
    }
    let after = decide(store, 24, "a", Hits::ONE, BanEffect::Enforce).await;
    assert_eq!((after.admitted, after.used, after.ban), (false, 5, None));
    let (began, verdict) = get_banned(store, 25, "a").await;
    assert_eq!((began, verdict.retry_after.as_secs()), (27, 40));
}

async fn a_ban_that_is_watched_denies_nothing(store: &Subject) {
    let mut bans = Vec::new();
    for second in 0..30 {
        // A new window each second, of which one hit in two passes.
        let policy = policy(Algorithm::FixedWindow, 1, 1);
        let mut call = call("a", &[(0, policy, Hits::ONE)]);
        call.cells[0].checks[0].ban = Some(ban(BanEffect::Watch));
        let first = store.decide(at(second * SECOND), &call).await[0];
        let next = store.decide(at(second * SECOND), &call).await[0];
        assert_eq!((first.admitted, next.admitted), (true, false));
        bans.extend(first.ban.filter(|ban| ban.is_new).map(|ban| (second, ban.is_enforced)));
    }
    // The first second has a denial more than the record has admitted hits.
    assert_eq!(bans, [(3, false), (26, false)]);
}

async fn a_lifted_ban_leaves_its_level_and_a_forgiven_one_nothing(store: &Subject) {
    for (name, effect, level) in [("lifted", BanEffect::Lift, 2), ("forgiven", BanEffect::Forgive, 1)] {
        let (began, _) = get_banned(store, 0, name).await;
        let ended = decide(store, began, name, Hits::Peek, effect).await;
        assert_eq!(ended.ban.map(|ban| (ban.level.get(), ban.is_enforced)), Some((1, false)));
        let again = decide(store, began, name, Hits::Peek, effect).await;
        assert_eq!(again.ban, None);
        let (_, verdict) = get_banned(store, began + 1, name).await;
        assert_eq!(verdict.ban.map(|ban| ban.level.get()), Some(level), "{name}");
    }
}

async fn a_reset_ends_a_ban(store: &Subject) {
    let (began, _) = get_banned(store, 0, "a").await;
    decide(store, began, "a", Hits::reset(), BanEffect::Forgive).await;
    let verdict = decide(store, began, "a", Hits::ONE, BanEffect::Enforce).await;
    assert_eq!((verdict.admitted, verdict.used, verdict.ban), (true, 1, None));
}

async fn bans_of_the_maximum_length_are_counted_until_the_client_is_listed(store: &Subject) {
    let listing = BanParameters {
        threshold: 1,
        interval: 10,
        duration: 20,
        list_after: Some(3),
        ..BanParameters::default()
    };
    let quota = Quota { limit: 1, window: Window::from_seconds(3_600).expect("in range") };
    let policy = BanPolicy::new(&listing, quota).expect("in range");
    let mut bans = Vec::new();
    for second in 0..100 {
        let mut call = banning("a", Hits::ONE, BanEffect::Enforce);
        call.cells[0].checks[0].ban = Some(BanCheck { policy, effect: BanEffect::Enforce });
        let verdict = store.decide(at(second * SECOND), &call).await[0];
        let new = verdict.ban.filter(|ban| ban.is_new).map(|ban| ban.level.get());
        bans.extend(new.map(|level| (second, level, policy.lists(level))));
    }
    assert_eq!(bans, [(2, 1, false), (23, 2, false), (44, 3, true), (65, 3, true), (86, 3, true)]);
}

async fn reads_and_refunds_do_not_count_for_a_ban(store: &Subject) {
    decide(store, 0, "a", Hits::charge(2), BanEffect::Enforce).await;
    for second in 1..30 {
        assert_eq!(decide(store, second, "a", Hits::Peek, BanEffect::Enforce).await.ban, None);
        assert!(decide(store, second, "a", Hits::refund(1), BanEffect::Enforce).await.admitted);
    }
    let (began, _) = get_banned(store, 40, "a").await;
    // A read shows the ban; a refund is never denied.
    let read = decide(store, began, "a", Hits::Peek, BanEffect::Enforce).await;
    assert_eq!((read.admitted, read.ban.is_some()), (false, true));
    assert!(decide(store, began, "a", Hits::refund(1), BanEffect::Enforce).await.admitted);
}

async fn a_ban_denies_all_of_a_call_that_is_charged_all_or_none(store: &Subject) {
    let (began, _) = get_banned(store, 0, "a").await;
    let ample = policy(Algorithm::FixedWindow, 9, 3_600);
    let hour = policy(Algorithm::FixedWindow, 1, 3_600);
    let checks = [((0, hour, Hits::ONE), true), ((1, ample, Hits::ONE), true)];
    let mut call = charging(Charging::AllOrNone, "a", &checks);
    call.cells[0].checks[0].ban = Some(ban(BanEffect::Enforce));
    let verdicts = store.decide(at(began * SECOND), &call).await;
    assert_eq!([verdicts[0].admitted, verdicts[1].admitted], [false, true]);
    assert_eq!(verdicts[1].used, 0, "withheld");
}
