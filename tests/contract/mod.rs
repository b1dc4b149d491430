//! The contract of every store, run against each of them.

use std::{num::NonZeroU64, time::Duration};

use tollgate::{
    SyncMode,
    algorithm::{Algorithm, Charging, Parameters, Policy, Verdict},
    ban::{BanCheck, BanEffect, BanParameters, BanPolicy},
    descriptor::Hits,
    lease::LeaseId,
    quota::{Quota, Window},
    store::request::{TagRequest, Veto},
};

use crate::support::{
    redis::Redis,
    stores::{Subject, at, call, charging, charging_with, policy},
};

const SECOND: u64 = 1_000_000;

/// Runs one promise against every store.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(&super::Subject::memory()).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $name() {
                let redis = super::Redis::start();
                super::$name(&super::Subject::Redis(redis.store())).await;
            })+
        }
        // Each promise has keys of its own on servers that all of them share.
        mod sentinel {
            $(#[tokio::test] async fn $name() {
                let store = crate::support::sentinel::shared().store(stringify!($name));
                super::$name(&super::Subject::Redis(store)).await;
            })+
        }
        mod cluster {
            $(#[tokio::test] async fn $name() {
                let store = crate::support::cluster::shared().store(stringify!($name));
                super::$name(&super::Subject::Redis(store)).await;
            })+
        }
    };
}

promises!(
    a_window_admits_its_limit_and_no_more,
    a_window_counts_hits_that_it_denies,
    a_counter_that_may_be_leased_counts_no_hits_that_it_denies,
    a_window_ends_at_its_edge,
    a_bucket_admits_its_burst_at_once_then_its_rate,
    a_bucket_admits_at_retry_after_and_not_a_microsecond_earlier,
    a_bucket_does_not_count_hits_that_it_denies,
    a_check_charges_nothing,
    a_refund_never_goes_below_zero,
    more_hits_than_the_limit_never_pass,
    a_limit_of_zero_denies_every_hit,
    counters_of_one_tag_are_independent,
    a_counter_checked_twice_in_a_call_is_charged_twice,
    a_limit_that_changes_keeps_the_usage,
    a_window_that_changes_keeps_the_usage_until_its_next_edge,
    a_clock_that_steps_back_grants_nothing_twice,
    a_clock_that_is_put_right_grants_nothing_twice,
    amounts_beyond_any_limit_are_exact_enough,
    a_sliding_window_weights_the_previous_window,
    a_count_that_grows_large_leaves_its_neighbours_alone,
    a_log_frees_each_hit_when_a_window_has_passed,
    a_log_enforces_the_minimum_interval,
    a_permit_is_held_until_its_lease_is_released,
    an_unreleased_lease_expires,
    a_reset_frees_everything,
    one_denial_leaves_all_counters_untouched,
    shadow_checks_block_no_charge,
    quotas_block_all_charges_when_every_one_is_exhausted,
    quotas_beside_those_of_other_tags_block_no_charge,
    a_precheck_decides_without_charging,
    a_denied_hit_counts_nowhere_if_all_or_none_are_charged,
    a_refunded_charge_leaves_no_trace,
    a_late_refund_takes_nothing_from_other_charges,
    a_lowered_limit_denies_until_the_usage_is_below_it,
    a_window_that_is_made_longer_grants_nothing_anew,
    another_algorithm_has_a_counter_of_its_own,
    a_peek_with_a_smaller_burst_fills_no_bucket,
    a_changed_bucket_denies_no_longer_than_it_takes_to_fill,
    a_bucket_of_a_rule_is_not_filled_for_a_larger_limit_override,
    a_longer_sliding_window_counts_the_usage_of_the_shorter_one,
    a_longer_lifetime_applies_to_idle_counters,
    an_undone_bucket_gets_no_more_than_is_still_owed,
    charges_of_one_counter_add_up_where_all_or_none_are_charged,
    a_release_is_never_denied,
    a_charge_beyond_the_limit_is_refused_for_exactly_its_debt,
    a_charge_beyond_the_limit_is_not_withheld,
    a_denied_check_that_is_charged_stays_denied,
    a_bucket_goes_into_debt_up_to_its_bound,
    a_log_keeps_twice_its_limit_of_the_newest_hits,
    a_window_with_a_carry_takes_its_overrun_to_the_next_windows,
    a_counter_that_keeps_denying_is_banned_until_an_end_that_requests_do_not_extend,
    a_ban_that_is_watched_denies_nothing,
    a_lifted_ban_leaves_its_level_and_a_forgiven_one_nothing,
    a_reset_ends_a_ban,
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

fn limited(algorithm: Algorithm) -> Policy {
    policy(algorithm, 3, 60)
}

async fn a_window_admits_its_limit_and_no_more(store: &Subject) {
    for remaining in [2, 1, 0] {
        let verdict = store.decide_one(at(0), "a", limited(Algorithm::FixedWindow), Hits::ONE).await;
        assert!(verdict.admitted);
        assert_eq!(verdict.remaining, remaining);
    }
    let denied = store.decide_one(at(20 * SECOND), "a", limited(Algorithm::FixedWindow), Hits::ONE).await;
    assert!(!denied.admitted);
    assert_eq!((denied.remaining, denied.retry_after.as_secs()), (0, 40));
}

async fn a_window_counts_hits_that_it_denies(store: &Subject) {
    let policy = limited(Algorithm::FixedWindow);
    store.decide_one(at(0), "a", policy, Hits::charge(4)).await;
    let refunded = store.decide_one(at(0), "a", policy, Hits::refund(1)).await;
    assert!(refunded.admitted);
    assert_eq!(refunded.remaining, 0);
    assert!(!store.decide_one(at(0), "a", policy, Hits::ONE).await.admitted);
}

async fn a_counter_that_may_be_leased_counts_no_hits_that_it_denies(store: &Subject) {
    for sync in [SyncMode::Leased, SyncMode::Auto] {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
            let policy = limited(algorithm);
            let name = format!("{}-{}", sync.name(), algorithm.name());
            let decide = async |hits| {
                let mut call = call(&name, &[(0, policy, hits)]);
                call.cells[0].checks[0].sync = sync;
                store.decide(at(0), &call).await[0]
            };
            for remaining in [2, 1, 0] {
                let verdict = decide(Hits::ONE).await;
                assert_eq!((verdict.admitted, verdict.remaining), (true, remaining), "{name}");
            }
            for _ in 0..3 {
                assert!(!decide(Hits::ONE).await.admitted, "{name}");
            }
            assert_eq!(decide(Hits::refund(1)).await.remaining, 1, "{name}");
            assert!(decide(Hits::ONE).await.admitted, "{name}");
            assert!(!decide(Hits::ONE).await.admitted, "{name}");
        }
    }
}

async fn a_window_ends_at_its_edge(store: &Subject) {
    let policy = limited(Algorithm::FixedWindow);
    store.decide_one(at(59 * SECOND), "a", policy, Hits::charge(3)).await;
    assert!(!store.decide_one(at(60 * SECOND - 1), "a", policy, Hits::ONE).await.admitted);
    let next = store.decide_one(at(60 * SECOND), "a", policy, Hits::ONE).await;
    assert!(next.admitted);
    assert_eq!((next.remaining, next.reset_after.as_secs()), (2, 60));
}

async fn a_bucket_admits_its_burst_at_once_then_its_rate(store: &Subject) {
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let policy =
        Policy::new(Algorithm::TokenBucket, quota, &Parameters { burst: Some(5), ..Parameters::default() })
            .expect("valid");
    for remaining in (0..5).rev() {
        let verdict = store.decide_one(at(0), "a", policy, Hits::ONE).await;
        assert!(verdict.admitted);
        assert_eq!(verdict.remaining, remaining);
    }
    assert!(!store.decide_one(at(0), "a", policy, Hits::ONE).await.admitted);
    for second in 1..10 {
        assert!(store.decide_one(at(second * SECOND), "a", policy, Hits::ONE).await.admitted);
        assert!(!store.decide_one(at(second * SECOND + 1), "a", policy, Hits::ONE).await.admitted);
    }
}

async fn a_bucket_admits_at_retry_after_and_not_a_microsecond_earlier(store: &Subject) {
    // 7 per minute: an interval that is no whole number of microseconds.
    let policy = policy(Algorithm::TokenBucket, 7, 60);
    let mut now = 123;
    for _ in 0..20 {
        while store.decide_one(at(now), "a", policy, Hits::ONE).await.admitted {}
        let denied = store.decide_one(at(now), "a", policy, Hits::ONE).await;
        let wait = u64::try_from(denied.retry_after.as_micros()).expect("short");
        assert!(!store.decide_one(at(now + wait - 1), "a", policy, Hits::ONE).await.admitted);
        now += wait;
        assert!(store.decide_one(at(now), "a", policy, Hits::ONE).await.admitted);
    }
}

async fn a_bucket_does_not_count_hits_that_it_denies(store: &Subject) {
    let policy = limited(Algorithm::TokenBucket);
    store.decide_one(at(0), "a", policy, Hits::charge(3)).await;
    let first = store.decide_one(at(0), "a", policy, Hits::ONE).await;
    for _ in 0..10 {
        assert_eq!(store.decide_one(at(0), "a", policy, Hits::ONE).await, first);
    }
    assert_eq!(first.retry_after.as_secs(), 20);
}

async fn a_check_charges_nothing(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(0), "a", policy, Hits::charge(2)).await;
        for _ in 0..5 {
            let look = store.decide_one(at(0), "a", policy, Hits::Peek).await;
            assert!(look.admitted);
            assert_eq!(look.remaining, 1);
        }
        assert_eq!(store.decide_one(at(0), "unused", policy, Hits::Peek).await.remaining, 3);
    }
}

async fn a_refund_never_goes_below_zero(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(0), "a", policy, Hits::charge(3)).await;
        let refunded = store.decide_one(at(0), "a", policy, Hits::refund(2)).await;
        assert!(refunded.admitted);
        assert_eq!(refunded.remaining, 2);
        let emptied = store.decide_one(at(0), "a", policy, Hits::refund(1_000_000)).await;
        assert_eq!((emptied.remaining, emptied.used), (3, 0));
        assert_eq!(store.decide_one(at(0), "a", policy, Hits::ONE).await.remaining, 2);
        assert_eq!(store.decide_one(at(0), "unused", policy, Hits::refund(1)).await.remaining, 3);
    }
}

async fn more_hits_than_the_limit_never_pass(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let verdict = store.decide_one(at(0), "a", limited(algorithm), Hits::charge(4)).await;
        assert!(!verdict.admitted);
        assert_eq!(verdict.retry_after, Duration::MAX);
    }
}

async fn a_limit_of_zero_denies_every_hit(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = policy(algorithm, 0, 60);
        let verdict = store.decide_one(at(0), "a", policy, Hits::ONE).await;
        assert!(!verdict.admitted);
        assert_eq!(verdict.remaining, 0);
        assert!(store.decide_one(at(0), "unused", policy, Hits::Peek).await.admitted);
    }
}

async fn counters_of_one_tag_are_independent(store: &Subject) {
    let (window, bucket) = (limited(Algorithm::FixedWindow), limited(Algorithm::TokenBucket));
    let checks = [(1, window, Hits::charge(3)), (2, window, Hits::ONE), (1, bucket, Hits::charge(2))];
    let remaining = |verdicts: Vec<Verdict>| -> Vec<u64> {
        verdicts.into_iter().map(|verdict| verdict.remaining).collect()
    };
    assert_eq!(remaining(store.decide(at(0), &call("a", &checks)).await), [0, 2, 1]);
    // Some of them, in another order, and a new one.
    let checks = [(1, bucket, Hits::Peek), (3, window, Hits::ONE), (1, window, Hits::Peek)];
    assert_eq!(remaining(store.decide(at(0), &call("a", &checks)).await), [1, 2, 0]);
    assert_eq!(remaining(store.decide(at(0), &call("b", &[(1, window, Hits::ONE)])).await), [2]);
}

async fn a_counter_checked_twice_in_a_call_is_charged_twice(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let check = (1, limited(algorithm), Hits::charge(2));
        let verdicts = store.decide(at(0), &call("a", &[check, check])).await;
        assert_eq!((verdicts[0].admitted, verdicts[1].admitted), (true, false));
    }
}

async fn a_limit_that_changes_keeps_the_usage(store: &Subject) {
    let fixed = |limit| policy(Algorithm::FixedWindow, limit, 60);
    store.decide_one(at(0), "a", fixed(10), Hits::charge(8)).await;
    assert_eq!(store.decide_one(at(0), "a", fixed(20), Hits::Peek).await.remaining, 12);
    let lowered = store.decide_one(at(0), "a", fixed(5), Hits::Peek).await;
    assert_eq!((lowered.admitted, lowered.remaining), (false, 0));
    // A bucket keeps the part of it that is used.
    let bucket = |limit| policy(Algorithm::TokenBucket, limit, 60);
    store.decide_one(at(0), "b", bucket(10), Hits::charge(5)).await;
    assert_eq!(store.decide_one(at(0), "b", bucket(20), Hits::Peek).await.remaining, 10);
    assert_eq!(store.decide_one(at(0), "b", bucket(4), Hits::Peek).await.remaining, 2);
}

async fn a_window_that_changes_keeps_the_usage_until_its_next_edge(store: &Subject) {
    let fixed = |seconds| policy(Algorithm::FixedWindow, 10, seconds);
    let used = async |name, micros, seconds| {
        store.decide_one(at(micros), name, fixed(seconds), Hits::Peek).await.used
    };
    store.decide_one(at(0), "longer", fixed(60), Hits::charge(4)).await;
    assert_eq!(used("longer", 59 * SECOND, 3600).await, 4);
    store.decide_one(at(0), "shorter", fixed(3600), Hits::charge(4)).await;
    assert_eq!(used("shorter", SECOND, 60).await, 4);
    store.decide_one(at(SECOND), "shorter", fixed(60), Hits::ONE).await;
    assert_eq!(used("shorter", 119 * SECOND, 60).await, 5);
    assert_eq!(used("shorter", 120 * SECOND, 60).await, 0);
}

async fn a_clock_that_steps_back_grants_nothing_twice(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(61 * SECOND), "a", policy, Hits::charge(3)).await;
        assert!(!store.decide_one(at(59 * SECOND), "a", policy, Hits::ONE).await.admitted);
        assert!(!store.decide_one(at(61 * SECOND), "a", policy, Hits::ONE).await.admitted);
        // Nor does a clock that was hours ahead keep anyone waiting for hours.
        store.decide_one(at(7200 * SECOND), "b", policy, Hits::charge(3)).await;
        assert!(!store.decide_one(at(0), "b", policy, Hits::ONE).await.admitted);
        assert!(store.decide_one(at(121 * SECOND), "b", policy, Hits::ONE).await.admitted);
    }
}

async fn a_clock_that_is_put_right_grants_nothing_twice(store: &Subject) {
    const DAY: u64 = 86_400 * SECOND;
    let quota = Quota { limit: 10, window: Window::from_seconds(86_400).expect("in range") };
    let parameters = Parameters { lease_ttl: Duration::from_secs(86_400), ..Parameters::default() };
    for algorithm in Algorithm::ALL {
        let (name, policy) = (algorithm.name(), Policy::new(algorithm, quota, &parameters).expect("valid"));
        let right = 30 * DAY;
        let decide = async |micros, hits| store.decide_one(at(micros), name, policy, hits).await;
        assert!(decide(right, Hits::charge(8)).await.admitted, "{name}");
        // What passes meanwhile counts too; a bucket that is full later than it may be admits nothing.
        let meanwhile = if algorithm == Algorithm::TokenBucket { right } else { right - 3 * DAY };
        assert!(decide(meanwhile, Hits::charge(2)).await.admitted, "{name}");
        for (micros, hits) in [
            (right - 3 * DAY, Hits::ONE),
            (right - 3 * DAY + SECOND, Hits::Peek),
            (right + SECOND, Hits::ONE),
            (right - 2 * DAY, Hits::ONE),
            (right + 2 * SECOND, Hits::ONE),
        ] {
            let verdict = decide(micros, hits).await;
            assert!(hits == Hits::Peek || !verdict.admitted, "{name} at {micros}: {verdict:?}");
            assert_eq!(verdict.remaining, 0, "{name} at {micros}");
        }
    }
}

async fn amounts_beyond_any_limit_are_exact_enough(store: &Subject) {
    let policy = policy(Algorithm::FixedWindow, u32::MAX, 60);
    assert_eq!(store.decide_one(at(0), "a", policy, Hits::charge(u64::from(u32::MAX))).await.remaining, 0);
    assert!(!store.decide_one(at(0), "a", policy, Hits::ONE).await.admitted);
    assert!(!store.decide_one(at(0), "a", policy, Hits::charge(u64::MAX)).await.admitted);
    let bucket = crate::support::stores::policy(Algorithm::TokenBucket, u32::MAX, Window::MAX_SECONDS);
    assert!(store.decide_one(at(0), "b", bucket, Hits::charge(u64::from(u32::MAX))).await.admitted);
    assert!(!store.decide_one(at(0), "b", bucket, Hits::charge(u64::MAX)).await.admitted);
}

async fn a_sliding_window_weights_the_previous_window(store: &Subject) {
    let policy = policy(Algorithm::SlidingWindow, 10, 60);
    store.decide_one(at(59 * SECOND), "a", policy, Hits::charge(10)).await;
    let used = async |micros| store.decide_one(at(micros), "a", policy, Hits::Peek).await.used;
    for (tenth, left) in [(600, 10), (601, 9), (660, 9), (661, 8), (900, 5)] {
        assert_eq!(used(tenth * SECOND / 10).await, left, "at {tenth} tenths of a second");
    }
    assert!(store.decide_one(at(90 * SECOND), "a", policy, Hits::charge(5)).await.admitted);
    assert!(!store.decide_one(at(90 * SECOND), "a", policy, Hits::ONE).await.admitted);
    for (second, left) in [(114, 6), (119, 5), (120, 5), (150, 2), (180, 0)] {
        assert_eq!(used(second * SECOND).await, left, "at {second} s");
    }
}

async fn a_count_that_grows_large_leaves_its_neighbours_alone(store: &Subject) {
    let sliding = policy(Algorithm::SlidingWindow, 1_000_000, 60);
    let fixed = policy(Algorithm::FixedWindow, 1_000_000, 60);
    let request = |hits: [u64; 4]| {
        let [a, b, c, d] = hits.map(Hits::charge);
        call("a", &[(1, sliding, a), (2, fixed, b), (3, sliding, c), (4, sliding, d)])
    };
    let used = async |micros, hits| {
        let verdicts = store.decide(at(micros), &request(hits)).await;
        verdicts.iter().map(|verdict| verdict.used).collect::<Vec<_>>()
    };
    assert_eq!(used(0, [65_535, 2, 3, 4]).await, [65_535, 2, 3, 4]);
    assert_eq!(used(1, [1, 1, 1, 70_000]).await, [65_536, 3, 4, 70_004]);
    assert_eq!(used(2, [1, 1, 65_532, 1]).await, [65_537, 4, 65_536, 70_005]);
    assert_eq!(used(3, [0; 4]).await, [65_537, 4, 65_536, 70_005]);
    // Half of the next window later.
    assert_eq!(used(90 * SECOND, [1; 4]).await, [32_769, 1, 32_769, 35_003]);
}

async fn a_log_frees_each_hit_when_a_window_has_passed(store: &Subject) {
    let policy = limited(Algorithm::SlidingWindowLog);
    for second in [0, 10, 50] {
        assert!(store.decide_one(at(second * SECOND), "a", policy, Hits::ONE).await.admitted);
    }
    for (second, passes) in [(59, false), (60, true), (69, false), (70, true), (109, false), (110, true)] {
        let verdict = store.decide_one(at(second * SECOND), "a", policy, Hits::ONE).await;
        assert_eq!(verdict.admitted, passes, "at {second} s");
    }
    let two = store.decide_one(at(111 * SECOND), "a", policy, Hits::charge(2)).await;
    assert_eq!((two.admitted, two.retry_after.as_secs()), (false, 19), "hits of 60, 70 and 110 s");
}

async fn a_log_enforces_the_minimum_interval(store: &Subject) {
    let quota = Quota { limit: 100, window: Window::from_seconds(60).expect("in range") };
    let parameters = Parameters { min_interval: Duration::from_millis(50), ..Parameters::default() };
    let policy = Policy::new(Algorithm::SlidingWindowLog, quota, &parameters).expect("valid");
    assert!(store.decide_one(at(0), "a", policy, Hits::charge(10)).await.admitted);
    let early = store.decide_one(at(49_999), "a", policy, Hits::ONE).await;
    assert_eq!((early.admitted, early.remaining, early.retry_after.as_micros()), (false, 90, 1));
    assert!(store.decide_one(at(49_999), "a", policy, Hits::Peek).await.admitted);
    assert!(store.decide_one(at(50_000), "a", policy, Hits::ONE).await.admitted);
}

/// Takes places under the lease of a number.
fn acquire(lease: u64, amount: u64) -> Hits {
    let [lease, amount] = [lease, amount].map(|number| NonZeroU64::new(number).expect("not 0"));
    Hits::Acquire { amount, lease: LeaseId::new(lease) }
}

fn release(lease: u64) -> Hits {
    Hits::Release(LeaseId::new(NonZeroU64::new(lease).expect("not 0")))
}

async fn a_permit_is_held_until_its_lease_is_released(store: &Subject) {
    let policy = limited(Algorithm::Concurrency);
    let decide = async |hits| store.decide_one(at(0), "a", policy, hits).await;
    assert_eq!(decide(acquire(1, 1)).await.remaining, 2);
    assert_eq!(decide(acquire(2, 2)).await.remaining, 0);
    assert!(!decide(acquire(3, 1)).await.admitted);
    // One that was denied holds nothing, and one that is released twice frees nothing of others.
    for (lease, remaining) in [(3, 0), (1, 1), (1, 1), (99, 1), (2, 3), (2, 3)] {
        let released = decide(release(lease)).await;
        assert!(released.admitted);
        assert_eq!(released.remaining, remaining, "after lease {lease}");
    }
    assert!(decide(acquire(1, 3)).await.admitted);
}

async fn an_unreleased_lease_expires(store: &Subject) {
    let policy = limited(Algorithm::Concurrency);
    store.decide_one(at(0), "a", policy, acquire(1, 1)).await;
    store.decide_one(at(30 * SECOND), "a", policy, acquire(2, 2)).await;
    assert!(!store.decide_one(at(60 * SECOND - 1), "a", policy, acquire(3, 1)).await.admitted);
    assert!(store.decide_one(at(60 * SECOND), "a", policy, acquire(3, 1)).await.admitted);
    assert_eq!(store.decide_one(at(90 * SECOND), "a", policy, Hits::Peek).await.used, 1);
}

async fn a_reset_frees_everything(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = limited(algorithm);
        store.decide_one(at(59 * SECOND), "a", policy, Hits::charge(2)).await;
        store.decide_one(at(61 * SECOND), "a", policy, Hits::ONE).await;
        let reset = store.decide_one(at(61 * SECOND), "a", policy, Hits::reset()).await;
        assert_eq!((reset.used, reset.remaining), (0, 3), "{}", algorithm.name());
        assert!(store.decide_one(at(61 * SECOND), "a", policy, Hits::charge(3)).await.admitted);
    }
}

/// Decides a call that charges all or none; every check of its own number, and each may veto or not.
async fn all_or_none(
    store: &Subject,
    micros: u64,
    name: &str,
    checks: &[(Policy, Hits, bool)],
) -> Vec<Verdict> {
    let numbered = checks.iter().zip(0..).map(|((policy, hits, vetoes), at)| ((at, *policy, *hits), *vetoes));
    store.decide(at(micros), &charging(Charging::AllOrNone, name, &numbered.collect::<Vec<_>>())).await
}

/// The state of counters of these policies, numbered in order.
async fn used(store: &Subject, micros: u64, name: &str, policies: &[Policy]) -> Vec<u64> {
    let looks: Vec<_> = policies.iter().map(|policy| (*policy, Hits::Peek, false)).collect();
    all_or_none(store, micros, name, &looks).await.iter().map(|verdict| verdict.used).collect()
}

async fn one_denial_leaves_all_counters_untouched(store: &Subject) {
    let policies = Algorithm::ALL.map(|algorithm| policy(algorithm, 5, 60));
    for (exhausted, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        let name = algorithm.name();
        let mut checks: Vec<_> = policies.iter().map(|policy| (*policy, Hits::charge(2), true)).collect();
        let admitted = all_or_none(store, 0, name, &checks).await;
        assert!(admitted.iter().all(|verdict| verdict.admitted && verdict.remaining == 3), "{admitted:?}");
        checks[exhausted].1 = Hits::charge(4);
        for _ in 0..3 {
            let denied = all_or_none(store, 0, name, &checks).await;
            let passing: Vec<_> = denied.iter().map(|verdict| verdict.admitted).collect();
            let expected: Vec<_> = (0..policies.len()).map(|at| at != exhausted).collect();
            assert_eq!(passing, expected, "{name}");
            assert!(denied.iter().all(|verdict| verdict.remaining == 3), "{denied:?}");
            assert!(denied[exhausted].retry_after > Duration::ZERO);
        }
        assert_eq!(used(store, 0, name, &policies).await, [2; 5]);
    }
}

async fn shadow_checks_block_no_charge(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let (watched, enforced) = (policy(algorithm, 1, 60), policy(Algorithm::TokenBucket, 5, 60));
        let checks = [(watched, Hits::charge(2), false), (enforced, Hits::charge(2), true)];
        let verdicts = all_or_none(store, 0, algorithm.name(), &checks).await;
        assert_eq!((verdicts[0].admitted, verdicts[1].admitted), (false, true));
        assert_eq!(used(store, 0, algorithm.name(), &[watched, enforced]).await, [0, 2]);
    }
}

/// Decides a call that charges all or none; every check of its own number, with its veto.
async fn all_or_none_with(store: &Subject, name: &str, checks: &[(Policy, Hits, Veto)]) -> Vec<Verdict> {
    let numbered = checks.iter().zip(0..).map(|((policy, hits, veto), at)| ((at, *policy, *hits), *veto));
    store.decide(at(0), &charging_with(Charging::AllOrNone, name, &numbered.collect::<Vec<_>>())).await
}

async fn quotas_block_all_charges_when_every_one_is_exhausted(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let (quota, name) = (policy(algorithm, 3, 60), algorithm.name());
        let bucket = policy(Algorithm::TokenBucket, 20, 60);
        let checks = |first, second| {
            [
                (quota, Hits::charge(first), Veto::WithQuotas),
                (bucket, Hits::ONE, Veto::Alone),
                (quota, Hits::charge(second), Veto::WithQuotas),
            ]
        };
        let passing = async |first, second| -> Vec<bool> {
            let verdicts = all_or_none_with(store, name, &checks(first, second)).await;
            verdicts.iter().map(|verdict| verdict.admitted).collect()
        };
        let used = async || used(store, 0, name, &[quota, bucket, quota]).await;
        assert_eq!(passing(1, 1).await, [true; 3], "{name}");
        // One of them has room.
        assert_eq!(passing(3, 1).await, [false, true, true], "{name}");
        assert_eq!(used().await, [1, 2, 2], "{name}");
        for _ in 0..3 {
            assert_eq!(passing(3, 2).await, [false, true, false], "{name}");
            assert_eq!(used().await, [1, 2, 2], "{name}");
        }
        // A quota that is read, and exhausted, leaves only the other.
        assert_eq!(passing(2, 1).await, [true; 3], "{name}");
        assert_eq!(passing(0, 1).await, [true, true, false], "{name}: used up is not over");
    }
}

async fn quotas_beside_those_of_other_tags_block_no_charge(store: &Subject) {
    let (quota, bucket) = (policy(Algorithm::FixedWindow, 1, 60), policy(Algorithm::TokenBucket, 9, 60));
    let checks = [(quota, Hits::charge(2), Veto::AcrossTags), (bucket, Hits::ONE, Veto::Alone)];
    let verdicts = all_or_none_with(store, "a", &checks).await;
    assert_eq!((verdicts[0].admitted, verdicts[1].admitted), (false, true));
    assert_eq!(used(store, 0, "a", &[quota, bucket]).await, [0, 1]);
}

async fn a_precheck_decides_without_charging(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let (policy, name) = (policy(algorithm, 3, 60), algorithm.name());
        all_or_none_with(store, name, &[(policy, Hits::charge(2), Veto::Alone)]).await;
        for (hits, passes) in [(1, true), (2, false), (1, true)] {
            let prechecked =
                all_or_none_with(store, name, &[(policy, Hits::charge(hits), Veto::Always)]).await;
            assert_eq!((prechecked[0].admitted, prechecked[0].used), (passes, 2), "{name}");
            assert_eq!(prechecked[0].retry_after.is_zero(), passes, "{name}");
        }
        assert_eq!(used(store, 0, name, &[policy]).await, [2], "{name}");
    }
}

async fn a_denied_hit_counts_nowhere_if_all_or_none_are_charged(store: &Subject) {
    let policy = limited(Algorithm::FixedWindow);
    for _ in 0..5 {
        let denied = all_or_none(store, 0, "a", &[(policy, Hits::charge(4), true)]).await;
        assert_eq!((denied[0].admitted, denied[0].over, denied[0].remaining), (false, 1, 3));
    }
}

async fn a_refunded_charge_leaves_no_trace(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let policy = policy(algorithm, 5, 60);
        let name = algorithm.name();
        store.decide_one(at(0), name, policy, acquire(1, 2)).await;
        let charged = store.decide_one(at(SECOND), name, policy, acquire(2, 3)).await;
        assert_eq!((charged.admitted, charged.remaining), (true, 0), "{name}");
        let undo = match algorithm {
            Algorithm::Concurrency => release(2),
            _ => {
                Hits::RefundCharge { amount: NonZeroU64::new(3).expect("not 0"), made_at: charged.decided_at }
            }
        };
        // A bucket's end is known to the microsecond below it.
        store.decide_one(at(SECOND), name, policy, undo).await;
        let left = store.decide_one(at(SECOND + 1), name, policy, Hits::Peek).await;
        assert_eq!(left.used, 2, "{name}");
    }
}

async fn a_late_refund_takes_nothing_from_other_charges(store: &Subject) {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::TokenBucket,
    ] {
        let (policy, name) = (policy(algorithm, 5, 60), algorithm.name());
        let charged = store.decide_one(at(0), name, policy, Hits::charge(5)).await;
        let late = 121 * SECOND;
        assert_eq!(store.decide_one(at(late), name, policy, Hits::charge(5)).await.remaining, 0);
        let undo =
            Hits::RefundCharge { amount: NonZeroU64::new(5).expect("not 0"), made_at: charged.decided_at };
        assert_eq!(store.decide_one(at(late), name, policy, undo).await.remaining, 0, "{name}");
    }
}

async fn a_lowered_limit_denies_until_the_usage_is_below_it(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let (high, low, name) = (policy(algorithm, 10, 60), policy(algorithm, 2, 60), algorithm.name());
        store.decide_one(at(0), name, high, Hits::charge(8)).await;
        let lowered = store.decide_one(at(0), name, low, Hits::ONE).await;
        // A bucket keeps the part of it that is used, and 8 of 10 are 1.6 of 2.
        assert!(!lowered.admitted && lowered.remaining == 0, "{name}: {lowered:?}");
        assert!(store.decide_one(at(0), name, high, Hits::ONE).await.admitted, "{name}");
        assert!(store.decide_one(at(180 * SECOND), name, low, Hits::ONE).await.admitted, "{name}");
    }
}

async fn a_window_that_is_made_longer_grants_nothing_anew(store: &Subject) {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingWindowLog] {
        let (short, long, name) = (policy(algorithm, 5, 60), policy(algorithm, 5, 3_600), algorithm.name());
        store.decide_one(at(SECOND), name, short, Hits::charge(5)).await;
        for second in [2, 59, 61, 600] {
            let verdict = store.decide_one(at(second * SECOND), name, long, Hits::ONE).await;
            assert!(!verdict.admitted, "{name} at {second} s");
        }
        // And back: no wait exceeds three of the short windows.
        let verdict = store.decide_one(at(601 * SECOND), name, short, Hits::ONE).await;
        assert!(verdict.retry_after <= Duration::from_secs(180), "{name}: {verdict:?}");
    }
    // A lower rate keeps the part of a bucket that is used.
    let (fast, slow) = (policy(Algorithm::TokenBucket, 5, 60), policy(Algorithm::TokenBucket, 5, 3_600));
    store.decide_one(at(0), "bucket", fast, Hits::charge(5)).await;
    let slowed = store.decide_one(at(0), "bucket", slow, Hits::ONE).await;
    assert_eq!((slowed.admitted, slowed.remaining), (true, 3), "60 s of debt are less than a token's 720 s");
}

async fn another_algorithm_has_a_counter_of_its_own(store: &Subject) {
    for (from, to) in Algorithm::ALL.into_iter().zip(Algorithm::ALL.into_iter().cycle().skip(1)) {
        let name = from.name();
        store.decide_one(at(0), name, limited(from), Hits::charge(3)).await;
        assert_eq!(store.decide_one(at(0), name, limited(to), Hits::Peek).await.used, 0);
        // Back again, what was used is known.
        assert!(!store.decide_one(at(0), name, limited(from), Hits::ONE).await.admitted, "{name}");
    }
}

async fn a_peek_with_a_smaller_burst_fills_no_bucket(store: &Subject) {
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let burst = |burst| Parameters { burst: Some(burst), ..Parameters::default() };
    let large = Policy::new(Algorithm::TokenBucket, quota, &burst(1_000)).expect("valid");
    let small = large.with_quota(quota);
    assert!(store.decide_one(at(0), "a", large, Hits::charge(900)).await.admitted);
    for hits in [Hits::Peek, Hits::ONE, Hits::refund(1)] {
        let verdict = store.decide_one(at(0), "a", small, hits).await;
        assert_eq!(verdict.remaining, 0);
    }
    assert_eq!(store.decide_one(at(0), "a", large, Hits::Peek).await.remaining, 101);
}

/// A bucket of a rule: `limit` per `seconds`, and a burst.
fn bucket(limit: u32, seconds: u32, burst: u32) -> Policy {
    let quota = Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") };
    let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
    Policy::new(Algorithm::TokenBucket, quota, &parameters).expect("valid")
}

async fn a_changed_bucket_denies_no_longer_than_it_takes_to_fill(store: &Subject) {
    for (name, before, after, fills_in) in [
        ("rate", bucket(100, 86_400, 100), bucket(1_000, 1, 1_000), 1),
        ("burst", bucket(60, 60, 3_600), bucket(60, 60, 5), 5),
        // Within one size.
        ("slightly", bucket(60, 60, 60), bucket(60, 60, 50), 50),
    ] {
        let burst = before.burst().expect("a bucket");
        assert!(store.decide_one(at(0), name, before, Hits::charge(burst)).await.admitted, "{name}");
        let denied = store.decide_one(at(0), name, after, Hits::ONE).await;
        assert!(
            !denied.admitted && denied.retry_after <= Duration::from_secs(fills_in),
            "{name}: {denied:?}"
        );
        assert_eq!(denied.reset_after, Duration::from_secs(fills_in), "{name}");
        let full = store.decide_one(at(fills_in * SECOND), name, after, Hits::Peek).await;
        assert_eq!(full.remaining, after.burst().expect("a bucket"), "{name}");
    }
}

async fn a_bucket_of_a_rule_is_not_filled_for_a_larger_limit_override(store: &Subject) {
    let small = bucket(60, 60, 5);
    let quota = Quota { limit: 60, window: Window::from_seconds(60).expect("in range") };
    let large = small.with_quota(quota);
    assert!(store.decide_one(at(0), "a", large, Hits::charge(60)).await.admitted);
    for hits in [Hits::Peek, Hits::ONE, Hits::charge(5)] {
        assert_eq!(store.decide_one(at(0), "a", small, hits).await.remaining, 0);
    }
    assert_eq!(store.decide_one(at(10 * SECOND), "a", large, Hits::Peek).await.remaining, 10);
    assert!(store.decide_one(at(60 * SECOND), "a", small, Hits::charge(5)).await.admitted, "paid");
}

async fn a_longer_sliding_window_counts_the_usage_of_the_shorter_one(store: &Subject) {
    // Windows of both lengths end at the same time, or usage of the former window counts in part.
    const START: u64 = 1_200;
    for (from, to, charged_at, changed_at) in [
        (10, 60, 45, 46),
        (10, 60, 45, 51),
        (20, 40, 19, 21),
        (20, 40, 39, 45),
        (40, 60, 115, 116),
        (1, 60, 59, 59),
    ] {
        let [charged_at, changed_at] = [charged_at, changed_at].map(|second| START + second);
        let (short, stated) =
            (policy(Algorithm::SlidingWindow, 100, from), policy(Algorithm::SlidingWindow, 100, to));
        let long = stated.succeeding(&short, at(changed_at * SECOND));
        let name = format!("{from} to {to} at {changed_at}");
        for (micros, hits) in [(charged_at * SECOND - u64::from(from) * SECOND, 1), (charged_at * SECOND, 90)]
        {
            assert!(store.decide_one(at(micros), &name, short, Hits::charge(hits)).await.admitted, "{name}");
        }
        let mut passed = 90;
        let end = changed_at - changed_at % u64::from(to) + u64::from(to);
        for second in changed_at..end {
            while store.decide_one(at(second * SECOND), &name, long, Hits::ONE).await.admitted {
                passed += 1;
            }
        }
        // Those of a window of the longer length before this one may count in part.
        let most = if charged_at < end - u64::from(to) { 190 } else { 100 };
        assert!(passed <= most, "{name}: {passed}");
    }
}

async fn a_longer_lifetime_applies_to_idle_counters(store: &Subject) {
    let lease_ttl = |seconds| {
        let quota = Quota { limit: 3, window: Window::from_seconds(1).expect("in range") };
        let parameters = Parameters { lease_ttl: Duration::from_secs(seconds), ..Parameters::default() };
        Policy::new(Algorithm::Concurrency, quota, &parameters).expect("valid")
    };
    let log = |seconds| policy(Algorithm::SlidingWindowLog, 3, seconds);
    for (name, short, long) in [("log", log(10), log(60)), ("leases", lease_ttl(10), lease_ttl(60))] {
        assert!(store.decide_one(at(0), name, short, Hits::charge(3)).await.admitted, "{name}");
        for second in [11, 59] {
            assert!(!store.decide_one(at(second * SECOND), name, long, Hits::ONE).await.admitted, "{name}");
        }
        assert!(store.decide_one(at(60 * SECOND), name, long, Hits::ONE).await.admitted, "{name}");
    }
}

async fn an_undone_bucket_gets_no_more_than_is_still_owed(store: &Subject) {
    // A token each 10 ms. Of three charges of 50, the first two are undone: one at once, one after the third.
    let policy = policy(Algorithm::TokenBucket, 100, 1);
    let charge = async |micros| store.decide_one(at(micros), "a", policy, Hits::charge(50)).await;
    let undo = async |micros, charged: Verdict| {
        let amount = NonZeroU64::new(50).expect("not 0");
        let undo = Hits::RefundCharge { amount, made_at: charged.decided_at };
        store.decide_one(at(micros), "a", policy, undo).await
    };
    let (first, second) = (charge(0).await, charge(0).await);
    assert_eq!(undo(0, first).await.used, 50);
    assert_eq!(charge(250_000).await.used, 75);
    assert_eq!(undo(250_000, second).await.used, 50, "the third alone");
}

async fn charges_of_one_counter_add_up_where_all_or_none_are_charged(store: &Subject) {
    let quota = Quota { limit: 100, window: Window::from_seconds(60).expect("in range") };
    let parameters = Parameters { min_interval: Duration::from_millis(50), ..Parameters::default() };
    let apart = Policy::new(Algorithm::SlidingWindowLog, quota, &parameters).expect("valid");
    let other = policy(Algorithm::FixedWindow, 10, 60);
    let checks =
        [((1, apart, Hits::ONE), true), ((2, other, Hits::ONE), true), ((1, apart, Hits::ONE), true)];
    let verdicts = store.decide(at(0), &charging(Charging::AllOrNone, "apart", &checks)).await;
    let passed: Vec<_> = verdicts.iter().map(|verdict| (verdict.admitted, verdict.used)).collect();
    assert_eq!(passed, [(true, 0), (true, 0), (false, 0)], "two requests of the same time");

    for algorithm in Algorithm::ALL {
        let (high, low) = (policy(algorithm, 10, 60), policy(algorithm, 3, 60));
        let look = ((1, low, Hits::Peek), true);
        for check in [((1, high, Hits::charge(6)), true), ((1, high, Hits::charge(5)), true)] {
            let checks = [((1, high, Hits::charge(5)), true), look, check];
            let verdicts =
                store.decide(at(0), &charging(Charging::AllOrNone, algorithm.name(), &checks)).await;
            let denied = verdicts.iter().any(|verdict| !verdict.admitted);
            let used = store.decide(at(0), &call(algorithm.name(), &[(1, high, Hits::Peek)])).await[0].used;
            assert_eq!(used == 0, denied, "{}: {verdicts:?}", algorithm.name());
            store.decide(at(0), &call(algorithm.name(), &[(1, high, Hits::reset())])).await;
        }
    }
}

async fn a_release_is_never_denied(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let (high, low, name) = (policy(algorithm, 10, 60), policy(algorithm, 2, 60), algorithm.name());
        store.decide_one(at(0), name, high, acquire(1, 8)).await;
        for hits in [Hits::refund(1), Hits::RefundCharge { amount: NonZeroU64::MIN, made_at: at(0) }] {
            assert!(store.decide_one(at(0), name, low, hits).await.admitted, "{name}");
        }
        store.decide_one(at(0), name, high, acquire(2, 1)).await;
        if algorithm == Algorithm::Concurrency {
            assert!(store.decide_one(at(0), name, low, release(2)).await.admitted);
        }
    }
}

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
