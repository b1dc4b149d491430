//! Lists match exactly the descriptors that their entries state.

use proptest::{prelude::*, sample::select};

use super::*;
use crate::{Domain, Level, Matcher, Node, Rule, Rules, Segment, Value, config::tests::rules_of};

/// Definition of an entry: its domain, its pairs, and its end.
type Stated = (&'static str, Vec<(&'static str, &'static str)>, Option<u64>);

const NOW: u64 = 10;

fn listing(id: usize, list: List, (domain, pairs, end): &Stated) -> Listing {
    let pairs = pairs.iter().map(|(key, value)| (*key, *value, ValueMatch::Pattern));
    Listing::new(&id.to_string(), list, domain, pairs, *end).expect("valid")
}

fn lists(list: List, stated: &[Stated]) -> Lists {
    let listings = stated.iter().enumerate().map(|(id, stated)| listing(id, list, stated));
    Lists::new(1, listings, [])
}

fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
    pairs.iter().map(|(key, value)| Entry { key, value }).collect()
}

/// Whether a value meets a condition by definition, for the conditions in these tests.
fn meets(pattern: &str, value: &str) -> bool {
    match pattern {
        "10.0.0.0/8" => value.starts_with("10.") || value.starts_with("::ffff:10."),
        "10.1.0.0/16" => value.starts_with("10.1.") || value.starts_with("::ffff:10.1."),
        "a*" => value.starts_with('a'),
        "*" => true,
        text => text == value,
    }
}

fn naive(stated: &[Stated], domain: &str, pairs_of_request: &[(&str, &str)]) -> Vec<usize> {
    let has =
        |(key, pattern): &(&str, &str)| pairs_of_request.iter().any(|(k, v)| k == key && meets(pattern, v));
    let matches = |(d, pairs, end): &Stated| {
        (*d == "*" || *d == domain) && pairs.iter().all(has) && end.is_none_or(|end| NOW < end)
    };
    (0..stated.len()).filter(|at| matches(&stated[*at])).collect()
}

fn stated() -> impl Strategy<Value = Stated> {
    let pattern = select(vec!["a", "ab", "", "a*", "*", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3"]);
    let pair = (select(vec!["x", "y", "z"]), pattern);
    let end = select(vec![None, None, Some(5), Some(10), Some(11), Some(20)]);
    (select(vec!["d", "e", "*"]), prop::collection::vec(pair, 1..4), end)
}

proptest! {
    #[test]
    fn the_index_finds_the_same_entries_as_a_scan(
        stated in prop::collection::vec(stated(), 0..24),
        pairs_of_request in prop::collection::vec(
            (
                select(vec!["x", "y", "z", "w"]),
                select(vec!["a", "ab", "b", "", "10.1.2.3", "10.2.2.3", "::ffff:10.1.2.3", "11.1.2.3"]),
            ),
            0..5,
        ),
        domain in select(vec!["d", "e", "f"]),
    ) {
        let expected = naive(&stated, domain, &pairs_of_request);
        let entries = entries(&pairs_of_request);
        let denied = lists(List::Deny, &stated);
        let found = denied.denying(domain, &entries, NOW);
        let longest = expected.iter().map(|at| stated[*at].2.unwrap_or(u64::MAX)).max();
        prop_assert_eq!(found.map(|entry| entry.expires_at_ms.unwrap_or(u64::MAX)), longest);
        prop_assert!(found.is_none_or(|entry| expected.contains(&entry.id.parse().expect("a number"))));
        prop_assert!(denied.allowing(domain, &entries, NOW).is_none());
        let allowed = lists(List::Allow, &stated);
        let found = allowed.allowing(domain, &entries, NOW);
        prop_assert_eq!(found.is_some(), !expected.is_empty());
        prop_assert!(found.is_none_or(|entry| expected.contains(&entry.id.parse().expect("a number"))));
        prop_assert_eq!(denied.has_lists(), !stated.is_empty());
    }
}

#[test]
fn entries_that_share_a_common_pair_are_found_by_the_rarer_one() {
    let stated: Vec<Stated> = vec![
        ("d", vec![("tenant", "t"), ("key", "one")], None),
        ("d", vec![("tenant", "t"), ("key", "two")], None),
        ("d", vec![("key", "a*"), ("tenant", "u"), ("ip", "10.0.0.0/8")], None),
    ];
    let lists = lists(List::Deny, &stated);
    let found =
        |pairs: &[(&str, &str)]| lists.denying("d", &entries(pairs), NOW).map(|entry| entry.id.to_string());
    assert_eq!(found(&[("tenant", "t"), ("key", "two")]).as_deref(), Some("1"));
    assert_eq!(found(&[("tenant", "t"), ("key", "three")]), None);
    assert_eq!(
        found(&[("ip", "10.0.0.1"), ("key", "ab"), ("tenant", "u"), ("more", "")]).as_deref(),
        Some("2")
    );
    assert_eq!(found(&[("ip", "10.0.0.1"), ("key", "ab")]), None);
}

/// Rules of one domain, one for each key.
fn rules(domain: &str, keys: &[&str]) -> Rules {
    let mut root = Level::default();
    for key in keys {
        let segment =
            Segment { key: (*key).into(), stated: (*key).into(), value: Value::Open, value_to_metric: false };
        let rule = Rule { segments: [segment].into(), ..Rule::default() };
        let node = Node { rule: Some(rule.into()), ..Node::default() };
        root.insert(Matcher::Stated { key, value: "" }, node);
    }
    Rules::new([Domain { name: domain.into(), root, ..Domain::default() }])
}

#[test]
fn a_switch_applies_to_its_rule_in_its_domain_also_if_the_rule_is_added_later() {
    let switch = |domain: &str, rule: &str, mode| (domain.into(), rule.into(), mode);
    let switches = [
        switch("d", "a", SwitchMode::Off),
        switch("d", "later", SwitchMode::Shadow),
        switch("e", "b", SwitchMode::Off),
    ];
    let lists = Lists::new(1, [], switches);
    let mode = |rules: &Rules, key| {
        let rule = rules.domain("d").and_then(|domain| domain.root.rule(&[Entry { key, value: "x" }]));
        Switched::new(rules, &lists).mode_of(rule.expect("a rule"))
    };
    let before = rules("d", &["a", "b"]);
    assert_eq!((mode(&before, "a"), mode(&before, "b")), (Some(SwitchMode::Off), None));
    assert_eq!(mode(&rules("d", &["later"]), "later"), Some(SwitchMode::Shadow));
    assert!(!lists.has_lists());
}

#[test]
fn a_switch_of_a_key_with_a_dot_does_not_switch_the_rule_below_another_one() {
    let rules = rules_of(
        "domain: d\ndescriptors:\n\
         - {key: a.b, rate_limit: {unit: day, requests_per_unit: 9}}\n\
         - {key: a, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 9}}]}\n",
    );
    let root = &rules.domain("d").expect("stated").root;
    let dotted = root.rule(&[Entry { key: "a.b", value: "x" }]).expect("a rule");
    let below = root.rule(&entries(&[("a", "x"), ("b", "x")])).expect("a rule");
    assert_eq!((&*dotted.path(), &*below.path()), (r"a\.b", "a.b"));
    for (switched, is_dotted) in [(dotted, true), (below, false)] {
        let switch = ("d".into(), switched.path().into(), SwitchMode::Off);
        let switched = Switched::new(&rules, &Lists::new(1, [], [switch]));
        assert_eq!(switched.mode_of(dotted).is_some(), is_dotted);
        assert_eq!(switched.mode_of(below).is_some(), !is_dotted);
    }
}
