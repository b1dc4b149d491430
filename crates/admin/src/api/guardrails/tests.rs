use tollgate_fixtures::rules;
use tollgate_limiter::talkers::OwnedEntry;
use tollgate_rules::ValueMatch;

use super::*;

fn limit(key: &str, limit: u32, more: &str) -> String {
    format!("- {{key: {key}, rate_limit: {{unit: minute, requests_per_unit: {limit}}}{more}}}\n")
}

fn domain(name: &str, limits: &[String]) -> String {
    format!("domain: {name}\ndescriptors:\n{}", limits.concat())
}

fn codes(current: Option<&str>, next: &str, traffic: &Traffic) -> Vec<(ViolationCode, String)> {
    let current = current.map(rules);
    let found = violations(current.as_ref(), &rules(next), traffic);
    found.into_iter().map(|violation| (violation.code, violation.domain)).collect()
}

fn traffic(keys: &[(&str, u64)]) -> Traffic {
    let talker = |(text, hits): &(&str, u64)| Talker {
        key: (*text).to_owned(),
        descriptor: text
            .split_once('=')
            .map(|(key, value)| vec![OwnedEntry { key: key.to_owned(), value: value.to_owned() }]),
        hits: *hits,
        error: 0,
    };
    let heaviest = keys.iter().map(talker).collect();
    Traffic {
        talkers: vec![DomainTop { domain: "d".into(), heaviest, denied: Vec::new() }],
        domains: Vec::new(),
    }
}

#[test]
fn a_domain_whose_limits_are_all_zero_denies_all() {
    let good = domain("d", &[limit("a", 5, "")]);
    let zero = domain("d", &[limit("a", 0, ""), limit("b", 0, "")]);
    let quiet = Traffic::default();
    let all = [(ViolationCode::DeniesAll, "d".to_owned())];
    assert_eq!(codes(Some(&good), &zero, &quiet), all);
    assert_eq!(codes(None, &zero, &quiet), all);
    assert_eq!(codes(Some(&zero), &zero, &quiet), [], "already so before");
    for passing in [
        domain("d", &[limit("a", 0, ""), limit("b", 1, "")]),
        domain("d", &[limit("a", 0, ", shadow_mode: true")]),
        domain("d", &[limit("a", 0, ""), "- {key: b, rate_limit: {unlimited: true}}\n".to_owned()]),
    ] {
        assert_eq!(codes(Some(&good), &passing, &quiet), [], "{passing}");
    }
    let burst = "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: minute, requests_per_unit: 0, algorithm: token_bucket}\n";
    assert_eq!(codes(Some(&good), burst, &quiet), all);
}

#[test]
fn top_traffic_that_would_meet_zeros_is_reported() {
    let good = domain(
        "d",
        &[
            limit("all", 9, ""),
            limit("user", 5, ""),
            "- {key: user, value: bad, rate_limit: {unit: day, requests_per_unit: 0}}\n".to_owned(),
        ],
    );
    let zero = good.replace("requests_per_unit: 9", "requests_per_unit: 0");
    let both = traffic(&[("all=1", 30), ("user=ann", 20), ("user=bob", 10)]);
    assert_eq!(codes(Some(&good), &zero, &both), [(ViolationCode::DeniesAll, "d".to_owned())]);
    assert_eq!(codes(Some(&zero), &zero, &both), []);
    assert_eq!(codes(Some(&good), &good, &traffic(&[("user=bad", 90), ("user=ann", 1)])), []);
    let few = traffic(&[("all=1", 1), ("user=ann", 20)]);
    assert_eq!(codes(Some(&good), &zero, &few), [], "most of it passes");
    for unknown in ["truncated", "other=1"] {
        assert_eq!(codes(Some(&good), &zero, &traffic(&[(unknown, 9)])), [], "{unknown}");
    }
}

#[test]
fn removing_a_domain_with_traffic_is_reported() {
    let both = format!("{}---\n{}", domain("d", &[limit("a", 5, "")]), domain("e", &[limit("a", 5, "")]));
    let one = domain("d", &[limit("a", 5, "")]);
    let busy = |name: &str| Traffic { domains: vec![name.to_owned()], talkers: Vec::new() };
    assert_eq!(codes(Some(&both), &one, &busy("e")), [(ViolationCode::DropsDomain, "e".to_owned())]);
    assert_eq!(codes(Some(&both), &one, &busy("d")), []);
    assert_eq!(codes(Some(&both), &one, &busy("never-had-rules")), []);
    assert_eq!(codes(None, &one, &busy("e")), []);
}

#[test]
fn removing_all_rules_is_reported_without_traffic() {
    let two = format!("{}---{}", domain("a", &[limit("k", 5, "")]), domain("b", &[limit("k", 5, "")]));
    let quiet = Traffic::default();
    let all = ["a", "b"].map(|domain| (ViolationCode::DropsDomain, domain.to_owned()));
    for empty in ["domain: a\ndescriptors: []", "domain: c\ndescriptors: []"] {
        assert_eq!(codes(Some(&two), empty, &quiet), all, "{empty}");
        assert_eq!(codes(Some(empty), empty, &quiet), [], "already so before");
        assert_eq!(codes(None, empty, &quiet), []);
    }
    assert_eq!(codes(Some(&two), &domain("a", &[limit("k", 5, "")]), &quiet), []);
}

fn codes_of_entry(
    list: List,
    domain: &str,
    value: &str,
    value_match: ValueMatch,
) -> Vec<(ViolationCode, String)> {
    let listing = Listing::new("1", list, domain, [("k", value, value_match)], None).expect("valid");
    violations_of_entries(vec![listing]).map(|found| (found.code, found.domain)).collect()
}

#[test]
fn denying_all_values_of_a_key_is_reported_without_traffic() {
    let denied = |domain: &str| [(ViolationCode::DeniesAll, domain.to_owned())];
    assert_eq!(codes_of_entry(List::Deny, "quiet", "*", ValueMatch::Pattern), denied("quiet"));
    assert_eq!(codes_of_entry(List::Deny, "*", "**", ValueMatch::Pattern), denied("*"));
    assert_eq!(codes_of_entry(List::Deny, "quiet", "0.0.0.0/0", ValueMatch::Pattern), denied("quiet"));
    for value in ["*", "0.0.0.0/0", "a*", ""] {
        assert_eq!(codes_of_entry(List::Deny, "quiet", value, ValueMatch::Exact), [], "{value}");
    }
    assert_eq!(codes_of_entry(List::Deny, "quiet", "a*", ValueMatch::Pattern), []);
    assert_eq!(codes_of_entry(List::Allow, "quiet", "*", ValueMatch::Pattern), []);
}

#[test]
fn shares_are_percentages() {
    assert_eq!([0, 50, 51, 1_000].map(percent), ["0", "5", "5.1", "100"]);
}
