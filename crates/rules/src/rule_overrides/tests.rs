//! Overrides decide for exactly the rules and keys that they state, until their end.

use proptest::{prelude::*, sample::select};
use tollgate_core::descriptor::Entry;

use super::*;
use crate::{Limit, Rules, config::tests::rules_of};

const NOW: u64 = 1_000;

fn rules() -> Rules {
    let limit = "rate_limit: {unit: minute, requests_per_unit: 1}";
    let file = format!(
        "domain: d\ndescriptors:\n- {{key: api_key, {limit}}}\n- {{key: plan, value: pro, {limit}}}\n\
         - key: tenant\n  descriptors:\n  - {{key: user, {limit}}}\n"
    );
    rules_of(&file)
}

fn stated(rule: &str, key: &[(&str, &str)], limit: u32, ends_at_ms: Option<u64>) -> Arc<RuleOverride> {
    let key = OverrideKey::new(key.iter().copied()).expect("valid");
    let rate_limit = format!("{{\"requests_per_unit\": {limit}}}").into();
    let (domain, rule) = ("d".into(), rule.into());
    Arc::new(RuleOverride { id: OverrideId(limit.into()), domain, rule, key, rate_limit, ends_at_ms })
}

/// The limit that decides a request.
fn limit(rules: &Rules, overridden: &Overridden, pairs: &[(&str, &str)], now_ms: u64) -> u32 {
    let entries: Vec<_> = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
    let rule = rules.domain("d").expect("stated").root.rule(&entries).expect("matches");
    let decider = overridden.rule_of(rule, &entries, || now_ms);
    assert_eq!(decider.index(), rule.index());
    let Limit::Quota { quota, .. } = decider.limit else { panic!("unlimited") };
    u32::try_from(quota.limit).expect("small")
}

#[test]
fn an_override_of_a_key_precedes_one_of_its_rule() {
    let rules = rules();
    let all = [
        stated("api_key", &[], 10, None),
        stated("api_key", &[("api_key", "abc")], 20, None),
        stated("tenant.user", &[("tenant", "t"), ("user", "u")], 30, None),
    ];
    let all = RuleOverrides { revision: 1, all: all.into() };
    let overridden = Overridden::new(&rules, &all, NOW);
    let limit = |pairs: &[(&str, &str)]| limit(&rules, &overridden, pairs, NOW);
    assert_eq!(limit(&[("api_key", "abc")]), 20);
    assert_eq!(limit(&[("api_key", "abcd")]), 10);
    assert_eq!(limit(&[("plan", "pro")]), 1);
    assert_eq!(limit(&[("tenant", "t"), ("user", "u")]), 30);
    assert_eq!(limit(&[("tenant", "u"), ("user", "t")]), 1);
    assert_eq!(overridden.counts, OverriddenCounts { rules: 1, keys: 2, unmatched: 0 });
}

#[test]
fn overrides_end_at_their_end_without_another_activation() {
    let rules = rules();
    let all = [
        stated("api_key", &[], 10, Some(NOW + 5)),
        stated("api_key", &[("api_key", "abc")], 20, Some(NOW + 3)),
        stated("plan_pro", &[], 30, Some(NOW)),
    ];
    let all = RuleOverrides { revision: 1, all: all.into() };
    let overridden = Overridden::new(&rules, &all, NOW);
    let at = |now| limit(&rules, &overridden, &[("api_key", "abc")], now);
    assert_eq!([NOW, NOW + 2, NOW + 3, NOW + 4, NOW + 5].map(at), [20, 20, 10, 10, 1]);
    assert_eq!(limit(&rules, &overridden, &[("plan", "pro")], NOW), 1, "it had ended before");
    assert_eq!(overridden.counts, OverriddenCounts { rules: 1, keys: 1, unmatched: 0 });
}

#[test]
fn overrides_without_effect_are_reported_with_the_reason() {
    let rules = rules();
    let of_other_domain = RuleOverride { domain: "e".into(), ..(*stated("api_key", &[], 5, None)).clone() };
    let all = [
        stated("absent", &[], 1, None),
        stated("plan_pro", &[("plan", "pro")], 2, None),
        stated("tenant.user", &[("user", "u")], 3, None),
        stated("tenant", &[("tenant", "t")], 4, None),
        Arc::new(of_other_domain),
        Arc::new(RuleOverride {
            rate_limit: r#"{"burst": 1}"#.into(),
            ..(*stated("api_key", &[], 6, None)).clone()
        }),
    ];
    let all = RuleOverrides { revision: 1, all: all.into() };
    let overridden = Overridden::new(&rules, &all, NOW);
    assert_eq!(overridden.counts, OverriddenCounts { rules: 0, keys: 0, unmatched: 6 });
    let reasons: Vec<_> = overridden.unmatched.iter().map(|found| &*found.reason).collect();
    let absent = "no active rule";
    let parts = [absent, "expected no key", "expected tenant, user", absent, absent, "burst"];
    assert!(reasons.iter().zip(parts).all(|(reason, part)| reason.contains(part)), "{reasons:?}");
    assert_eq!(limit(&rules, &overridden, &[("api_key", "abc")], NOW), 1);
}

proptest! {
    #[test]
    fn keys_are_injective_and_keep_their_pairs(
        one in prop::collection::vec(("[a=,]{1,3}", "[a=,]{0,3}"), 0..4),
        other in prop::collection::vec(("[a=,]{1,3}", "[a=,]{0,3}"), 0..4),
    ) {
        let key = |pairs: &[(String, String)]| {
            OverrideKey::new(pairs.iter().map(|(key, value)| (&**key, &**value))).expect("valid")
        };
        prop_assert_eq!(key(&one) == key(&other), one == other);
        let pairs: Vec<_> = key(&one).pairs().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        prop_assert_eq!(pairs, one);
    }

    #[test]
    fn a_table_of_keys_finds_what_was_stated_last(
        stated_keys in prop::collection::btree_map(select(vec!["a", "b", "c", "", "\u{fe}"]), 2_u32..90, 0..5),
        whole in prop::option::of(100_u32..200),
        api_key in select(vec!["a", "b", "c", "", "\u{fe}", "d"]),
    ) {
        let rules = rules();
        let all = stated_keys.iter().map(|(value, limit)| stated("api_key", &[("api_key", value)], *limit, None));
        let all = all.chain(whole.map(|limit| stated("api_key", &[], limit, None)));
        let all = RuleOverrides { revision: 1, all: all.collect() };
        let overridden = Overridden::new(&rules, &all, NOW);
        let expected = stated_keys.get(api_key).copied().or(whole).unwrap_or(1);
        prop_assert_eq!(limit(&rules, &overridden, &[("api_key", api_key)], NOW), expected);
    }
}

#[test]
fn a_key_that_no_request_of_the_rule_has_is_without_effect() {
    let limit = "rate_limit: {unit: minute, requests_per_unit: 1}";
    let file = format!(
        "domain: d\ndescriptors:\n- {{key: plan, {limit}}}\n- {{key: plan, value: pro, {limit}}}\n\
         - {{key: path, value: '/api/*', {limit}}}\n- {{key: path, value: '/static/*', share_threshold: true, {limit}}}\n\
         - {{key: ip, cidr: 10.0.0.0/8, {limit}}}\n- {{key: id, regex: '^[0-9]+$', {limit}}}\n\
         - {{key: 'user_*', {limit}}}\n- key: region\n  value: 'eu-*'\n  share_threshold: true\n  descriptors:\n\
         \x20 - {{key: user, {limit}}}\n- key: net\n  cidr: 10.0.0.0/8\n  share_threshold: true\n  descriptors:\n\
         \x20 - {{key: user, regex: '^a', {limit}}}\n- key: name\n  regex: '^n'\n  share_threshold: true\n  descriptors:\n\
         \x20 - {{key: user, {limit}}}\n- key: 'group_*'\n  share_threshold: true\n  descriptors:\n  - {{key: user, {limit}}}\n"
    );
    let rules = rules_of(&file);
    let paths: Vec<String> = rules.rules().map(|rule| rule.path()).collect();
    for (rule, key, expected) in [
        ("plan", &[("plan", "free")][..], None),
        ("plan", &[("plan", "pro")], Some("`plan=pro`")),
        ("plan_pro", &[("plan", "pro")], Some("expected no key")),
        ("plan", &[("plan", "free"), ("plan", "free")], Some("expected plan")),
        ("path_/api/*", &[("path", "/api/v1")], None),
        ("path_/api/*", &[("path", "/app")], Some("`path=/app`")),
        ("path_/static/*", &[("path", "/static/a")], Some("expected no key")),
        ("ip_10.0.0.0/8", &[("ip", "10.1.2.3")], None),
        ("ip_10.0.0.0/8", &[("ip", "11.1.2.3")], Some("`ip=11.1.2.3`")),
        ("id_~^[0-9]+$", &[("id", "17")], None),
        ("id_~^[0-9]+$", &[("id", "17 ")], Some("`id=17 `")),
        ("user_*", &[("user_1", "a")], None),
        ("user_*", &[("other", "a")], Some("`other=a`")),
        ("region_eu-*.user", &[("user", "a")], None),
        ("region_eu-*.user", &[("region", "eu-1"), ("user", "a")], Some("expected user")),
        ("net_10.0.0.0/8.user_~^a", &[("user", "ab")], None),
        ("net_10.0.0.0/8.user_~^a", &[("user", "b")], Some("`user=b`")),
        ("name_~^n.user", &[("user", "b")], None),
        ("group_*.user", &[("group_1", ""), ("user", "b")], None),
        ("group_*.user", &[("group_1", "x"), ("user", "b")], Some("count as `group_1=,user=b`")),
        ("group_*.user", &[("other", ""), ("user", "b")], Some("`other=,user=b`")),
        ("group_*.user", &[("user", "b")], Some("expected group_*, user")),
    ] {
        assert!(paths.iter().any(|path| path == rule), "{rule} of {paths:?}");
        let all = RuleOverrides { revision: 1, all: [stated(rule, key, 10, None)].into() };
        let overridden = Overridden::new(&rules, &all, NOW);
        let reason = overridden.unmatched.first().map(|unmatched| &*unmatched.reason);
        match expected {
            None => assert_eq!(reason, None, "{rule} {key:?}"),
            Some(expected) => {
                assert!(reason.is_some_and(|reason| reason.contains(expected)), "{rule} {key:?}: {reason:?}");
            }
        }
    }
}
