//! Cells of descriptors, and the calls that they share.

use tollgate_store::request::TagRequest;

use super::*;
use crate::test_prelude::*;

/// Requests for descriptors, all with the limit override if there is one.
fn requested(rules: &str, descriptors: &[&[(&str, &str)]], limit: Option<Quota>) -> Requests {
    let descriptors: Vec<_> = descriptors.iter().map(|entries| (*entries, Hits::ONE)).collect();
    requested_hits(rules, &descriptors, limit)
}

fn requested_hits(rules: &str, descriptors: &[(&[(&str, &str)], Hits)], limit: Option<Quota>) -> Requests {
    let rules = rules_of(rules, Options::default());
    let domain = rules.domain("d").expect("is there");
    let of = |(entries, hits): &(&[(_, _)], Hits)| Descriptor { limit, ..descriptor(entries, *hits) };
    let descriptors: Vec<_> = descriptors.iter().map(of).collect();
    let (switched, overridden) = (Switched::default(), Overridden::default());
    let changes = Changes { switched: &switched, overridden: &overridden, clock: &Clock::System };
    let mut plan = matching::plan(domain, changes, &descriptors);
    let (modes, shares) = (Modes::default(), OwnShares::default());
    add(&mut plan, &ChargeTerms { modes, shares: &shares, clock: &Clock::System, lease: None });
    plan.calls
}

/// The cells of descriptors, by call.
fn cells(rules: &str, descriptors: &[&[(&str, &str)]]) -> Vec<Vec<String>> {
    let names = |call: &TagRequest| call.cells.iter().map(|cell| cell.key.to_string()).collect();
    requested(rules, descriptors, None).iter().map(names).collect()
}

/// The vetoes of the checks, by call.
fn vetoes(rules: &str, descriptors: &[&[(&str, &str)]]) -> Vec<Vec<Veto>> {
    let of = |call: &TagRequest| call.checks().map(|check| check.veto).collect();
    requested(rules, descriptors, None).iter().map(of).collect()
}

#[test]
fn quotas_deny_a_call_together_if_all_of_the_request_are_in_it_and_may_be_exhausted() {
    let rules = format!(
        "domain: d\natomic: true\ndescriptors:\n- {{key: a, {LIMIT}}}\n- key: b\n  {LIMIT}\n  descriptors:\n  \
         - {{key: quota, value: x, quota_mode: true, {LIMIT}}}\n  \
         - {{key: quota, value: y, quota_mode: true, {LIMIT}}}\n  \
         - {{key: quota, value: shadow, quota_mode: true, shadow_mode: true, {LIMIT}}}\n  \
         - {{key: other, quota_mode: true, {LIMIT}}}\n"
    );
    let (b, x) = (&[("b", "1")][..], &[("b", "1"), ("quota", "x")][..]);
    let (y, shadow) = (&[("b", "1"), ("quota", "y")][..], &[("b", "1"), ("quota", "shadow")][..]);
    let other = &[("b", "1"), ("other", "2")][..];
    assert_eq!(
        vetoes(&rules, &[&[("a", "1")], b, x, y]),
        [vec![Veto::Alone], vec![Veto::Alone, Veto::WithQuotas, Veto::WithQuotas]]
    );
    assert_eq!(
        vetoes(&rules, &[b, x, other]),
        [vec![Veto::Alone, Veto::AcrossTags], vec![Veto::AcrossTags]],
        "the other one has room, as far as the first call knows"
    );
    assert_eq!(vetoes(&rules, &[b, x, shadow]), [[Veto::Alone, Veto::Never, Veto::Never]], "never exhausted");
}

const LIMIT: &str = "rate_limit: {unit: hour, requests_per_unit: 1}";

#[test]
fn counters_whose_open_values_are_the_same_share_a_cell() {
    let rules = format!(
        "domain: d\ndescriptors:\n- key: client\n  {LIMIT}\n  descriptors:\n  - {{key: path, value: /a, {LIMIT}}}\n  - {{key: path, value: /b, {LIMIT}}}\n"
    );
    let descriptors =
        [&[("client", "c")][..], &[("client", "c"), ("path", "/a")], &[("client", "x"), ("path", "/b")]];
    assert_eq!(cells(&rules, &descriptors), [["{d|client=c}"], ["{d|client=x}"]]);
}

#[test]
fn a_hash_tag_joins_what_is_open_beyond_it_in_one_call() {
    let rules = format!(
        "domain: d\nhash_tag: [client]\ndescriptors:\n- key: client\n  {LIMIT}\n  descriptors:\n  - {{key: path, {LIMIT}}}\n\
         - key: region\n  descriptors:\n  - {{key: client, value: gold, {LIMIT}}}\n- {{key: path, {LIMIT}}}\n- {{key: all, value: x, {LIMIT}}}\n"
    );
    let one =
        [&[("client", "c")][..], &[("client", "c"), ("path", "/a")], &[("client", "c"), ("path", "/b")]];
    assert_eq!(cells(&rules, &one), [["{d|client=c}", "{d|client=c}+path=/a", "{d|client=c}+path=/b"]]);
    // A value that the rule states is part of the tag too; a rule without any of the keys has a tag of its own.
    let gold = [&[("region", "eu"), ("client", "gold")][..], &[("path", "/a")], &[("all", "x")]];
    let found = cells(&rules, &gold);
    assert_eq!(found[..2], [["{d|client=gold}+region=eu"], ["{d|path=/a}"]]);
    assert!(found[2][0].starts_with("{d|@"), "{found:?}");
}

#[test]
fn values_that_share_a_counter_are_not_part_of_a_tag() {
    let rules = format!(
        "domain: d\nhash_tag: [path]\ndescriptors:\n- key: client\n  descriptors:\n  - {{key: path, value: '/a*', share_threshold: true, {LIMIT}}}\n"
    );
    let descriptors = [&[("client", "c"), ("path", "/a1")][..], &[("client", "c"), ("path", "/a2")]];
    assert_eq!(cells(&rules, &descriptors), [["{d|client=c}"]]);
}

#[test]
fn logs_and_permits_have_keys_of_their_own_beside_the_cell() {
    let rules = "domain: d\ndescriptors:\n- key: client\n  rate_limit: {algorithm: sliding_window_log, unit: hour, requests_per_unit: 1}\n  descriptors:\n  - {key: at, value: once, rate_limit: {algorithm: concurrency, requests_per_unit: 1}}\n  - {key: in, value: sum, rate_limit: {unit: hour, requests_per_unit: 1}}\n";
    let descriptors = [
        &[("client", "c")][..],
        &[("client", "c"), ("at", "once")],
        &[("client", "c"), ("in", "sum")],
        &[("client", "c"), ("at", "once"), ("lease", "00000000000000ff")],
    ];
    let found = cells(rules, &descriptors);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].len(), 3, "acquire and release use the same key: {found:?}");
    assert!(found[0][0].starts_with("{d|client=c}~") && found[0][0] != found[0][1], "{found:?}");
    assert_eq!(found[0][2], "{d|client=c}");
}

#[test]
fn only_limits_of_rules_are_leased() {
    let limit = "rate_limit: {unit: hour, requests_per_unit: 1, sync: leased}";
    let rules = format!("descriptors:\n- {{key: a, {limit}}}\n- {{key: b, {LIMIT}}}\n");
    let syncs = |root: &str, limit| -> Vec<SyncMode> {
        let calls = requested(&format!("{root}{rules}"), &[&[("a", "x")], &[("b", "x")]], limit);
        calls.iter().flat_map(TagRequest::checks).map(|check| check.sync).collect()
    };
    assert_eq!(syncs("domain: d\n", None), [SyncMode::Leased, SyncMode::Strict]);
    assert_eq!(syncs("domain: d\natomic: true\n", None), [SyncMode::Strict; 2]);
    let limit_override = Quota { limit: 5, window: Window::of(Unit::Hour) };
    assert_eq!(syncs("domain: d\n", Some(limit_override)), [SyncMode::Strict; 2]);
}

#[test]
fn a_request_acquires_a_bounded_number_of_permits() {
    let rules = "domain: d\ndescriptors:\n- key: gpu\n  rate_limit: {algorithm: concurrency, requests_per_unit: 10000}\n- key: tokens\n  rate_limit: {unit: day, requests_per_unit: 4000000000}\n";
    let charged = |charges: &[(&str, u64)]| -> Vec<u64> {
        let entries: Vec<_> = charges.iter().map(|(key, _)| [(*key, "v")]).collect();
        let hits = charges.iter().map(|(_, hits)| Hits::charge(*hits));
        let descriptors: Vec<_> = entries.iter().map(|entries| &entries[..]).zip(hits).collect();
        let calls = requested_hits(rules, &descriptors, None);
        let mut checks: Vec<_> = calls.iter().flat_map(TagRequest::checks).collect();
        checks.sort_by_key(|check| check.descriptor);
        checks.iter().map(|check| check.hits.charged()).collect()
    };
    // What is not left is denied, whatever the limit, and acquires nothing.
    assert_eq!(charged(&[("gpu", 100)]), [100]);
    assert_eq!(charged(&[("gpu", 101)]), [Hits::MAX]);
    assert_eq!(
        charged(&[("gpu", 90), ("tokens", 1 << 31), ("gpu", 11), ("gpu", 10), ("gpu", 1)]),
        [90, 1 << 31, Hits::MAX, 10, Hits::MAX]
    );
}
