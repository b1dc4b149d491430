//! Cost of many overrides of keys for decisions: a measurement.

use tollgate::{
    descriptor::{Descriptor, Entries},
    limiter::{Deadline, Limiter, Modes},
    rules::{OverrideId, OverrideKey, RuleOverride, RuleOverrides},
    store::{MemoryStore, Store},
};

use super::*;

const RULES: &str =
    "domain: web\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 1000000}}\n";

const OVERRIDES: usize = 100_000;
const KEYS: usize = 4_096;
const DECISIONS: usize = 100_000;
const ROUNDS: usize = 15;

fn limiter(overrides: usize) -> Limiter {
    let files = [("rules.yaml".to_owned(), RULES.as_bytes().to_vec())];
    let rules = Arc::new(ActiveRules::default());
    rules.replace(Arc::new(load_files(files, Options::default()).expect("valid").rules));
    let stated = (0..overrides).map(|at| {
        let value = format!("customer-{at:08}");
        Arc::new(RuleOverride {
            id: OverrideId(at as u128),
            domain: "web".into(),
            rule: "k".into(),
            key: OverrideKey::new([("k", &*value)]).expect("valid"),
            rate_limit: format!(r#"{{"requests_per_unit":{}}}"#, 1_000_000 + at % 100).into(),
            ends_at_ms: Some(u64::MAX / 2),
        })
    });
    let overridden = rules.override_rules(Arc::new(RuleOverrides::new(1, stated)));
    assert_eq!(overridden.counts().keys, overrides);
    let store = Store::Memory(MemoryStore::new(1 << 20, Clock::System));
    Limiter::new(rules, store, Modes::default())
}

/// Time of decisions on keys of which half are overridden, if any are.
async fn decide(limiter: &Limiter, keys: &[String]) -> Duration {
    let begun = Instant::now();
    for key in keys.iter().cycle().take(DECISIONS) {
        let entries = Entries::from_iter([Entry { key: "k", value: key }]);
        let descriptors = [Descriptor { entries, limit: None, hits: Hits::ONE }];
        let active = limiter.rules();
        let active = active.get().expect("rules");
        let decided = limiter.decide(active, "web", &descriptors, Deadline::UNKNOWN).await;
        decided.expect("decided");
    }
    begun.elapsed()
}

/// `cargo test --release --test integration -- --ignored --nocapture cost_of_a_hundred_thousand`
#[tokio::test]
#[ignore = "a measurement"]
async fn cost_of_a_hundred_thousand_overrides_for_a_decision() {
    let (none, many) = (limiter(0), limiter(OVERRIDES));
    let key = |at: usize| match at % 2 {
        0 => format!("customer-{:08}", at * 7 % OVERRIDES),
        _ => format!("stranger-{at:08}"),
    };
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let (mut ratios, mut of_none, mut of_many) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (without, with) = match round % 2 {
            0 => (decide(&none, &keys).await, decide(&many, &keys).await),
            _ => {
                let with = decide(&many, &keys).await;
                (decide(&none, &keys).await, with)
            }
        };
        // The first round warms up.
        if round > 0 {
            ratios.push(with.as_secs_f64() / without.as_secs_f64());
            of_none.push(without / DECISIONS as u32);
            of_many.push(with / DECISIONS as u32);
        }
    }
    ratios.sort_by(f64::total_cmp);
    of_none.sort_unstable();
    of_many.sort_unstable();
    let middle = ROUNDS / 2;
    eprintln!(
        "a decision in memory without overrides {:?}, with {OVERRIDES} {:?}, median of ratios {:.3}",
        of_none[middle], of_many[middle], ratios[middle]
    );
}
