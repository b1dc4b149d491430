//! Decisions of rules with a candidate, and of rules that are enforced for a share of their keys.

use super::*;
use crate::metrics::{MAX_SAMPLED_KEYS, candidate_totals, enforcement_totals};
use crate::test_prelude::*;

const SECOND: u64 = 1_000_000;

/// The beginning of a minute.
const BEGIN: u64 = 1_800_000_000 * SECOND;

struct Instance {
    limiter: Limiter,
    rules: Arc<ActiveRules>,
    now: Arc<AtomicU64>,
}

impl Instance {
    fn new(yaml: &str) -> Self {
        let now = Arc::new(AtomicU64::new(BEGIN));
        let clock = Clock::Manual(Arc::clone(&now));
        let rules = active_rules(yaml, Options::default());
        let store = Store::new(MemoryStore::new(100_000, clock.clone()));
        let limiter = Limiter { clock, ..Limiter::new(Arc::clone(&rules), store, Modes::default()) };
        Self { limiter, rules, now }
    }

    async fn passes(&self, domain: &str, value: &str) -> bool {
        let descriptors = [descriptor(&[("api_key", value)], Hits::ONE)];
        decided(&self.limiter, domain, &descriptors, |decision, _| decision.code == Code::Ok).await
    }

    async fn enforced(&self, domain: &str, keys: std::ops::Range<u32>) -> Vec<u32> {
        let mut denied = Vec::new();
        for key in keys {
            if !self.passes(domain, &format!("client-{key}")).await {
                denied.push(key);
            }
        }
        denied
    }
}

fn compared(domain: &str) -> [u64; 4] {
    candidate_totals().into_iter().find(|(of, ..)| **of == *domain).expect("compared").2
}

#[tokio::test]
async fn the_burst_at_a_boundary_of_windows_is_denied_by_the_bucket_only() {
    let instance = Instance::new(
        "domain: boundary\ndescriptors:\n- key: api_key\n  rate_limit: {unit: minute, requests_per_unit: 100, \
         candidate: {algorithm: token_bucket, unit: minute, requests_per_unit: 100}}\n",
    );
    // Twice the limit within two seconds, which a fixed window admits.
    for second in [59, 60] {
        instance.now.store(BEGIN + second * SECOND, Ordering::Relaxed);
        for _ in 0..100 {
            assert!(instance.passes("boundary", "burst").await, "a candidate denies nothing");
        }
    }
    assert!(!instance.passes("boundary", "burst").await, "the rule denies as ever");
    let [admitted, rule_only, candidate_only, denied] = compared("boundary");
    assert_eq!((admitted + candidate_only, rule_only, denied), (200, 0, 1));
    assert!((97..=100).contains(&candidate_only), "{candidate_only}");
    let keys = differing_keys();
    let keys = &keys[&("boundary".into(), "api_key".into())];
    assert_eq!(keys.candidate_only, [("api_key=burst".to_owned(), candidate_only)]);
    assert!(keys.rule_only.is_empty());
    forget_keys(&("boundary".into(), "api_key".into()));
}

#[tokio::test]
async fn a_candidate_does_not_share_the_counter_of_its_rule() {
    let instance = Instance::new(
        "domain: counters\ndescriptors:\n- key: api_key\n  rate_limit: {unit: minute, requests_per_unit: 3, \
         candidate: {unit: minute, requests_per_unit: 1}}\n",
    );
    let mut passed = 0;
    for _ in 0..5 {
        passed += u32::from(instance.passes("counters", "a").await);
    }
    assert_eq!(passed, 3);
    assert_eq!(compared("counters"), [1, 0, 2, 2]);
}

#[tokio::test]
async fn a_limit_is_enforced_for_a_tenth_of_the_keys_the_same_on_every_instance() {
    let yaml = "domain: tenth\ndescriptors:\n- key: api_key\n  rate_limit: {unit: day, requests_per_unit: 0, \
                enforce_percent: 10}\n";
    let first = Instance::new(yaml).enforced("tenth", 0..10_000).await;
    assert!((900..=1_100).contains(&first.len()), "{}", first.len());
    // Another process, or this one after a restart.
    let other = Instance::new(&yaml.replace("unit: day", "algorithm: token_bucket, unit: hour"));
    assert_eq!(other.enforced("tenth", 0..10_000).await, first);
    let (_, _, total) =
        enforcement_totals().into_iter().find(|(domain, ..)| **domain == *"tenth").expect("counted");
    let sides = (total.denied, total.enforced, total.shadow_over, total.shadow);
    let (enforced, shadow) = (2 * first.len() as u64, 20_000 - 2 * first.len() as u64);
    assert_eq!(sides, (enforced, enforced, shadow, shadow));
    assert_eq!(total.keys.len(), MAX_SAMPLED_KEYS);
    assert!(
        total.keys.iter().all(|key| key.denied_s.is_some()) && total.keys.is_sorted_by_key(|key| key.key)
    );
}

#[tokio::test]
async fn a_switched_share_precedes_that_of_the_rule_and_contains_smaller_ones() {
    let instance = Instance::new(
        "domain: switched\ndescriptors:\n- key: api_key\n  shadow_mode: true\n  \
         rate_limit: {unit: day, requests_per_unit: 0}\n",
    );
    assert_eq!(instance.enforced("switched", 0..500).await.len(), 0);
    let set = |percent: f64| {
        let share = tollgate_core::EnforcedShare::from_percent(percent).expect("a share");
        let lists = Lists::new(1, [], []).with_shares([("switched".into(), "api_key".into(), share)]);
        instance.rules.set_lists(Arc::new(lists));
    };
    let mut before = Vec::new();
    for percent in [1.0, 10.0, 50.0, 100.0] {
        set(percent);
        let enforced = instance.enforced("switched", 0..500).await;
        assert!(before.iter().all(|key| enforced.contains(key)) && enforced.len() > before.len());
        before = enforced;
    }
    assert_eq!(before.len(), 500);
    let off = [("switched".into(), "api_key".into(), SwitchMode::Off)];
    instance.rules.set_lists(Arc::new(Lists::new(2, [], off)));
    assert_eq!(instance.enforced("switched", 0..500).await.len(), 0);
}
