//! Responses to whole requests, compatible with envoyproxy/ratelimit.

mod bans;
mod decisions;
mod examples;
mod denials;
mod fields;
mod frames;
mod leases;
mod lists;
mod spread;

use std::{fs, sync::Arc, time::Duration};

use tollgate_core::clock::{Clock, Timestamp};
use tollgate_fixtures::active;
use tollgate_limiter::{ActiveRules, Modes};
use tollgate_proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::rate_limit_response::{self as wire, Code::*, rate_limit::Unit},
};
use tollgate_store::{MemoryStore, Store};
use tollgate_telemetry::traces::Span;

use super::*;

const RULES: &str = "
domain: d
descriptors:
- {key: two, rate_limit: {unit: hour, requests_per_unit: 2, name: two}}
- {key: day, rate_limit: {unit: day, requests_per_unit: 1, name: day}}
- {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
- {key: bucket, rate_limit: {algorithm: token_bucket, unit: minute, requests_per_unit: 6}}
- {key: banned, rate_limit: {algorithm: token_bucket, unit: minute, requests_per_unit: 0}}
- {key: free, rate_limit: {unlimited: true}}
- {key: shadow, shadow_mode: true, metadata: {from: shadow, n: {a: 1}}, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: other_quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: better, metadata: {from: better, n: {a: 2, b: 3}}, rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: two}]}}
- {key: generous, rate_limit: {unlimited: true, replaces: [{name: day}]}}
- {key: multiple, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 3}}
- {key: shared, value: 'f*', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: stated, value: b, rate_limit: {unit: hour, requests_per_unit: 2}}
- {key: shared, value: 'g*', rate_limit: {unit: hour, requests_per_unit: 2}}
";

/// 28 minutes and 20.5 seconds past an hour.
const NOW: Timestamp = Timestamp::from_micros(1_700_000_900_500_000);

struct TestService {
    inner: Service,
    clock: Clock,
    rules: Arc<ActiveRules>,
}

impl TestService {
    fn with(modes: Modes, options: ResponseOptions) -> Self {
        Self::with_rules(RULES, modes, options)
    }

    fn with_rules(rules: &str, modes: Modes, options: ResponseOptions) -> Self {
        let rules = active(rules);
        let clock = Clock::manual(NOW);
        let store = Store::new(MemoryStore::new(1_000, clock.clone()));
        let limiter = Limiter { clock: clock.clone(), ..Limiter::new(Arc::clone(&rules), store, modes) };
        Self { inner: Service::new(limiter, options), clock, rules }
    }

    fn plain() -> Self {
        Self::with(Modes::default(), options(HeaderStyle::Ratelimit))
    }

    async fn answer(&self, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> Answer {
        let request = RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 };
        self.inner.respond(&request, Deadline::UNKNOWN, &mut Span::off()).await.expect("a response")
    }

    async fn call(&self, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        self.call_about("d", descriptors).await
    }

    async fn call_about(&self, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        let response = self.answer(domain, descriptors).await;
        response.permits.iter().for_each(HeldPermits::hand_over);
        response.message().expect("a message")
    }

    /// Calls `times` times with one hit on each key, and returns the last response.
    async fn call_times(&self, times: usize, keys: &[&str]) -> RateLimitResponse {
        let mut response = self.call(keys.iter().map(|key| descriptor(key, "x")).collect()).await;
        for _ in 1..times {
            response = self.call(keys.iter().map(|key| descriptor(key, "x")).collect()).await;
        }
        response
    }
}

fn options(headers: HeaderStyle) -> ResponseOptions {
    ResponseOptions {
        headers,
        header_names: HeaderNames::default(),
        retry_after_header: true,
        problem_body: false,
        dynamic_metadata: true,
        decision_metadata: NamedDecisions::Off,
    }
}

fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    let entry = Entry { key: key.into(), value: value.into() };
    RateLimitDescriptor { entries: vec![entry], ..Default::default() }
}

fn codes(response: &RateLimitResponse) -> (wire::Code, Vec<wire::Code>) {
    (response.overall_code(), response.statuses.iter().map(wire::DescriptorStatus::code).collect())
}

fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut headers = response.response_headers_to_add.iter();
    headers.find(|header| header.key == name).map(|header| &*header.value)
}

fn headers<'a, const N: usize>(response: &'a RateLimitResponse, names: [&str; N]) -> [Option<&'a str>; N] {
    names.map(|name| header(response, name))
}

/// The descriptor with a limit for each hour.
fn overriding(requests_per_unit: u32, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    let limit = RateLimitOverride { requests_per_unit, unit: Unit::Hour.into(), unit_multiplier: None };
    RateLimitDescriptor { limit: Some(limit), ..descriptor }
}

#[tokio::test]
async fn a_status_has_limit_remaining_and_reset() {
    let response = TestService::plain().call_times(1, &["two"]).await;
    let status = &response.statuses[0];
    let limit = status.current_limit.as_ref().expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit(), &*limit.name), (2, Unit::Hour, "two"));
    assert_eq!((limit.unit_multiplier, status.limit_remaining), (None, 1));
    // The hour ends in 1,899.5 s; whole seconds are rounded up.
    assert_eq!(status.duration_until_reset.expect("a reset").seconds, 1_900);
}

#[tokio::test]
async fn a_window_of_several_units_has_a_multiplier() {
    let response = TestService::plain().call_times(1, &["multiple"]).await;
    let limit = response.statuses[0].current_limit.as_ref().expect("a limit");
    assert_eq!((limit.unit(), limit.unit_multiplier), (Unit::Minute, Some(5)));
}

#[tokio::test]
async fn one_descriptor_over_its_limit_denies_the_request_and_all_are_charged() {
    let service = TestService::plain();
    assert_eq!(codes(&service.call_times(2, &["two", "day"]).await), (OverLimit, vec![Ok, OverLimit]));
    assert_eq!(codes(&service.call_times(1, &["two"]).await), (OverLimit, vec![OverLimit]));
}

#[tokio::test]
async fn unlimited_descriptors_pass_with_a_bare_status() {
    let service = TestService::plain();
    let response = service.call_times(1, &["unknown", "free", "none"]).await;
    assert_eq!(codes(&response), (OverLimit, vec![Ok, Ok, OverLimit]));
    assert_eq!(response.statuses[0].limit_remaining, 0);
    assert_eq!(response.statuses[1].limit_remaining, u32::MAX);
    assert!(response.statuses[..2].iter().all(|status| status.current_limit.is_none()));
    let other_domain = service.call_about("e", vec![descriptor("none", "x")]).await;
    assert_eq!(codes(&other_domain), (Ok, vec![Ok]));
    assert!(other_domain.response_headers_to_add.is_empty());
}

#[tokio::test]
async fn shadow_mode_counts_and_lets_pass() {
    let response = TestService::plain().call_times(3, &["shadow"]).await;
    assert_eq!(codes(&response), (Ok, vec![Ok]));
    assert_eq!(response.statuses[0].limit_remaining, 0);
    assert_eq!(header(&response, "Retry-After"), None);
}

#[tokio::test]
async fn quotas_deny_when_the_last_of_them_is_exhausted() {
    let service = TestService::plain();
    service.call_times(1, &["quota"]).await;
    for (overall, other) in [(Ok, Ok), (OverLimit, OverLimit)] {
        let response = service.call_times(1, &["quota", "other_quota"]).await;
        assert_eq!(codes(&response), (overall, vec![OverLimit, other]));
    }
    assert_eq!(codes(&service.call_times(1, &["quota", "free"]).await).0, OverLimit);
}

#[tokio::test]
async fn the_global_modes_apply_to_every_rule() {
    let shadow = TestService::with(Modes { shadow: true, ..Modes::default() }, options(HeaderStyle::Off));
    let response = shadow.call_times(2, &["day"]).await;
    assert_eq!(codes(&response), (Ok, vec![OverLimit]));
    assert_eq!(header(&response, "Retry-After"), None);

    let quota = TestService::with(Modes { quota: true, ..Modes::default() }, options(HeaderStyle::Off));
    quota.call_times(1, &["day"]).await;
    assert_eq!(codes(&quota.call_times(1, &["day", "unknown"]).await), (Ok, vec![OverLimit, Ok]));
    assert_eq!(codes(&quota.call_times(1, &["day", "free"]).await), (OverLimit, vec![OverLimit, Ok]));
    // Two exhausted quotas: the hour's ends first.
    quota.call_times(2, &["two"]).await;
    let both = quota.call_times(1, &["day", "two"]).await;
    assert_eq!((both.overall_code(), header(&both, "Retry-After")), (OverLimit, Some("1900")));
}

#[tokio::test]
async fn a_replaced_limit_is_neither_charged_nor_reported() {
    let service = TestService::plain();
    let response = service.call_times(3, &["two", "better"]).await;
    assert_eq!(codes(&response), (Ok, vec![Ok, Ok]));
    assert!(response.statuses[0].current_limit.is_none());
    assert_eq!(service.call_times(1, &["two"]).await.statuses[0].limit_remaining, 1);
    assert_eq!(codes(&service.call_times(2, &["day", "generous"]).await).0, Ok);
}

#[tokio::test]
async fn a_limit_override_shares_the_counter_of_the_rule_if_the_window_is_equal() {
    let service = TestService::plain();
    service.call_times(1, &["two"]).await;
    let of_hour = overriding(5, descriptor("two", "x"));
    let hour = &service.call(vec![of_hour.clone()]).await.statuses[0];
    assert_eq!((hour.limit_remaining, &*hour.current_limit.as_ref().unwrap().name), (3, ""));
    let mut of_day = of_hour;
    of_day.limit.as_mut().unwrap().unit = Unit::Day.into();
    assert_eq!(service.call(vec![of_day]).await.statuses[0].limit_remaining, 4);
    assert_eq!(service.call_times(1, &["two"]).await.overall_code(), OverLimit);
    for (key, limit, code) in [("unknown", 1, Ok), ("unknown", 1, OverLimit), ("free", 0, OverLimit)] {
        let response = service.call(vec![overriding(limit, descriptor(key, "x"))]).await;
        assert_eq!(response.overall_code(), code, "{key}");
    }
}

#[tokio::test]
async fn values_have_counters_of_their_own_but_for_those_of_a_pattern_with_share_threshold() {
    let service = TestService::plain();
    for (key, value, remaining) in [
        ("shared", "f1", 1),
        ("shared", "f2", 0),
        ("shared", "g1", 1),
        ("shared", "g2", 1),
        // The rule `key: stated, value: b` is found under `stated_b`, by either split of it and by the key alone.
        ("stated", "b", 1),
        ("stated", "b", 0),
        ("stated_b", "x", 1),
        ("stated_b", "y", 1),
        ("stated_b", "x", 0),
    ] {
        let response = service.call(vec![descriptor(key, value)]).await;
        assert_eq!(response.statuses[0].limit_remaining, remaining, "{key}={value}");
    }
}

#[tokio::test]
async fn headers_show_the_last_limit_that_denies_else_the_one_with_the_least_remaining() {
    let service = TestService::plain();
    let response = service.call_times(1, &["two", "better", "multiple"]).await;
    assert_eq!(headers(&response, ["RateLimit-Limit", "RateLimit-Remaining"]), [Some("3"), Some("2")]);
    let denied = service.call_times(1, &["none", "multiple"]).await;
    let shown = headers(&denied, ["RateLimit-Limit", "RateLimit-Reset", "Retry-After"]);
    assert_eq!(shown, [Some("0"), Some("1900"), Some("1900")]);
}

#[tokio::test]
async fn retry_after_is_the_longest_wait_of_the_denying_limits() {
    let service = TestService::plain();
    let denied = service.call_times(7, &["bucket"]).await;
    assert_eq!(headers(&denied, ["Retry-After", "RateLimit-Reset"]), [Some("10"); 2]);
    service.clock.set(Timestamp::from_micros(NOW.as_micros() + 9_999_999));
    assert_eq!(header(&service.call_times(1, &["bucket"]).await, "Retry-After"), Some("1"));
    let slower = service.call_times(3, &["bucket", "two"]).await;
    assert_eq!(header(&slower, "Retry-After"), Some("1890"));
    // A limit of 0 never admits a hit; its window is reported instead.
    assert_eq!(header(&service.call_times(1, &["banned"]).await, "Retry-After"), Some("60"));
}

#[tokio::test]
async fn ietf_headers_list_every_limit_once_and_quote_names() {
    let service = TestService::with(Modes::default(), options(HeaderStyle::Ietf));
    let response = service.call_times(1, &["two", "two", "multiple"]).await;
    assert_eq!(header(&response, "RateLimit-Policy"), Some("\"two\";q=2;w=3600, \"multiple\";q=3;w=300"));
    assert_eq!(header(&response, "RateLimit"), Some("\"two\";r=0;t=1900"));
}

#[tokio::test]
async fn metadata_contains_the_request_and_merges_that_of_passing_rules() {
    let service = TestService::plain();
    let mut peek = descriptor("two", "x");
    peek.hits_addend = Some(0);
    let response = service.call(vec![descriptor("shadow", "x"), descriptor("better", "x"), peek]).await;
    let metadata = format!("{:?}", response.dynamic_metadata.expect("metadata"));
    for part in
        ["StringValue(\"shadow=x\")", "StringValue(\"shadow\")", "\"b\": Value", "\"hitsAddend\": Value"]
    {
        assert!(metadata.contains(part), "no {part} in {metadata}");
    }
    assert!(!metadata.contains("StringValue(\"better\")"), "the first value of a key stays: {metadata}");
}
