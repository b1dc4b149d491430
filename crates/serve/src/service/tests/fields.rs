//! Whole responses, written out by the names of their fields.

use prost_types::{Duration as Time, ListValue, Struct, Value, value::Kind};
use serde_json::json;
use tollgate_control::SwitchMode;
use tollgate_limiter::{Fallback, Replicas};
use tollgate_proto::envoy::config::core::v3::HeaderValue;
use tollgate_rules::OnStoreError;
use tollgate_shedding::{PassRates, SheddingState};

use super::bans::{BANNING, call_each_second};
use super::{leases, lists::switch, *};

fn plain(headers: HeaderStyle) -> ResponseOptions {
    ResponseOptions { dynamic_metadata: false, ..options(headers) }
}

fn headers_to_add(headers: &[(&str, &str)]) -> Vec<HeaderValue> {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).into(),
        value: (*value).into(),
        raw_value: Vec::new(),
    };
    headers.iter().map(header).collect()
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}

fn structure<const N: usize>(content: [(&str, Value); N]) -> Value {
    Value { kind: Some(Kind::StructValue(fields(content))) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn number(number: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(number)) }
}

const fn seconds(seconds: i64) -> Option<Time> {
    Some(Time { seconds, nanos: 0 })
}

#[tokio::test]
async fn a_limit_of_several_units_beside_descriptors_without_a_limit() {
    let service = TestService::with(Modes::default(), plain(HeaderStyle::XRatelimit));
    let expected = RateLimitResponse {
        overall_code: Ok.into(),
        statuses: vec![
            wire::DescriptorStatus {
                code: Ok.into(),
                current_limit: Some(wire::RateLimit {
                    requests_per_unit: 3,
                    unit: Unit::Minute.into(),
                    name: String::new(),
                    unit_multiplier: Some(5),
                }),
                limit_remaining: 2,
                duration_until_reset: seconds(100),
            },
            wire::DescriptorStatus {
                code: Ok.into(),
                current_limit: None,
                limit_remaining: u32::MAX,
                duration_until_reset: None,
            },
            wire::DescriptorStatus {
                code: Ok.into(),
                current_limit: None,
                limit_remaining: 0,
                duration_until_reset: None,
            },
        ],
        response_headers_to_add: headers_to_add(&[
            ("X-RateLimit-Limit", "3"),
            ("X-RateLimit-Remaining", "2"),
            ("X-RateLimit-Reset", "100"),
        ]),
        request_headers_to_add: Vec::new(),
        raw_body: Vec::new(),
        dynamic_metadata: None,
    };
    assert_eq!(service.call_times(1, &["multiple", "free", "unknown"]).await, expected);
}

#[tokio::test]
async fn permits_have_no_unit_and_name_their_lease() {
    let service = TestService::with_rules(leases::RULES, Modes::default(), plain(HeaderStyle::Off));
    let answer = service.answer("d", vec![descriptor("user", "x")]).await;
    let lease = answer.permits.as_ref().expect("permits").lease().to_string();
    let expected = RateLimitResponse {
        overall_code: Ok.into(),
        statuses: vec![wire::DescriptorStatus {
            code: Ok.into(),
            current_limit: Some(wire::RateLimit {
                requests_per_unit: 2,
                unit: Unit::Unknown.into(),
                name: String::new(),
                unit_multiplier: None,
            }),
            limit_remaining: 1,
            duration_until_reset: seconds(60),
        }],
        response_headers_to_add: Vec::new(),
        request_headers_to_add: Vec::new(),
        raw_body: Vec::new(),
        dynamic_metadata: Some(fields([("lease", text(&lease))])),
    };
    assert_eq!(answer.message(), Result::Ok(expected));
}

#[tokio::test]
async fn a_ban_has_headers_a_body_and_names_what_decided() {
    let options = ResponseOptions {
        problem_body: true,
        decision_metadata: NamedDecisions::Denials,
        ..plain(HeaderStyle::Ietf)
    };
    let service = TestService::with_rules(BANNING, Modes::default(), options);
    let body = json!({
        "title": "Too many requests",
        "status": 429,
        "retry_after": 90,
        "type": "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        "detail": "Banned for repeated requests over the rate limit of 1 request per hour; retry in 90 seconds.",
        "reset_at": 1_700_000_993,
        "violated-policies": [{"name": "client", "limit": 1, "window": 3600}],
    });
    let expected = RateLimitResponse {
        overall_code: OverLimit.into(),
        statuses: vec![wire::DescriptorStatus {
            code: OverLimit.into(),
            current_limit: Some(wire::RateLimit {
                requests_per_unit: 1,
                unit: Unit::Hour.into(),
                name: String::new(),
                unit_multiplier: None,
            }),
            limit_remaining: 0,
            duration_until_reset: seconds(90),
        }],
        response_headers_to_add: headers_to_add(&[
            ("RateLimit-Policy", "\"client\";q=1;w=3600"),
            ("RateLimit", "\"client\";r=0;t=90"),
            ("Retry-After", "90"),
            ("x-ratelimit-policy", "banned"),
            ("Content-Type", "application/problem+json"),
        ]),
        request_headers_to_add: Vec::new(),
        raw_body: body.to_string().into(),
        dynamic_metadata: Some(fields([
            (
                "ban",
                structure([
                    ("level", number(1.0)),
                    ("mode", text("enforce")),
                    ("until", number(1_700_000_993.0)),
                ]),
            ),
            (
                "decision",
                structure([
                    ("code", text("OVER_LIMIT")),
                    ("key", text("client=x")),
                    ("policy", text("ban")),
                    ("remaining", number(0.0)),
                    ("rule", text("client")),
                ]),
            ),
        ])),
    };
    assert_eq!(call_each_second(&service, &["client"], 4).await, expected);
}

#[tokio::test]
async fn a_decision_without_the_store_states_the_policy() {
    let mut service = TestService::with(Modes::default(), plain(HeaderStyle::Off));
    let local = MemoryStore::new(1_000, service.clock.clone());
    service.inner.limiter.fallback = Some(Fallback::new(OnStoreError::Local, local, Replicas::default()));
    service.set_lists(vec![], vec![switch("*", SwitchMode::Emergency)]);
    let expected = RateLimitResponse {
        overall_code: Ok.into(),
        statuses: vec![wire::DescriptorStatus {
            code: Ok.into(),
            current_limit: Some(wire::RateLimit {
                requests_per_unit: 2,
                unit: Unit::Hour.into(),
                name: "two".into(),
                unit_multiplier: None,
            }),
            limit_remaining: 1,
            duration_until_reset: seconds(1_900),
        }],
        response_headers_to_add: headers_to_add(&[("x-ratelimit-policy", "degraded")]),
        request_headers_to_add: Vec::new(),
        raw_body: Vec::new(),
        dynamic_metadata: Some(fields([(
            "degraded",
            structure([("policy", text("local")), ("reason", text("emergency"))]),
        )])),
    };
    assert_eq!(service.call_times(1, &["two"]).await, expected);
}

#[tokio::test]
async fn a_request_that_is_shed_names_its_rule_and_priority() {
    let rules = "
domain: d
descriptors:
- {key: service, value: x, load_shedding: {target: 80%}}
- {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
";
    let service = TestService::with_rules(rules, Modes::default(), plain(HeaderStyle::Off));
    let active = service.rules.load().expect("rules");
    let entries = [tollgate_core::descriptor::Entry { key: "service", value: "x" }];
    let rule = active.domain("d").expect("stated").root.rule(&entries).expect("stated");
    let rates = PassRates::of(0.0, [0.0, 0.0, 1.0, 0.0], 0.0);
    rule.shedding.as_ref().expect("sheds").gate().set(SheddingState { rates, ..SheddingState::default() });
    let response = service.call_times(1, &["service", "user"]).await;
    // Drawn at random.
    let retry_after = response.statuses[0].duration_until_reset.expect("a time").seconds;
    assert!((1..=5).contains(&retry_after), "{retry_after}");
    let expected = RateLimitResponse {
        overall_code: OverLimit.into(),
        statuses: vec![
            wire::DescriptorStatus {
                code: OverLimit.into(),
                current_limit: None,
                limit_remaining: 0,
                duration_until_reset: seconds(retry_after),
            },
            wire::DescriptorStatus {
                code: Ok.into(),
                current_limit: None,
                limit_remaining: 0,
                duration_until_reset: None,
            },
        ],
        response_headers_to_add: headers_to_add(&[
            ("Retry-After", &retry_after.to_string()),
            ("x-ratelimit-policy", "shed"),
        ]),
        request_headers_to_add: Vec::new(),
        raw_body: Vec::new(),
        dynamic_metadata: Some(fields([(
            "shed",
            structure([("priority", text("default")), ("rule", text("service_x"))]),
        )])),
    };
    assert_eq!(response, expected);
}

#[tokio::test]
async fn metadata_may_describe_the_request_and_its_rules() {
    let options = ResponseOptions { decision_metadata: NamedDecisions::All, ..options(HeaderStyle::Off) };
    let service = TestService::with(Modes::default(), options);
    let better = RateLimitDescriptor { hits_addend: Some(2), ..overriding(4, descriptor("better", "x")) };
    let request = RateLimitRequest {
        domain: "d".into(),
        descriptors: vec![descriptor("shadow", "y"), better],
        hits_addend: 1,
    };
    let answer = service.inner.respond(&request, Deadline::UNKNOWN, &mut Span::off()).await;
    let current_limit = |requests_per_unit| {
        Some(wire::RateLimit {
            requests_per_unit,
            unit: Unit::Hour.into(),
            name: String::new(),
            unit_multiplier: None,
        })
    };
    let expected = RateLimitResponse {
        overall_code: Ok.into(),
        statuses: vec![
            wire::DescriptorStatus {
                code: Ok.into(),
                current_limit: current_limit(1),
                limit_remaining: 0,
                duration_until_reset: seconds(1_900),
            },
            wire::DescriptorStatus {
                code: Ok.into(),
                current_limit: current_limit(4),
                limit_remaining: 2,
                duration_until_reset: seconds(1_900),
            },
        ],
        response_headers_to_add: Vec::new(),
        request_headers_to_add: Vec::new(),
        raw_body: Vec::new(),
        dynamic_metadata: Some(fields([
            (
                "decision",
                structure([
                    ("code", text("OK")),
                    ("key", text("shadow=y")),
                    ("policy", text("enforced")),
                    ("remaining", number(0.0)),
                    ("rule", text("shadow")),
                ]),
            ),
            ("domain", text("d")),
            (
                "descriptors",
                list(vec![
                    structure([("entries", list(vec![text("shadow=y")]))]),
                    structure([
                        ("entries", list(vec![text("better=x")])),
                        ("limit", text("requests_per_unit:4 unit:HOUR")),
                        ("hitsAddend", number(2.0)),
                    ]),
                ]),
            ),
            ("hitsAddend", number(1.0)),
            // YAML 1.1 reads the key `n` as false.
            ("metadata", structure([("from", text("shadow")), ("false", structure([("a", number(1.0))]))])),
        ])),
    };
    assert_eq!(answer.expect("a response").message(), Result::Ok(expected));
}
