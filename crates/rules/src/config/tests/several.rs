//! Several limits of one descriptor: `rate_limits`.

use tollgate_core::{SyncMode, descriptor::Entry};

use super::{assert_says, clean, domain, errors};
use crate::{Limit, Rule, Rules};

/// The descriptor `k` with these limits, each in a line from 5 on, and these keys besides.
fn with(descriptor: &str, limits: &[&str]) -> String {
    let limits: String = limits.iter().map(|limit| format!("      - {{{limit}}}\n")).collect();
    domain(&format!("  - key: k\n    rate_limits:\n{limits}    {descriptor}\n"))
}

const SECOND: &str = "unit: second, requests_per_unit: 5";
const HOUR: &str = "unit: hour, requests_per_unit: 100";

fn rules(yaml: &str) -> Rules {
    clean(yaml).rules
}

/// The limits of the descriptor `k`, in the order of the file.
fn limits(rules: &Rules) -> Vec<&Rule> {
    let (domain, entries) = (rules.domain("d").expect("is there"), [Entry { key: "k", value: "x" }]);
    domain.root.limits(&entries).map(|rule| &**rule).collect()
}

#[test]
fn each_limit_is_a_rule_with_a_path_and_a_counter_of_its_own() {
    let plan = "name: plan.v1, unit: month, requests_per_unit: 9000";
    let rules = rules(&with("", &[SECOND, HOUR, plan, "window: 90s, requests_per_unit: 7"]));
    let limits = limits(&rules);
    let paths: Vec<_> = limits.iter().map(|rule| rule.path()).collect();
    assert_eq!(paths, ["k.@second", "k.@hour", r"k.@plan\.v1", "k.@90s"]);
    assert_eq!(rules.rule_count(), 4);
    let mut records: Vec<_> = limits.iter().map(|rule| rule.record_id()).collect();
    records.sort_unstable();
    records.dedup();
    assert_eq!(records.len(), 4);
    assert!(limits.iter().all(|rule| rule.cell_id() == limits[0].cell_id()), "they share a cell");
    assert_eq!(limits.iter().map(|rule| rule.origin.1).collect::<Vec<_>>(), [5, 6, 7, 8]);
}

#[test]
fn a_counter_depends_on_the_label_and_not_on_the_order() {
    let record = |limits_of: &[&str], at: usize| limits(&rules(&with("", limits_of)))[at].record_id();
    let named = "name: hour, window: 2h, requests_per_unit: 1";
    assert_eq!(record(&[SECOND, HOUR], 1), record(&[HOUR, SECOND], 0));
    assert_eq!(record(&[SECOND, HOUR], 1), record(&[SECOND, named], 1), "a name that equals the window's");
    let one = clean(&domain(&format!("  - {{key: k, rate_limit: {{{HOUR}}}}}\n")));
    let one = super::rule(&one, &[("k", "x")]).expect("matches").record_id();
    assert_ne!(record(&[HOUR], 0), one);
}

#[test]
fn two_limits_with_one_counter_are_an_error_with_the_line_of_both() {
    let named = "name: hour, unit: day, requests_per_unit: 9";
    for other in [HOUR, "window: 60m, requests_per_unit: 1", named] {
        let errors = errors(&with("", &[SECOND, HOUR, other]));
        assert_says(&errors, &["a.yaml:7: descriptors[0].rate_limits[2]", "the limit in line 6", "`hour`"]);
    }
    clean(&with("", &[HOUR, "name: burst, unit: hour, requests_per_unit: 50, algorithm: token_bucket"]));
}

#[test]
fn keys_that_several_limits_cannot_have_are_errors() {
    for (descriptor, limit, says) in [
        ("", "unit: day, sync: leased", "rate_limits[1].sync: cannot be leased: several"),
        ("", "unit: day, sync: auto", "expected `sync: strict`"),
        ("", "unit: day, inherit: true", "rate_limits[1].inherit: is not a key of `rate_limits`"),
        (
            "",
            "unit: day, candidate: {unit: day, requests_per_unit: 2}",
            "rate_limits[1].candidate: is not a key of `rate_limits`",
        ),
        ("", "algorithm: concurrency", "`concurrency` cannot be one of several limits"),
        ("", "unit: day, scope: primary", "scope: cannot be `primary` for one of several limits"),
        ("", "unit: fortnight", "is not a unit"),
        ("quota_mode: true", "unit: day", "contradicts `quota_mode: true`"),
        ("rate_limit: {unit: day, requests_per_unit: 1}", "unit: day", "contradicts `rate_limit`"),
        ("load_shedding: {target: 0.8}", "unit: day", "contradicts `rate_limits`"),
    ] {
        let limit = format!("requests_per_unit: 1, {limit}");
        assert_says(&errors(&with(descriptor, &[SECOND, &limit])), &[says]);
    }
    let unlimited = errors(&with("", &[SECOND, "unlimited: true"]));
    assert_says(&unlimited, &["rate_limits[1].unlimited: has no effect beside other limits"]);
    let many: String =
        (1..10).map(|window| format!("{{window: {window}s, requests_per_unit: 1}}, ")).collect();
    for (limits, says) in [
        ("[]", "is empty"),
        ("{unit: day}", "expected a list"),
        ("[null]", "expected a mapping"),
        (&*format!("[{many}]"), "has 9 limits; expected at most 8"),
    ] {
        assert_says(&errors(&domain(&format!("  - {{key: k, rate_limits: {limits}}}\n"))), &[says]);
    }
}

#[test]
fn a_default_that_several_limits_cannot_have_is_not_theirs() {
    let yaml = format!(
        "domain: d\ndefaults: {{sync: leased}}\ndescriptors:\n- key: k\n  rate_limits: [{{{SECOND}}}, {{{HOUR}}}]\n"
    );
    let rules = rules(&yaml);
    let domain = rules.domain("d").expect("is there");
    assert!(limits(&rules).iter().all(|rule| domain.sync_of(rule) == SyncMode::Strict));
}

#[test]
fn a_limit_below_several_cannot_inherit() {
    let below = "descriptors: [{key: l, rate_limit: {inherit: true, requests_per_unit: 3}}]";
    let errors = errors(&with(below, &[SECOND, HOUR]));
    assert_says(&errors, &["rate_limit.inherit: has several limits above it"]);
}

#[test]
fn an_override_concerns_the_limit_of_its_path_alone() {
    let rules = rules(&with("", &[SECOND, HOUR]));
    let hour = limits(&rules)[1];
    let overridden = super::super::override_rule("d", hour, "requests_per_unit: 7").expect("valid");
    assert_eq!((overridden.path(), overridden.record_id()), (hour.path(), hour.record_id()));
    assert!(matches!(overridden.limit, Limit::Quota { quota, .. } if quota.limit == 7));
}
