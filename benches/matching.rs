//! From the entries of a descriptor to its rule.

use std::fmt::Write as _;

use divan::{Bencher, black_box};
use tollgate::{
    config::{self, Options},
    descriptor::Entry,
    rules::Rules,
};

const LIMIT: &str = "rate_limit: {unit: minute, requests_per_unit: 100}";

/// Rules from YAML.
fn rules(descriptors: &str) -> Rules {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let yaml = format!("domain: d\ndescriptors:\n{descriptors}");
    std::fs::write(directory.path().join("rules.yaml"), yaml).expect("writable");
    config::load(directory.path(), &Options::default()).expect("valid rules").rules
}

fn find(bencher: Bencher<'_, '_>, rules: &Rules, entries: &[(&str, &str)]) {
    let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
    assert!(rules.domain("d").and_then(|domain| domain.root.rule(&entries)).is_some(), "nothing matches");
    bencher.bench_local(|| {
        let domain = black_box(rules).domain(black_box("d"))?;
        domain.root.rule(black_box(&entries)).map(|rule| &raw const **rule)
    });
}

#[divan::bench(args = [1, 10_000])]
fn rules_with_exact_values(bencher: Bencher<'_, '_>, count: u32) {
    let mut text = String::new();
    for at in 0..count {
        writeln!(text, "- {{key: client, value: c{at}, {LIMIT}}}").expect("memory");
    }
    find(bencher, &rules(&text), &[("client", &format!("c{}", count / 2))]);
}

/// Tenants with as many paths each; one further entry stays open.
#[divan::bench(args = [1, 10_000])]
fn nested_rules(bencher: Bencher<'_, '_>, count: u32) {
    let side = count.isqrt();
    let mut text = String::new();
    for tenant in 0..side {
        writeln!(text, "- key: tenant\n  value: t{tenant}\n  descriptors:").expect("memory");
        for path in 0..side {
            writeln!(text, "  - key: path\n    value: p{path}\n    descriptors:").expect("memory");
            writeln!(text, "    - {{key: client, {LIMIT}}}").expect("memory");
        }
    }
    let last = side / 2;
    let (tenant, path) = (format!("t{last}"), format!("p{last}"));
    find(bencher, &rules(&text), &[("tenant", &tenant), ("path", &path), ("client", "acme")]);
}

/// A pattern for each of many keys; only those of the request's level are tried.
#[divan::bench(args = [1, 10_000])]
fn wildcards_below_exact_values(bencher: Bencher<'_, '_>, count: u32) {
    let mut text = String::new();
    for tenant in 0..count {
        writeln!(text, "- key: tenant\n  value: t{tenant}\n  descriptors:").expect("memory");
        writeln!(text, "  - {{key: path, value: '/v1/*', {LIMIT}}}").expect("memory");
    }
    let tenant = format!("t{}", count / 2);
    find(bencher, &rules(&text), &[("tenant", &tenant), ("path", "/v1/orders")]);
}

#[divan::bench]
fn any_value(bencher: Bencher<'_, '_>) {
    find(bencher, &rules(&format!("- {{key: client, {LIMIT}}}")), &[("client", "acme")]);
}

#[divan::bench]
fn depth_3(bencher: Bencher<'_, '_>) {
    let text = format!(
        "
- key: tenant
  descriptors:
  - key: plan
    value: gold
    descriptors:
    - {{key: path, {LIMIT}}}"
    );
    find(bencher, &rules(&text), &[("tenant", "acme"), ("plan", "gold"), ("path", "/v1/orders")]);
}

/// The last of ten patterns matches.
fn last_of_ten(bencher: Bencher<'_, '_>, rule: impl Fn(u32) -> String, value: &str) {
    let text: Vec<String> = (0..10).map(|at| format!("- {{key: k, {}, {LIMIT}}}", rule(at))).collect();
    find(bencher, &rules(&text.join("\n")), &[("k", value)]);
}

#[divan::bench]
fn wildcard_last_of_10(bencher: Bencher<'_, '_>) {
    last_of_ten(bencher, |at| format!("value: '/v{at}/*'"), "/v9/orders");
}

#[divan::bench]
fn regex_last_of_10(bencher: Bencher<'_, '_>) {
    last_of_ten(bencher, |at| format!("regex: '^/v{at}/(orders|search)'"), "/v9/orders");
}

#[divan::bench]
fn cidr_last_of_10(bencher: Bencher<'_, '_>) {
    last_of_ten(bencher, |at| format!("cidr: 10.{at}.0.0/16"), "10.9.1.2");
}
