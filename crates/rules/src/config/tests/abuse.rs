//! The adaptive deny list: `abuse` at the root of a file.

use std::time::Duration;

use tollgate_core::descriptor::Entry;

use super::*;
use crate::{AbuseMode, AbuseRule, AbuseTrigger};

/// A file of the domain `d` with these abuse rules, in lines 2 and further.
fn with(rules: &str) -> String {
    format!(
        "domain: d\nabuse: [{rules}]\ndescriptors:\n  - key: ip\n    rate_limit: {{unit: minute, requests_per_unit: 5}}\n  \
         - key: ip\n    value: 10.9.9.9\n    rate_limit: {{unit: minute, requests_per_unit: 5}}\n  \
         - key: tenant\n    value: free-*\n    share_threshold: true\n    rate_limit: {{unit: minute, requests_per_unit: 5}}\n  \
         - key: net\n    cidr: 10.0.0.0/8\n    rate_limit: {{unit: minute, requests_per_unit: 5}}\n"
    )
}

fn only(rules: &str) -> AbuseRule {
    let loaded = loads(&with(rules));
    let rules = &loaded.rules.domain("d").expect("stated").abuse;
    assert_eq!(rules.len(), 1);
    rules[0].clone()
}

const PLAIN: &str = "name: a, client_keys: [ip, tenant, net]";

#[test]
fn a_rule_has_one_trigger_and_is_a_dry_run_by_default() {
    let rule = only(&format!("{{{PLAIN}, denied_per_second: 50}}"));
    let half_a_minute = Duration::from_secs(30);
    assert_eq!(rule.trigger, AbuseTrigger::DeniedPerSecond { rate: 50, period: half_a_minute });
    assert_eq!((rule.mode, rule.duration.as_secs()), (AbuseMode::DryRun, 600));
    assert_eq!((rule.max_duration.as_secs(), rule.forgive.as_secs()), (86_400, 86_400));
    let rule = only(&format!("{{{PLAIN}, denied_in_a_row: 9, mode: enforce, duration: 2d, forgive: 1h}}"));
    assert_eq!(rule.trigger, AbuseTrigger::DeniedInARow { count: 9 });
    assert_eq!((rule.mode, rule.max_duration), (AbuseMode::Enforce, rule.duration));
    let rule = only(&format!("{{{PLAIN}, hits_per_second: 9, for: 1m}}"));
    assert_eq!(rule.trigger, AbuseTrigger::HitsPerSecond { rate: 9, period: 2 * half_a_minute });
}

#[test]
fn mistakes_are_reported_with_what_was_expected() {
    for (rule, problem) in [
        (format!("{{{PLAIN}}}"), "expected exactly one of `denied_per_second`"),
        (format!("{{{PLAIN}, denied_per_second: 5, hits_per_second: 5}}"), "expected exactly one of"),
        (format!("{{{PLAIN}, denied_per_second: 0}}"), "the threshold is 0; expected at least 1"),
        (format!("{{{PLAIN}, denied_in_a_row: 5, for: 30s}}"), "has no effect beside `denied_in_a_row`"),
        (format!("{{{PLAIN}, denied_per_second: 5, for: 2h}}"), "`2h` is out of range; expected 1s to 3600s"),
        (format!("{{{PLAIN}, denied_per_second: 5, for: x}}"), "`x` is not a duration"),
        (format!("{{{PLAIN}, denied_per_second: 5, mode: enforced}}"), "did you mean `enforce`?"),
        (format!("{{{PLAIN}, denied_per_second: 5, exempt: [10.0.0.1/8]}}"), "means all of 10.0.0.0/8"),
        (format!("{{{PLAIN}, denied_per_second: 5, exempt: [partner]}}"), "`partner` is no exemption"),
        (format!("{{{PLAIN}, denied_per_second: 5, duration: 2h, max_duration: 1h}}"), "is shorter than"),
        (format!("{{{PLAIN}, denied_per_second: 5}}, {{{PLAIN}, hits_per_second: 5}}"), "is a duplicate of"),
        ("{name: a, denied_per_second: 5}".to_owned(), "has no `client_keys`"),
        ("{client_keys: [ip], denied_per_second: 5}".to_owned(), "has no `name`"),
        (
            "{name: a, client_keys: [generic_key], denied_per_second: 5}".to_owned(),
            "has a value of Envoy's configuration, which many clients share",
        ),
        (format!("{{{PLAIN}, denied_per_sec: 5}}"), "did you mean `denied_per_second`?"),
    ] {
        assert_says(&errors(&with(&rule)), &[problem]);
    }
    let unknown = "{name: a, client_keys: [adress], denied_per_second: 5}";
    assert_says(&warnings(&with(unknown)), &["abuse[0].client_keys", "has the key `adress`"]);
}

#[test]
fn counters_that_clients_share_are_of_no_client() {
    let loaded = loads(&with(&format!("{{{PLAIN}, denied_per_second: 50}}")));
    let abuse = &loaded.rules.domain("d").expect("stated").abuse[0];
    let is_of_one_client = |key: &str, value: &str| {
        let rule = rule(&loaded, &[(key, value)]).expect("matches");
        abuse.is_of_one_client(&rule, &[Entry { key, value }])
    };
    assert!(is_of_one_client("ip", "192.0.2.1"));
    assert!(is_of_one_client("net", "10.1.1.1"), "each address has a counter");
    assert!(!is_of_one_client("ip", ""), "no value");
    assert!(!is_of_one_client("ip", "10.9.9.9"), "a stated value");
    assert!(!is_of_one_client("tenant", "free-1"), "a shared threshold");
}

#[test]
fn exemptions_are_ranges_and_values_of_keys() {
    let rule = only(&format!(
        "{{{PLAIN}, denied_per_second: 5, exempt: [10.0.0.0/8, '2001:db8::1', 'tenant=partner-*', 'ip=::/0']}}"
    ));
    let exempts =
        |key: &str, value: &str| rule.exempts(&[Entry { key: "x", value: "y" }, Entry { key, value }]);
    assert!(exempts("ip", "10.1.2.3") && exempts("ip", "::ffff:10.1.2.3") && exempts("net", "10.1.0.0/16"));
    assert!(!exempts("ip", "11.1.2.3") && !exempts("ip", "8.0.0.0/5"));
    assert!(exempts("net", "2001:db8::1") && !exempts("net", "2001:db8::2") && exempts("ip", "2001:db8::2"));
    assert!(exempts("tenant", "partner-9") && !exempts("ip", "partner-9") && !exempts("tenant", "other"));
}

#[test]
fn a_range_of_addresses_is_of_many_clients() {
    let rule = only(&format!("{{{PLAIN}, denied_per_second: 5}}"));
    let is_of_range = |key: &str, value: &str| rule.is_of_range(&[Entry { key, value }]);
    assert!(is_of_range("net", "10.1.2.0/24") && is_of_range("ip", "2001:db8::/64"));
    assert!(
        !is_of_range("net", "10.1.2.3") && !is_of_range("net", "10.1.2.3/32") && !is_of_range("ip", "a/8")
    );
    assert!(!is_of_range("other", "10.1.2.0/24"), "no client key");
}
