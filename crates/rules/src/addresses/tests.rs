use std::{collections::BTreeSet, fs};

use tollgate_core::descriptor::Hits;

use super::*;
use crate::{Rules, config};

fn rules(yaml: &str) -> Rules {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("rules.yaml"), yaml).expect("writable");
    config::load(directory.path(), &config::Options::default()).expect("valid").rules
}

const RULES: &str = "
domain: d
descriptors:
- {key: plain, rate_limit: {unit: day, requests_per_unit: 1}}
- key: app
  descriptors:
  - {key: ip, cidr: 0.0.0.0/0, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: ip, cidr: '::/0', rate_limit: {unit: day, requests_per_unit: 1}}
";

fn canonical(key: &str, value: &str) -> String {
    let rules = rules(RULES);
    let domain = rules.domain("d").expect("is there");
    let descriptors =
        [Descriptor { entries: [Entry { key, value }].into_iter().collect(), limit: None, hits: Hits::ONE }];
    let addresses = CanonicalAddresses::of(domain, &descriptors);
    let applied = addresses.apply(&descriptors);
    let descriptor = applied.first().expect("one descriptor");
    descriptor.entries.first().expect("one entry").value.to_owned()
}

#[test]
fn an_address_has_one_text_however_it_is_written() {
    let texts = |texts: &[&str]| texts.iter().map(|text| canonical("ip", text)).collect::<BTreeSet<_>>();
    let only = |text: &str| BTreeSet::from([text.to_owned()]);
    let ipv4 = [
        "1.2.3.4",
        "::ffff:1.2.3.4",
        "::ffff:102:304",
        "::FFFF:102:304",
        "0:0:0:0:0:ffff:1.2.3.4",
        "1.2.3.4:5678",
        "[::ffff:1.2.3.4]:80",
        "[::ffff:102:304]",
        "1.2.3.4/32",
        "::ffff:1.2.3.4/128",
    ];
    assert_eq!(texts(&ipv4), only("1.2.3.4"));
    let ipv6 = ["2001:db8::1", "2001:DB8:0:0::1", "[2001:db8::1]:443", "[2001:db8::1]", "2001:db8::1/128"];
    assert_eq!(texts(&ipv6), only("2001:db8::1"));
    assert_eq!(texts(&["1.2.3.0/24", "1.2.3.4/24", "::ffff:1.2.3.0/120"]), only("1.2.3.0/24"));
    assert_eq!(texts(&["2001:db8::/64", "2001:DB8::5/64"]), only("2001:db8::/64"));
}

#[test]
fn values_of_rules_match_addresses_in_any_text() {
    let rules = rules(
        "
domain: d
descriptors:
- {key: ip, cidr: 0.0.0.0/0, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: ip, value: 10.1.2.3/32, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: ip, value: '2001:DB8::1', rate_limit: {unit: day, requests_per_unit: 1}}
- key: app
  descriptors:
  - {key: ip, value: '::ffff:1.2.3.4', rate_limit: {unit: day, requests_per_unit: 1}}
",
    );
    let domain = rules.domain("d").expect("is there");
    let path = |entries: &[(&str, &str)]| {
        let texts: Vec<_> = entries
            .iter()
            .map(|(_, value)| canonical_text(value).unwrap_or_else(|| (*value).into()))
            .collect();
        let entries = entries.iter().zip(&texts).map(|((key, _), value)| Entry { key, value });
        domain.root.rule(&entries.collect::<Vec<_>>()).map(|rule| rule.path())
    };
    assert_eq!(path(&[("ip", "10.1.2.3/32")]).as_deref(), Some("ip_10.1.2.3/32"));
    assert_eq!(path(&[("ip", "10.1.2.3:80")]).as_deref(), Some("ip_10.1.2.3/32"));
    assert_eq!(path(&[("ip", "2001:db8:0::1")]).as_deref(), Some("ip_2001:DB8::1"));
    assert_eq!(path(&[("app", ""), ("ip", "1.2.3.4")]).as_deref(), Some("app.ip_::ffff:1.2.3.4"));
    assert_eq!(path(&[("ip", "10.1.2.4")]).as_deref(), Some("ip_0.0.0.0/0"));
}

#[test]
fn other_texts_and_other_keys_stay_as_they_are() {
    for value in ["a, b", "1.2.3.4, 5.6.7.8", "1.2.3", "", "localhost:80", "01.2.3.4", "1.2.3.4:", "::ffff:"]
    {
        assert_eq!(canonical("ip", value), value);
    }
    assert_eq!(canonical("plain", "::ffff:1.2.3.4"), "::ffff:1.2.3.4");
}
