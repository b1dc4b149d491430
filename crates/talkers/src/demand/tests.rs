//! Recommendations for synthetic traffic with known quantiles.

use tollgate_rules::config::{Options, load_files};

use super::*;

const BEGIN: u64 = 1_800_000_000;

fn rules(limit: u32) -> Rules {
    let text = format!(
        "domain: demand\ndescriptors:\n- {{key: api_key, rate_limit: {{unit: minute, requests_per_unit: {limit}}}}}\n\
         - {{key: permits, rate_limit: {{algorithm: concurrency, requests_per_unit: 9}}}}\n"
    );
    let file = ("rules.yaml".to_owned(), text.into_bytes());
    load_files([file], Options::default()).expect("valid").rules
}

fn demand_of(key: &str, value: impl std::fmt::Display, hits: u64) -> KeyDemand {
    let entries = vec![OwnedEntry { key: key.to_owned(), value: value.to_string() }];
    KeyDemand { domain: "demand".to_owned(), entries, hits }
}

/// Demand of `keys` keys in each of `minutes` minutes after the first, in two rounds each.
fn observed(rules: &Rules, keys: u64, minutes: u64, hits: impl Fn(u64) -> u64) -> Demand {
    let mut demand = Demand::default();
    let none = Overridden::default();
    demand.add(rules, &none, &[demand_of("api_key", 0, 1)], BEGIN + 10);
    for minute in 1..=minutes {
        let begin = BEGIN + minute * 60;
        let half = |part: fn(u64) -> u64| -> Vec<KeyDemand> {
            (0..keys)
                .map(|key| demand_of("api_key", key, part(hits(key))))
                .filter(|key| key.hits > 0)
                .collect()
        };
        demand.add(rules, &none, &half(|hits| hits / 2), begin);
        demand.add(rules, &none, &half(|hits| hits - hits / 2), begin + 30);
    }
    demand.add(rules, &none, &[], BEGIN + (minutes + 1) * 60);
    demand
}

fn is_within(found: u64, expected: f64, part: f64) -> bool {
    (found as f64 - expected).abs() <= part * expected + 1.0
}

/// Hits of the key with this rank in a long-tailed distribution.
fn pareto(rank: u64) -> u64 {
    (20_000.0 / (rank as f64 + 10.0).powf(0.8)) as u64 + 1
}

#[test]
fn limits_are_within_five_percent_of_the_quantiles_of_a_trace() {
    let (rules, keys) = (rules(1_000), 10_000);
    let demand = observed(&rules, keys, 5, pareto);
    let found = demand.recommendations(&rules, 1).pop().expect("a recommendation");
    assert_eq!((found.windows, found.window_s, &*found.rule), (5, 60, "api_key"));
    let mut values: Vec<u64> = (0..keys).map(pareto).collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = values.iter().sum();
    for limit in &found.by_keys {
        let expected = values[(limit.part * keys as f64) as usize] as f64;
        assert!(is_within(limit.limit, expected, 0.05), "{limit:?}, expected {expected}");
        assert!(limit.low <= limit.limit && limit.high.is_some_and(|high| high >= limit.limit));
    }
    for limit in &found.by_hits {
        let denied = |limit: f64| values.iter().map(|hits| (*hits as f64 - limit).max(0.0)).sum::<f64>();
        let exact =
            (1..40_000).find(|at| denied(f64::from(*at)) <= limit.part * all as f64).expect("a limit");
        assert!(is_within(limit.limit, exact.into(), 0.05), "{limit:?}, expected {exact}");
    }
    let over = values.iter().map(|hits| hits.saturating_sub(1_000)).sum::<u64>() as f64 / all as f64;
    assert!((found.denied_hits - over).abs() < 0.05 * over, "{} {over}", found.denied_hits);
}

#[test]
fn a_sample_of_many_keys_is_within_five_percent_too() {
    let (rules, keys) = (rules(1_000), 100_000);
    // Of uniform demand, whose quantiles are known.
    let demand = observed(&rules, keys, 2, |key| 1_000 + key % 1_000);
    let found = demand.recommendations(&rules, 1).pop().expect("a recommendation");
    assert!((found.keys - 100_000.0).abs() < 5_000.0, "{}", found.keys);
    for limit in &found.by_keys {
        let expected = 2_000.0 - 1_000.0 * limit.part;
        assert!(is_within(limit.limit, expected, 0.05), "{limit:?}, expected {expected}");
    }
}

#[test]
fn a_window_counts_once_it_was_observed_in_whole() {
    let rules = rules(10);
    let none = Overridden::default();
    let mut demand = Demand::default();
    demand.add(&rules, &none, &[demand_of("api_key", "a", 9)], BEGIN + 30);
    demand.add(&rules, &none, &[demand_of("api_key", "a", 9)], BEGIN + 60);
    assert!(demand.recommendations(&rules, 1).is_empty(), "only a part of a window");
    demand.add(&rules, &none, &[demand_of("permits", "a", 9)], BEGIN + 120);
    let found = demand.recommendations(&rules, 1);
    assert_eq!((found.len(), found[0].windows, found[0].hits), (1, 1, 9.0));
    assert_eq!(found[0].by_keys[0], RecommendedLimit { part: 0.001, limit: 9, low: 0, high: None });
    let shared = demand.recommendations(&rules, 3);
    assert_eq!((shared[0].hits, shared[0].by_keys[0].limit), (27.0, 27), "of three instances");
    demand.retain(&Rules::default());
    assert!(demand.recommendations(&rules, 1).is_empty());
}
