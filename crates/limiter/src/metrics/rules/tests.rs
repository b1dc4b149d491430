use tollgate_metrics::{Metric as _, Page};

use super::*;
use crate::test_prelude::*;

#[test]
fn a_path_has_counters_unless_it_is_too_long() {
    let rules = rules("values", &["k"]);
    let domain = rules.domain("values").expect("stated");
    let (rule, of_rule) = (&**domain.root.rules().next().expect("stated"), OfAlgorithm::default());
    let longest = "a".repeat(MAX_PATH_BYTES);
    assert!(of_rule.of_values(domain, rule, &longest, 1).is_some());
    assert!(of_rule.of_values(domain, rule, &longest, 1).is_some());
    assert!(of_rule.of_values(domain, rule, &format!("{longest}a"), 1).is_none());
}

/// Rules of one domain, one for each key, whose values metrics name.
fn rules(domain: &str, keys: &[&str]) -> Rules {
    let rule = |key: &&str| {
        format!("- {{key: {key}, detailed_metric: true, rate_limit: {{unit: day, requests_per_unit: 9}}}}\n")
    };
    let text = format!("domain: {domain}\ndescriptors:\n{}", keys.iter().map(rule).collect::<String>());
    rules_of(&text, Options::default())
}

#[test]
fn a_value_never_counts_under_another_rule() {
    let rules = rules("injective", &["api", "api_key"]);
    let counters = RuleCounters::for_rules(&rules);
    let domain = rules.domain("injective").expect("stated");
    let count = |key: &str, value: &str, hits| {
        let entries = [Entry { key, value }];
        let rule = domain.root.rule(&entries).expect("stated");
        let own = counters.of(rule).expect("one of them");
        let of_values = own.of_values(domain, rule, &rule.metric_path(&entries), 1).expect("room");
        of_values.add([hits, 0, 0, 0, 0, 0]);
    };
    // Either would be `api_key_abc`.
    count("api", "key_abc", 1);
    count("api_key", "abc", 10);
    count("api_key", "a.b", 100);
    let total = |rule: &str| rule_totals().of("injective", rule).hits;
    assert_eq!((total("api"), total("api_key")), (1, 110));
    let all = series::all();
    let of_path = |path: &str| {
        let alike = all.iter().filter(|series| (&*series.domain, &*series.path) == ("injective", path));
        alike.map(|series| series.counted()[0]).collect::<Vec<_>>()
    };
    assert_eq!(of_path("api_key_abc"), [1]);
    assert_eq!(of_path("api_key"), [10], "in the rule's own series");
    assert_eq!((of_path(r"api_key_a\.b"), of_path("api_key_a.b")), (vec![100], vec![]));
}

#[test]
fn a_rule_with_the_path_of_another_rules_value_has_its_own_series_and_the_page_has_the_sum() {
    let of_value = series::of_values("page", "tenant_acme", "tenant", 1).expect("room");
    of_value.counters().add([2, 0, 0, 0, 0, 0]);
    let (of_rule, _) = series::of_rule("page", "tenant_acme");
    of_rule.counters().add([3, 0, 0, 0, 0, 0]);
    assert_eq!((&*of_rule.rule, &*of_value.rule), ("tenant_acme", "tenant"));
    assert_eq!((of_rule.counted()[0], of_value.counted()[0]), (3, 2));
    let mut page = Page::default();
    RULE_METRICS.write(&mut page);
    let page = page.into_text();
    let samples: Vec<_> = page.lines().filter(|line| line.contains("_hits_total{domain=\"page\"")).collect();
    assert_eq!(samples, [r#"tollgate_rule_hits_total{domain="page",rule="tenant_acme"} 5"#]);
}

#[test]
fn a_rules_total_has_its_own_hits_and_those_of_its_values_whether_published_or_not() {
    let (own, _) = series::of_rule("totals", "tenant");
    let of_values = series::of_values("totals", "tenant_acme", "tenant", 1).expect("room");
    let (own, of_values) = (own.counters(), of_values.counters());
    own.add([1, 1, 0, 0, 0, 7]);
    of_values.add([5, 2, 1, 3, 3, 0]);
    let expected = RuleTotal { hits: 6, within: 3, near: 1, over: 3, shadow: 3, degraded: 7 };
    assert_eq!(rule_totals().of("totals", "tenant"), expected);
    // Another version of the rules has the same rule.
    drop(own);
    let again = series::of_rule("totals", "tenant").0.counters();
    again.add([1, 0, 0, 1, 0, 0]);
    assert_eq!(rule_totals().of("totals", "tenant").hits, 7);
    assert_eq!(rule_totals().of("totals", "tenant_acme"), RuleTotal::default());
    // A rule may be stated for what was a value.
    let stated = series::of_rule("totals", "tenant_acme").0.counters();
    stated.add([2, 0, 0, 0, 0, 0]);
    assert_eq!(rule_totals().of("totals", "tenant_acme").hits, 2);
    assert_eq!(rule_totals().of("totals", "tenant").hits, 7);
}
