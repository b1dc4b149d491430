use tollgate_store::Decisions;

use super::{DegradedRequest, Fallback};
use crate::{OwnShares, test_prelude::*};

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit:
    unit: minute
    requests_per_unit: 1
    ban: {threshold: 1, interval: 10s, duration: 1h, mode: enforce}
";

/// Results of hits in these seconds: whether they pass, and whether the counter is banned.
async fn decide(limiter: &Limiter, micros: &AtomicU64, seconds: &[u64]) -> Vec<(bool, bool)> {
    let mut results = Vec::new();
    for second in seconds {
        micros.store(second * 1_000_000, Ordering::Relaxed);
        let read = |decision: Decision<'_>, _| {
            let limited = decision.statuses[0].limited();
            (decision.code == Code::Ok, limited.is_some_and(|limited| limited.verdict.ban.is_some()))
        };
        results.push(decided(limiter, "d", &[descriptor(&[("k", "v")], Hits::ONE)], read).await);
    }
    results
}

#[tokio::test]
async fn a_share_of_a_limit_bans_no_client() {
    let micros = Arc::new(AtomicU64::new(0));
    let store = || MemoryStore::new(64, Clock::Manual(Arc::clone(&micros)));
    let active = active_rules(RULES, Options::default());
    let fallback = Some(Fallback::new(OnStoreError::Local, store(), Replicas::new(NonZeroU32::MIN)));
    let limiter = Limiter::new(Arc::clone(&active), Store::new(store()), Modes::default());
    let limiter = Limiter { fallback, ..limiter };
    let emergency = [("d".into(), "*".into(), SwitchMode::Emergency)];
    active.set_lists(Arc::new(Lists::new(1, [], emergency)));
    assert_eq!(
        decide(&limiter, &micros, &[600, 600, 601, 602, 660]).await,
        [(true, false), (false, false), (false, false), (false, false), (true, false)]
    );
    active.set_lists(Arc::new(Lists::default()));
    assert_eq!(
        decide(&limiter, &micros, &[1_200, 1_200, 1_201, 1_260]).await,
        [(true, false), (false, false), (false, true), (false, true)],
        "the store bans"
    );
}

/// Hits that the local store holds of the budget of `team`, after a request whose call timed out. `user` has this policy.
fn held_beside(policy: &str, domain: &str, lease: u64, fallback: &Fallback) -> u64 {
    let rules = format!(
        "{{domain: d, hash_tag: [team], {domain} descriptors: [{{key: team, \
         rate_limit: {{unit: day, requests_per_unit: 1000, reserve: {{}}, on_store_error: local}}, \
         descriptors: [{{key: user, \
         rate_limit: {{unit: day, requests_per_unit: 1000, reserve: {{}}, on_store_error: {policy}}}}}]}}]}}"
    );
    let active = active_rules(&rules, Options::default());
    let (guard, clock) = (active.active(), Clock::System);
    let active = guard.get().expect("rules");
    let rules = active.rules.domain("d").expect("the domain");
    let entries = [&[("team", "a")][..], &[("team", "a"), ("user", "me")]];
    let descriptors = entries.map(|entries| descriptor(entries, Hits::charge(400)));
    let changes = Changes { switched: active.switched, overridden: active.overridden, clock: &clock };
    let (modes, shares) = (Modes::default(), OwnShares::default());
    let lease = NonZeroU64::new(lease).map(LeaseId::new);
    let mut plan = matching::plan(rules, changes, &descriptors);
    calls::add(&mut plan, &ChargeTerms { modes, shares: &shares, clock: &clock, lease });
    let timeout = |_| Err(StoreError::Timeout(Duration::ZERO, None));
    let decisions: Decisions = plan.calls.iter().map(timeout).collect();
    let (counters, store) = (active.companion, &fallback.local());
    let request = DegradedRequest { counters, domain: rules, modes, limits: &plan.limits, store };
    fallback.decide(&request, &plan.calls, &decisions);
    let mut look = plan.calls;
    look.iter_mut()
        .flat_map(|call| &mut call.cells)
        .flat_map(|cell| &mut cell.checks)
        .for_each(|check| check.hits = Hits::Peek);
    let verdicts = look.iter().flat_map(|call| fallback.local.decide(call));
    verdicts.filter(|(descriptor, _)| *descriptor == 0).map(|(_, verdict)| verdict.held).sum()
}

#[test]
fn a_request_that_a_policy_denies_reserves_nothing_locally_and_ends_no_reservation() {
    for domain in ["", "atomic: true,"] {
        let local = MemoryStore::new(64, Clock::System);
        let fallback = Fallback::new(OnStoreError::Local, local, Replicas::new(NonZeroU32::MIN));
        for policy in ["deny", "error"] {
            assert_eq!(held_beside(policy, domain, 7, &fallback), 0, "{policy} {domain}");
        }
        assert_eq!(held_beside("allow", domain, 7, &fallback), 400, "{domain}");
        // An earlier attempt under the lease, and another request.
        assert_eq!(held_beside("deny", domain, 7, &fallback), 400, "{domain}");
        assert_eq!(held_beside("deny", domain, 8, &fallback), 400, "{domain}");
    }
}
