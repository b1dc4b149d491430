//! `load_shedding`.

use std::time::Duration;

use tollgate_shedding::SheddingPolicy;

use super::*;

fn shedding(text: &str) -> String {
    domain(&format!("  - {{key: service, value: shop, load_shedding: {text}}}\n"))
}

#[test]
fn a_rule_sheds_by_its_own_numbers_or_the_defaults() {
    let of = |text: &str| {
        let rule = rule(&clean(&shedding(text)), &[("service", "shop")]).expect("matches");
        let shedding = rule.shedding.as_ref().expect("sheds");
        (shedding.policy, shedding.priority_key.to_string())
    };
    let (policy, key) = of("{target: 80%}");
    let default = SheddingPolicy {
        target: 0.8,
        half_life: Duration::from_secs(3),
        floor: 0.01,
        stale_after: Duration::from_secs(10),
    };
    assert_eq!((policy, &*key), (default, "priority"));
    let (policy, key) = of("{target: 0.7, half_life: 5s, floor: 2.5%, stale_after: 1m, priority_key: tier}");
    let (half_life, stale_after) = (Duration::from_secs(5), Duration::from_secs(60));
    assert_eq!(
        (policy, &*key),
        (SheddingPolicy { target: 0.7, half_life, floor: 0.025, stale_after }, "tier")
    );
}

#[test]
fn priorities_and_reports_find_the_rule_above_them() {
    let loaded = clean(&shedding("{target: 80%}"));
    let root = &loaded.rules.domain("d").expect("stated").root;
    let found = |last: (&str, &str)| {
        let entries = [("service", "shop"), last].map(|(key, value)| Entry { key, value });
        root.rule_of_signal(&entries).map(|(rule, entry)| (rule.path(), entry.value.to_owned()))
    };
    assert_eq!(found(("priority", "low")), Some(("service_shop".to_owned(), "low".to_owned())));
    assert_eq!(found(("utilization", "0.5")), Some(("service_shop".to_owned(), "0.5".to_owned())));
    assert_eq!(found(("other", "low")), None);
    assert!(root.rule_of_signal(&[Entry { key: "utilization", value: "0.5" }]).is_none());
}

#[test]
fn wrong_numbers_are_errors_that_state_what_is_expected() {
    for (text, expected) in [
        ("{}", "has no `target`"),
        ("{target: 1}", "is out of range; expected 5% to 95%"),
        ("{target: 110%}", "expected a part such as 0.8 or 80%"),
        ("{target: high}", "expected a part such as 0.8 or 80%, found the text \"high\""),
        ("{target: 80%, floor: 0}", "is out of range; expected 0.1% to 100%"),
        ("{target: 80%, half_life: 100ms}", "`100ms` is out of range; expected 1s to 60s"),
        ("{target: 80%, half_life: soon}", "`soon` is not a duration"),
        ("{target: 80%, stale_after: 1h}", "`1h` is out of range; expected 2s to 600s"),
        ("{target: 80%, priority_key: utilization}", "is not a key for priorities"),
        ("{target: 80%, halflife: 3s}", "unknown key; did you mean `half_life`?"),
        ("80%", "expected a mapping"),
    ] {
        assert_says(&errors(&shedding(text)), &[expected]);
    }
    assert_says(
        &errors(&domain("  - {key: service, load_shedding: {target: 80%}}\n")),
        &["a.yaml:3:", "the key `service` has no value, and all of its values would share one utilization"],
    );
    let both = "  - {key: k, value: v, rate_limit: {unlimited: true}, load_shedding: {target: 80%}}\n";
    assert_says(&errors(&domain(both)), &["contradicts `rate_limit`; expected a descriptor of its own"]);
    let misplaced = "  - {key: k, value: v, rate_limit: {unlimited: true, target: 80%}}\n";
    assert_says(
        &errors(&domain(misplaced)),
        &["does not belong to `rate_limit`; it belongs to `load_shedding`"],
    );
}

#[test]
fn there_are_at_most_200_such_rules() {
    let rules = |count: usize| {
        let rule = |at| format!("  - {{key: service, value: '{at}', load_shedding: {{target: 80%}}}}\n");
        domain(&(0..count).map(rule).collect::<String>())
    };
    clean(&rules(200));
    assert_says(&errors(&rules(201)), &["is one of too many; expected at most 200 in all domains"]);
}

#[test]
fn keys_without_effect_and_limits_that_hide_a_report_are_warnings() {
    let beside = "  - {key: k, value: v, quota_mode: true, metadata: {a: 1}, load_shedding: {target: 80%}}\n";
    assert_says(
        &warnings(&domain(beside)),
        &[
            "descriptors[0].quota_mode: has no effect beside `load_shedding`",
            "descriptors[0].metadata: has no effect beside `load_shedding`",
        ],
    );
    let below = "  - key: k\n    value: v\n    load_shedding: {target: 80%}\n    descriptors:\n    \
                 - {key: priority, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    assert_says(&warnings(&domain(below)), &["matches descriptors that the `load_shedding` above needs"]);
}

#[test]
fn a_changed_rule_keeps_the_state_of_its_path() {
    let gate = |loaded: &Loaded| {
        let rule = rule(loaded, &[("service", "shop")]).expect("matches");
        Arc::clone(rule.shedding.as_ref().expect("sheds").gate())
    };
    let (former, changed) = (clean(&shedding("{target: 80%}")), clean(&shedding("{target: 60%}")));
    let apart = clean(&shedding("{target: 60%}"));
    changed.rules.succeed(&former.rules, tollgate_core::clock::Timestamp::from_micros(1));
    assert!(Arc::ptr_eq(&gate(&former), &gate(&changed)));
    assert!(!Arc::ptr_eq(&gate(&former), &gate(&apart)));
}
