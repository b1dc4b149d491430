//! Answers to whole requests, as the reference gives them.

mod examples;
mod leases;
mod overrides;

use std::{fs, sync::Arc};

use super::*;
use crate::{
    clock::{Clock, Timestamp},
    config,
    limiter::ActiveRules,
    limiter::Modes,
    proto::envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        service::ratelimit::v3::rate_limit_response::{Code::*, rate_limit::Unit},
    },
    store::{MemoryStore, Store},
    tracing::Span,
};

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

struct Asked {
    service: Service,
    clock: Clock,
    rules: Arc<ActiveRules>,
}

impl Asked {
    fn with(modes: Modes, answers: Answers) -> Self {
        Self::by(RULES, modes, answers)
    }

    fn by(rules: &str, modes: Modes, answers: Answers) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("rules.yaml"), rules).expect("written");
        let options = config::Options { merge_domains: false, strict: true };
        let loaded = config::load(directory.path(), &options).expect("valid rules");
        let rules = Arc::new(ActiveRules::default());
        rules.replace(Arc::new(loaded.rules));
        let clock = Clock::manual(NOW);
        let store = Store::Memory(MemoryStore::new(1_000, clock.clone()));
        let limiter = Limiter::new(Arc::clone(&rules), store, modes).with_clock(clock.clone());
        Self { service: Service::new(limiter, answers, Bounds::default()), clock, rules }
    }

    fn plain() -> Self {
        Self::with(Modes::default(), answers(HeaderStyle::Triple(HeaderNames::ratelimit())))
    }

    async fn about(&self, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        let request = RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 };
        let answer =
            self.service.answer(&request, Patience::UNKNOWN, &mut Span::off()).await.expect("an answer");
        answer.places.inspect(Places::handed_over);
        answer.response
    }

    /// Asks `times` times for one hit on each key, and gives the last answer.
    async fn repeatedly(&self, times: usize, keys: &[&str]) -> RateLimitResponse {
        let mut answer = self.about(keys.iter().map(|key| descriptor(key, "x")).collect()).await;
        for _ in 1..times {
            answer = self.about(keys.iter().map(|key| descriptor(key, "x")).collect()).await;
        }
        answer
    }
}

const fn answers(headers: HeaderStyle) -> Answers {
    Answers { headers, problem_body: false, degraded_header: true, dynamic_metadata: true }
}

fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    let entry = Entry { key: key.into(), value: value.into() };
    RateLimitDescriptor { entries: vec![entry], ..Default::default() }
}

fn codes(answer: &RateLimitResponse) -> (wire::Code, Vec<wire::Code>) {
    (answer.overall_code(), answer.statuses.iter().map(wire::DescriptorStatus::code).collect())
}

fn header<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut headers = answer.response_headers_to_add.iter();
    headers.find(|header| header.key == name).map(|header| &*header.value)
}

#[tokio::test]
async fn a_status_tells_limit_remaining_and_reset() {
    let answer = Asked::plain().repeatedly(1, &["two"]).await;
    let status = &answer.statuses[0];
    let limit = status.current_limit.as_ref().expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit(), &*limit.name), (2, Unit::Hour, "two"));
    assert_eq!((limit.unit_multiplier, status.limit_remaining), (None, 1));
    // The hour ends in 1,899.5 s; whole seconds are rounded up.
    assert_eq!(status.duration_until_reset.expect("a reset").seconds, 1_900);
}

#[tokio::test]
async fn a_window_of_several_units_says_how_many() {
    let answer = Asked::plain().repeatedly(1, &["multiple"]).await;
    let limit = answer.statuses[0].current_limit.as_ref().expect("a limit");
    assert_eq!((limit.unit(), limit.unit_multiplier), (Unit::Minute, Some(5)));
}

#[tokio::test]
async fn one_descriptor_over_its_limit_denies_the_request_and_all_are_charged() {
    let asked = Asked::plain();
    assert_eq!(codes(&asked.repeatedly(2, &["two", "day"]).await), (OverLimit, vec![Ok, OverLimit]));
    assert_eq!(codes(&asked.repeatedly(1, &["two"]).await), (OverLimit, vec![OverLimit]));
}

#[tokio::test]
async fn what_no_rule_limits_passes_with_a_bare_status() {
    let asked = Asked::plain();
    let answer = asked.repeatedly(1, &["unknown", "free", "none"]).await;
    assert_eq!(codes(&answer), (OverLimit, vec![Ok, Ok, OverLimit]));
    assert_eq!(answer.statuses[0].limit_remaining, 0);
    assert_eq!(answer.statuses[1].limit_remaining, u32::MAX);
    assert!(answer.statuses[..2].iter().all(|status| status.current_limit.is_none()));
    let request =
        RateLimitRequest { domain: "e".into(), descriptors: vec![descriptor("none", "x")], hits_addend: 0 };
    let elsewhere = asked
        .service
        .answer(&request, Patience::UNKNOWN, &mut Span::off())
        .await
        .expect("an answer")
        .response;
    assert_eq!(codes(&elsewhere), (Ok, vec![Ok]));
    assert!(elsewhere.response_headers_to_add.is_empty());
}

#[tokio::test]
async fn shadow_mode_counts_and_lets_pass() {
    let answer = Asked::plain().repeatedly(3, &["shadow"]).await;
    assert_eq!(codes(&answer), (Ok, vec![Ok]));
    assert_eq!(answer.statuses[0].limit_remaining, 0);
    assert_eq!(header(&answer, "Retry-After"), None);
}

#[tokio::test]
async fn quotas_deny_when_the_last_of_them_is_exhausted() {
    let asked = Asked::plain();
    asked.repeatedly(1, &["quota"]).await;
    assert_eq!(codes(&asked.repeatedly(1, &["quota", "other_quota"]).await), (Ok, vec![OverLimit, Ok]));
    assert_eq!(
        codes(&asked.repeatedly(1, &["quota", "other_quota"]).await),
        (OverLimit, vec![OverLimit, OverLimit])
    );
    assert_eq!(codes(&asked.repeatedly(1, &["quota", "free"]).await).0, OverLimit);
}

#[tokio::test]
async fn the_modes_of_the_process_hold_for_every_rule() {
    let shadow = Asked::with(Modes { shadow: true, ..Modes::default() }, answers(HeaderStyle::Off));
    let answer = shadow.repeatedly(2, &["day"]).await;
    assert_eq!(codes(&answer), (Ok, vec![OverLimit]));
    assert_eq!(header(&answer, "Retry-After"), None);

    let quota = Asked::with(Modes { quota: true, ..Modes::default() }, answers(HeaderStyle::Off));
    quota.repeatedly(1, &["day"]).await;
    assert_eq!(codes(&quota.repeatedly(1, &["day", "unknown"]).await), (Ok, vec![OverLimit, Ok]));
    assert_eq!(codes(&quota.repeatedly(1, &["day", "free"]).await), (OverLimit, vec![OverLimit, Ok]));
    // Two exhausted quotas: the hour's ends first.
    quota.repeatedly(2, &["two"]).await;
    let both = quota.repeatedly(1, &["day", "two"]).await;
    assert_eq!((both.overall_code(), header(&both, "Retry-After")), (OverLimit, Some("1900")));
}

#[tokio::test]
async fn a_replaced_limit_is_neither_charged_nor_reported() {
    let asked = Asked::plain();
    let answer = asked.repeatedly(3, &["two", "better"]).await;
    assert_eq!(codes(&answer), (Ok, vec![Ok, Ok]));
    assert!(answer.statuses[0].current_limit.is_none());
    assert_eq!(asked.repeatedly(1, &["two"]).await.statuses[0].limit_remaining, 1);
    assert_eq!(codes(&asked.repeatedly(2, &["day", "generous"]).await).0, Ok);
}

#[tokio::test]
async fn a_limit_that_is_brought_along_counts_where_the_rule_does_if_the_window_is_the_same() {
    let asked = Asked::plain();
    let brought = |key, requests_per_unit, unit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit, unit_multiplier: None }),
        ..descriptor(key, "x")
    };
    asked.repeatedly(1, &["two"]).await;
    let hour = asked.about(vec![brought("two", 5, 3)]).await;
    assert_eq!(
        (hour.statuses[0].limit_remaining, hour.statuses[0].current_limit.as_ref().unwrap().name.as_str()),
        (3, "")
    );
    assert_eq!(asked.about(vec![brought("two", 5, 4)]).await.statuses[0].limit_remaining, 4);
    assert_eq!(asked.repeatedly(1, &["two"]).await.overall_code(), OverLimit);
    assert_eq!(asked.about(vec![brought("unknown", 1, 3)]).await.overall_code(), Ok);
    assert_eq!(asked.about(vec![brought("unknown", 1, 3)]).await.overall_code(), OverLimit);
    assert_eq!(asked.about(vec![brought("free", 0, 3)]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn values_of_a_pattern_share_a_counter_only_when_told_to() {
    let asked = Asked::plain();
    for (value, remaining) in [("f1", 1), ("f2", 0), ("g1", 1), ("g2", 1)] {
        let answer = asked.about(vec![descriptor("shared", value)]).await;
        assert_eq!(answer.statuses[0].limit_remaining, remaining, "{value}");
    }
}

#[tokio::test]
async fn a_key_that_reads_like_a_rules_key_and_value_has_a_counter_for_each_value() {
    let asked = Asked::plain();
    // The rule `key: stated, value: b` is found under `stated_b`, by either split of it and by the key alone.
    for (key, value, remaining) in [
        ("stated", "b", 1),
        ("stated", "b", 0),
        ("stated_b", "x", 1),
        ("stated_b", "y", 1),
        ("stated_b", "x", 0),
    ] {
        let answer = asked.about(vec![descriptor(key, value)]).await;
        assert_eq!(answer.statuses[0].limit_remaining, remaining, "{key}={value}");
    }
}

#[tokio::test]
async fn headers_tell_of_the_last_limit_that_denies_else_of_the_one_with_the_least_left() {
    let asked = Asked::plain();
    let answer = asked.repeatedly(1, &["two", "better", "multiple"]).await;
    assert_eq!(
        (header(&answer, "RateLimit-Limit"), header(&answer, "RateLimit-Remaining")),
        (Some("3"), Some("2"))
    );
    let denied = asked.repeatedly(1, &["none", "multiple"]).await;
    assert_eq!(
        (header(&denied, "RateLimit-Limit"), header(&denied, "RateLimit-Reset")),
        (Some("0"), Some("1900"))
    );
    assert_eq!(header(&denied, "Retry-After"), Some("1900"));
}

#[tokio::test]
async fn retry_after_is_when_the_slowest_of_the_denying_limits_lets_pass() {
    let asked = Asked::plain();
    let denied = asked.repeatedly(7, &["bucket"]).await;
    assert_eq!(
        (header(&denied, "Retry-After"), header(&denied, "RateLimit-Reset")),
        (Some("10"), Some("10"))
    );
    asked.clock.set(Timestamp::from_micros(NOW.as_micros() + 9_999_999));
    assert_eq!(header(&asked.repeatedly(1, &["bucket"]).await, "Retry-After"), Some("1"));
    let slower = asked.repeatedly(3, &["bucket", "two"]).await;
    assert_eq!(header(&slower, "Retry-After"), Some("1890"));
    // A limit of 0 never lets anything pass; the window stands for that.
    assert_eq!(header(&asked.repeatedly(1, &["banned"]).await, "Retry-After"), Some("60"));
}

#[tokio::test]
async fn ietf_headers_list_every_limit_once_and_quote_names() {
    let asked = Asked::with(Modes::default(), answers(HeaderStyle::Ietf));
    let answer = asked.repeatedly(1, &["two", "two", "multiple"]).await;
    assert_eq!(header(&answer, "RateLimit-Policy"), Some("\"two\";q=2;w=3600, \"multiple\";q=3;w=300"));
    assert_eq!(header(&answer, "RateLimit"), Some("\"two\";r=0;t=1900"));
}

#[tokio::test]
async fn metadata_tells_the_request_and_merges_what_passing_rules_say() {
    let asked = Asked::plain();
    let mut peek = descriptor("two", "x");
    peek.hits_addend = Some(0);
    let answer = asked.about(vec![descriptor("shadow", "x"), descriptor("better", "x"), peek]).await;
    let metadata = format!("{:?}", answer.dynamic_metadata.expect("metadata"));
    for part in
        ["StringValue(\"shadow=x\")", "StringValue(\"shadow\")", "\"b\": Value", "\"hitsAddend\": Value"]
    {
        assert!(metadata.contains(part), "no {part} in {metadata}");
    }
    assert!(!metadata.contains("StringValue(\"better\")"), "the first value of a key stays: {metadata}");
}
