//! Calls that charge all of their counters or none.

use super::*;

promises!(
    one_denial_leaves_all_counters_untouched,
    shadow_checks_block_no_charge,
    quotas_block_all_charges_when_every_one_is_exhausted,
    quotas_beside_those_of_other_tags_block_no_charge,
    a_precheck_decides_without_charging,
    a_denied_hit_counts_nowhere_if_all_or_none_are_charged,
    charges_of_one_counter_add_up_where_all_or_none_are_charged,
);

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
