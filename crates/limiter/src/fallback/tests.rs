use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tollgate_core::{
    clock::Clock,
    descriptor::{Descriptor, Entry, Hits},
};
use tollgate_rules::{
    OnStoreError, Overrides, SwitchMode,
    config::{Options, load_files},
};
use tollgate_store::{MemoryStore, Store};

use super::Fallback;
use crate::{ActiveRules, Deadline, Limiter, Modes, Replicas, verdict::Code};

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
async fn ask(limiter: &Limiter, micros: &AtomicU64, seconds: &[u64]) -> Vec<(bool, bool)> {
    let mut results = Vec::new();
    for second in seconds {
        micros.store(second * 1_000_000, Ordering::Relaxed);
        let guard = limiter.rules();
        let entries = [Entry { key: "k", value: "v" }].into_iter().collect();
        let descriptors = [Descriptor { entries, limit: None, hits: Hits::ONE }];
        let active = guard.get().expect("rules");
        let (decision, _) =
            limiter.decide(active, "d", &descriptors, Deadline::UNKNOWN).await.expect("decided");
        let is_banned = decision.statuses[0].limited().is_some_and(|limited| limited.verdict.ban.is_some());
        results.push((decision.code == Code::Ok, is_banned));
    }
    results
}

#[tokio::test]
async fn a_share_of_a_limit_bans_no_client() {
    let micros = Arc::new(AtomicU64::new(0));
    let store = || MemoryStore::new(64, Clock::Manual(Arc::clone(&micros)));
    let rules = load_files([("rules.yaml".to_owned(), RULES.as_bytes().to_vec())], Options::default());
    let active = ActiveRules::default();
    active.replace(Arc::new(rules.expect("valid").rules));
    let active = Arc::new(active);
    let fallback = Fallback::new(OnStoreError::Local, store(), Replicas::new(NonZeroU32::MIN));
    let limiter =
        Limiter::new(Arc::clone(&active), Store::Memory(store()), Modes::default()).with_fallback(fallback);
    let emergency = [("d".into(), "*".into(), SwitchMode::Emergency)];
    active.override_with(Arc::new(Overrides::new(1, [], emergency)));
    assert_eq!(
        ask(&limiter, &micros, &[600, 600, 601, 602, 660]).await,
        [(true, false), (false, false), (false, false), (false, false), (true, false)]
    );
    active.override_with(Arc::new(Overrides::default()));
    assert_eq!(
        ask(&limiter, &micros, &[1_200, 1_200, 1_201, 1_260]).await,
        [(true, false), (false, false), (false, true), (false, true)],
        "the store bans"
    );
}
