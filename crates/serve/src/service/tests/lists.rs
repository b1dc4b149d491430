//! Lists and switches of a runtime.

use tollgate_control::{List, ListEntry, ListPair, Runtime, Switch, SwitchMode, compile_lists};
use tollgate_core::lease;

use super::{leases::lease_of, *};

/// Entry without an expiry, for every domain.
fn entry(list: List, pairs: &[(&str, &str)]) -> ListEntry {
    let pair = |(key, value): &(&str, &str)| ListPair::pattern(*key, *value);
    ListEntry {
        list,
        domain: "*".into(),
        descriptor: pairs.iter().map(pair).collect(),
        reason: "the reason".into(),
        author: "the author".into(),
        created_at_ms: 0,
        expires_at_ms: None,
    }
}

pub(super) fn allow(pairs: &[(&str, &str)]) -> ListEntry {
    entry(List::Allow, pairs)
}

pub(super) fn deny(pairs: &[(&str, &str)]) -> ListEntry {
    entry(List::Deny, pairs)
}

pub(super) fn switch(rule: &str, mode: SwitchMode) -> Switch {
    Switch {
        domain: "d".into(),
        rule: rule.into(),
        mode,
        enforce_percent: None,
        ramp: None,
        reason: String::new(),
        author: String::new(),
        created_at_ms: 0,
        expires_at_ms: None,
    }
}

impl TestService {
    pub(super) fn set_lists(&self, entries: Vec<ListEntry>, switches: Vec<Switch>) {
        let runtime = Runtime { generation: 1, entries, switches, ..Runtime::default() };
        let (lists, problems) = compile_lists(&runtime, NOW.as_micros() / 1_000);
        assert_eq!(problems, Vec::<String>::new());
        self.rules.set_lists(Arc::new(lists));
    }

    /// Remaining hits of the limit of `key`, read without charging.
    async fn remaining(&self, key: &str) -> u32 {
        self.set_lists(vec![], vec![]);
        let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(key, "x") };
        self.call(vec![peek]).await.statuses[0].limit_remaining
    }
}

#[tokio::test]
async fn a_denied_request_is_over_the_limit_and_charges_nothing() {
    let service = TestService::plain();
    service.set_lists(vec![deny(&[("two", "x")])], vec![]);
    let response = service.call_times(3, &["day", "two", "unknown"]).await;
    assert_eq!(codes(&response), (OverLimit, vec![Ok, OverLimit, Ok]));
    assert!(response.statuses.iter().all(|status| status.current_limit.is_none()));
    assert_eq!(header(&response, "Retry-After"), Some("3600"));
    assert_eq!(header(&response, "RateLimit-Limit"), None, "no limit was over");
    let metadata = format!("{:?}", response.dynamic_metadata.expect("metadata"));
    assert!(metadata.contains("\"list\": Value { kind: Some(StringValue(\"deny\"))"), "{metadata}");
    assert!(!metadata.contains("the reason") && !metadata.contains("the author"), "{metadata}");
    assert_eq!((service.remaining("day").await, service.remaining("two").await), (1, 2));
}

#[tokio::test]
async fn an_allowed_request_passes_all_limits_and_lists_and_charges_nothing() {
    let service = TestService::plain();
    assert_eq!(service.call_times(2, &["day"]).await.overall_code(), OverLimit);
    service.set_lists(vec![deny(&[("two", "*")]), allow(&[("unknown", "x")])], vec![]);
    let response = service.call_times(3, &["day", "two", "unknown"]).await;
    assert_eq!(codes(&response), (Ok, vec![Ok, Ok, Ok]));
    assert_eq!(header(&response, "Retry-After"), None);
    let metadata = format!("{:?}", response.dynamic_metadata.expect("metadata"));
    assert!(metadata.contains("\"list\": Value { kind: Some(StringValue(\"allow\"))"), "{metadata}");
    // Denied without the descriptor that allows it.
    assert_eq!(service.call_times(1, &["two"]).await.overall_code(), OverLimit);
    assert_eq!(service.remaining("two").await, 2);
}

#[tokio::test]
async fn an_entry_applies_to_its_domain_even_without_rules() {
    let service = TestService::plain();
    let about = async |domain: &str| codes(&service.call_about(domain, vec![descriptor("two", "x")]).await);
    service.set_lists(vec![ListEntry { domain: "e".into(), ..deny(&[("two", "x")]) }], vec![]);
    assert_eq!(about("e").await, (OverLimit, vec![OverLimit]));
    assert_eq!(about("d").await.0, Ok);
    let allowed = ListEntry { domain: "e".into(), ..allow(&[("two", "*")]) };
    service.set_lists(vec![deny(&[("two", "x")]), allowed], vec![]);
    assert_eq!(about("e").await.0, Ok);
    assert_eq!(about("f").await.0, OverLimit);
}

#[tokio::test]
async fn retry_after_is_the_end_of_a_ban_and_the_client_passes_from_then_on() {
    let service = TestService::plain();
    let until = |millis: u64| Some(NOW.as_micros() / 1_000 + millis);
    let ends = |millis| ListEntry { expires_at_ms: until(millis), ..deny(&[("two", "x")]) };
    service.set_lists(vec![ends(9_500), ends(2_000)], vec![]);
    let denied = service.call_times(1, &["two"]).await;
    assert_eq!((denied.overall_code(), header(&denied, "Retry-After")), (OverLimit, Some("10")));
    service.clock.set(Timestamp::from_micros(NOW.as_micros() + 9_499_000));
    assert_eq!(header(&service.call_times(1, &["two"]).await, "Retry-After"), Some("1"));
    service.clock.set(Timestamp::from_micros(NOW.as_micros() + 9_500_000));
    assert_eq!(service.call_times(1, &["two"]).await.overall_code(), Ok);
    service.clock.set(NOW);
    service.set_lists(vec![ends(100 * 3_600_000)], vec![]);
    assert_eq!(header(&service.call_times(1, &["two"]).await, "Retry-After"), Some("3600"));
}

#[tokio::test]
async fn a_peek_gets_the_same_verdict_as_a_charge() {
    let service = TestService::plain();
    let peek = |key| RateLimitDescriptor { hits_addend: Some(0), ..descriptor(key, "x") };
    service.call_times(2, &["day"]).await;
    service.set_lists(vec![deny(&[("two", "x")]), allow(&[("day", "x")])], vec![]);
    assert_eq!(service.call(vec![peek("two")]).await.overall_code(), OverLimit);
    assert_eq!(service.call(vec![peek("day")]).await.overall_code(), Ok);
}

#[tokio::test]
async fn refunds_are_applied_regardless_of_lists_and_switches() {
    for (entries, switches) in [
        (vec![deny(&[("two", "x")])], vec![]),
        (vec![allow(&[("two", "x")]), allow(&[("day", "x")])], vec![]),
        (vec![], vec![switch("two", SwitchMode::Off)]),
    ] {
        let service = TestService::plain();
        service.call_times(2, &["two"]).await;
        service.set_lists(entries, switches);
        let refund = RateLimitDescriptor { is_negative_hits: true, ..descriptor("two", "x") };
        assert_eq!(codes(&service.call(vec![refund.clone()]).await), (Ok, vec![Ok]));
        // Also next to a descriptor that charges.
        service.call(vec![descriptor("day", "x"), refund]).await;
        assert_eq!(service.remaining("two").await, 2);
    }
}

const CONCURRENCY_RULES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 2, lease_ttl: 60s}}
";

#[tokio::test]
async fn permits_are_released_by_denied_clients_and_not_held_by_allowed_ones() {
    for (entries, switches) in [
        (vec![deny(&[("user", "x")])], vec![]),
        (vec![allow(&[("user", "x")])], vec![]),
        (vec![], vec![switch("user", SwitchMode::Off)]),
    ] {
        let service = TestService::with_rules(CONCURRENCY_RULES, Modes::default(), options(HeaderStyle::Off));
        let lease = lease_of(&service.call_times(1, &["user"]).await).expect("a lease");
        assert_eq!(service.remaining("user").await, 1);
        service.set_lists(entries.clone(), switches.clone());
        assert_eq!(lease_of(&service.call_times(3, &["user"]).await), None);
        assert_eq!(service.remaining("user").await, 1, "nothing was acquired");
        service.set_lists(entries, switches);
        let mut release = descriptor("user", "x");
        release.entries.push(Entry { key: lease::KEY.into(), value: lease });
        assert_eq!(codes(&service.call(vec![release]).await), (Ok, vec![Ok]));
        assert_eq!(service.remaining("user").await, 2, "the permit was released");
    }
}

#[tokio::test]
async fn a_denied_request_passes_in_global_shadow_mode_and_charges_nothing() {
    let service = TestService::with(Modes { shadow: true, ..Modes::default() }, options(HeaderStyle::Off));
    service.set_lists(vec![deny(&[("two", "x")])], vec![]);
    let response = service.call_times(1, &["two"]).await;
    assert_eq!(codes(&response), (Ok, vec![OverLimit]));
    assert_eq!(header(&response, "Retry-After"), None);
    assert_eq!(service.remaining("two").await, 2);
}

#[tokio::test]
async fn a_ban_is_not_compensated_by_another_quota() {
    let service = TestService::with(Modes { quota: true, ..Modes::default() }, options(HeaderStyle::Off));
    service.set_lists(vec![deny(&[("two", "x")])], vec![]);
    assert_eq!(service.call_times(1, &["two", "day"]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn the_body_of_a_banned_request_names_no_limit() {
    let options = ResponseOptions { problem_body: true, ..options(HeaderStyle::Off) };
    let service = TestService::with(Modes::default(), options);
    service.set_lists(vec![deny(&[("two", "x")])], vec![]);
    let response = service.call_times(1, &["two"]).await;
    let body: serde_json::Value = serde_json::from_slice(&response.raw_body).expect("JSON");
    assert_eq!(body["type"], "about:blank");
    assert_eq!((&body["retry_after"], body.get("violated-policies")), (&3600.into(), None));
}

#[tokio::test]
async fn a_rule_switched_off_neither_limits_nor_charges_but_still_replaces() {
    let service = TestService::plain();
    service.call_times(1, &["two"]).await;
    service.set_lists(vec![], vec![switch("two", SwitchMode::Off), switch("better", SwitchMode::Off)]);
    let response = service.call_times(5, &["two"]).await;
    assert_eq!(codes(&response), (Ok, vec![Ok]));
    let status = &response.statuses[0];
    assert_eq!((status.limit_remaining, &status.current_limit), (u32::MAX, &None));
    let overridden = overriding(0, descriptor("two", "x"));
    assert_eq!(service.call(vec![overridden]).await.overall_code(), Ok, "its limit override is off too");
    assert_eq!(service.remaining("two").await, 1);
    service.set_lists(vec![], vec![switch("better", SwitchMode::Off)]);
    assert_eq!(codes(&service.call_times(3, &["two", "better"]).await), (Ok, vec![Ok, Ok]));
    assert_eq!(service.remaining("two").await, 1, "it was replaced");
}

#[tokio::test]
async fn a_quota_switched_off_never_runs_out() {
    let service = TestService::plain();
    let keys = ["other_quota", "quota"];
    assert_eq!(service.call_times(2, &["quota"]).await.overall_code(), OverLimit, "exhausted");
    service.set_lists(vec![], vec![switch("other_quota", SwitchMode::Off)]);
    assert_eq!(codes(&service.call_times(3, &keys).await), (Ok, vec![Ok, OverLimit]));
    assert_eq!(service.call_times(1, &["quota"]).await.overall_code(), OverLimit, "there is no other quota");
    // A limit that is not a quota does not compensate for one, switched off or not.
    service.set_lists(vec![], vec![switch("two", SwitchMode::Off)]);
    assert_eq!(service.call_times(1, &["two", "quota"]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn in_global_quota_mode_switching_a_rule_off_equals_removing_it() {
    let service = TestService::with(Modes { quota: true, ..Modes::default() }, options(HeaderStyle::Off));
    service.call_times(2, &["day"]).await;
    assert_eq!(service.call_times(1, &["day", "unknown"]).await.overall_code(), Ok, "matches no rule");
    service.set_lists(vec![], vec![switch("two", SwitchMode::Off)]);
    assert_eq!(codes(&service.call_times(3, &["day", "two"]).await), (Ok, vec![OverLimit, Ok]));
    assert_eq!(service.call_times(1, &["day"]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn a_rule_switched_to_shadow_mode_counts_and_passes() {
    let service = TestService::plain();
    service.set_lists(vec![], vec![switch("two", SwitchMode::Shadow)]);
    let response = service.call_times(3, &["two"]).await;
    assert_eq!((codes(&response), response.statuses[0].limit_remaining), ((Ok, vec![Ok]), 0));
    service.set_lists(vec![], vec![]);
    assert_eq!(service.call_times(1, &["two"]).await.overall_code(), OverLimit, "counts are kept");
}

#[tokio::test]
async fn a_rule_in_shadow_mode_does_not_keep_others_from_being_charged() {
    let rules = "
domain: d
atomic: true
descriptors:
- {key: one, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: ten, rate_limit: {unit: hour, requests_per_unit: 10}}
";
    let service = TestService::with_rules(rules, Modes::default(), options(HeaderStyle::Off));
    service.call_times(3, &["one", "ten"]).await;
    assert_eq!(service.remaining("ten").await, 9);
    service.set_lists(vec![], vec![switch("one", SwitchMode::Shadow)]);
    assert_eq!(service.call_times(3, &["one", "ten"]).await.overall_code(), Ok);
    assert_eq!(service.remaining("ten").await, 6);
}
