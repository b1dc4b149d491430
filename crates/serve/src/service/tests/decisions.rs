//! Metadata that names the rule or list that decided.

use prost::Message as _;
use prost_types::{Struct, value::Kind};
use tollgate_control::SwitchMode;
use tollgate_limiter::{Fallback, Replicas};
use tollgate_rules::OnStoreError;

use super::lists::{allow, deny, switch};
use super::{bans::BANNING, *};

fn naming(which: NamedDecisions) -> ResponseOptions {
    ResponseOptions { dynamic_metadata: false, decision_metadata: which, ..options(HeaderStyle::Off) }
}

fn service(which: NamedDecisions) -> TestService {
    TestService::with(Modes::default(), naming(which))
}

/// The metadata as `name=value`, joined by spaces; empty without metadata.
fn named(response: &RateLimitResponse) -> String {
    let decision = response.dynamic_metadata.as_ref().and_then(|metadata| metadata.fields.get("decision"));
    let Some(Kind::StructValue(Struct { fields })) = decision.and_then(|value| value.kind.as_ref()) else {
        return String::new();
    };
    let shown = fields.iter().map(|(name, value)| match &value.kind {
        Some(Kind::StringValue(text)) => format!("{name}={text}"),
        Some(Kind::NumberValue(number)) => format!("{name}={number}"),
        other => panic!("{other:?}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_denial_names_the_rule_its_key_and_the_policy() {
    let service = service(NamedDecisions::Denials);
    assert_eq!(named(&service.call_times(2, &["two"]).await), "");
    let denied = "code=OVER_LIMIT key=two=x policy=enforced remaining=0 rule=two";
    assert_eq!(named(&service.call_times(1, &["two"]).await), denied);
    assert_eq!(named(&service.call_times(1, &["two", "bucket"]).await), denied);
    assert_eq!(named(&service.call_times(1, &["bucket", "two", "unknown"]).await), denied);
    let without_name = "code=OVER_LIMIT key=none=x policy=enforced remaining=0 rule=none";
    assert_eq!(named(&service.call_times(1, &["none"]).await), without_name);
}

#[tokio::test]
async fn a_counter_that_all_requests_share_has_no_key() {
    let service = service(NamedDecisions::All);
    let call = |value| service.call(vec![descriptor("stated", value)]);
    assert_eq!(named(&call("b").await), "code=OK policy=enforced remaining=1 rule=stated_b");
}

#[tokio::test]
async fn all_answers_name_the_rule_with_the_least_remaining() {
    let service = service(NamedDecisions::All);
    let passing = "code=OK key=two=x policy=enforced remaining=1 rule=two";
    assert_eq!(named(&service.call_times(1, &["bucket", "two", "better_not"]).await), passing);
    assert_eq!(named(&service.call_times(1, &["free"]).await), "");
    assert_eq!(named(&service.call_times(1, &["unknown"]).await), "");
}

#[tokio::test]
async fn a_denial_in_shadow_mode_is_named_as_such() {
    for (modes, key) in [(Modes::default(), "shadow"), (Modes { shadow: true, ..Modes::default() }, "day")] {
        let service = TestService::with(modes, naming(NamedDecisions::Denials));
        assert_eq!(named(&service.call_times(1, &[key]).await), "");
        let over = format!("code=OK key={key}=x policy=shadow remaining=0 rule={key}");
        assert_eq!(named(&service.call_times(1, &[key, "two"]).await), over);
    }
}

#[tokio::test]
async fn an_exhausted_quota_is_named_when_it_denies() {
    let service = service(NamedDecisions::Denials);
    assert_eq!(named(&service.call_times(1, &["quota", "other_quota"]).await), "");
    let denied = "code=OVER_LIMIT key=quota=x policy=enforced remaining=0 rule=quota";
    assert_eq!(named(&service.call_times(1, &["quota"]).await), denied);
    let passing = service.call(vec![descriptor("quota", "x"), descriptor("other_quota", "y")]).await;
    assert_eq!((codes(&passing).0, named(&passing)), (Ok, String::new()));
}

#[tokio::test]
async fn a_ban_a_list_and_a_limit_override_are_named() {
    let service = TestService::with_rules(BANNING, Modes::default(), naming(NamedDecisions::Denials));
    let mut denied = service.call_times(1, &["client"]).await;
    for _ in 0..20 {
        service.clock.set(service.clock.now().plus(Duration::from_secs(1)));
        denied = service.call_times(9, &["client"]).await;
    }
    assert!(named(&denied).contains("policy=ban"), "{}", named(&denied));

    let service = self::service(NamedDecisions::All);
    // Another window than the rule's, hence a counter of its own.
    let mut overridden = overriding(0, descriptor("two", "x"));
    overridden.limit.as_mut().expect("stated").unit = Unit::Second.into();
    let denied = service.call(vec![overridden]).await;
    assert_eq!(named(&denied), "code=OVER_LIMIT key=two=x policy=request remaining=0 rule=(request)");

    service.set_lists(vec![deny(&[("two", "x")])], vec![]);
    assert_eq!(named(&service.call_times(1, &["two"]).await), "code=OVER_LIMIT policy=list rule=deny");
    service.set_lists(vec![allow(&[("two", "x")])], vec![]);
    assert_eq!(named(&service.call_times(1, &["two"]).await), "code=OK policy=list rule=allow");
}

#[tokio::test]
async fn a_decision_without_the_store_is_named_as_such() {
    let mut service = service(NamedDecisions::Denials);
    let local = || MemoryStore::new(1_000, service.clock.clone());
    let fallback = Some(Fallback::new(OnStoreError::Local, local(), Replicas::default()));
    let limiter = Limiter::new(Arc::clone(&service.rules), Store::new(local()), Modes::default());
    let limiter = Limiter { fallback, clock: service.clock.clone(), ..limiter };
    service.inner = Service::new(limiter, naming(NamedDecisions::Denials));
    service.set_lists(vec![], vec![switch("*", SwitchMode::Emergency)]);
    let denied = "code=OVER_LIMIT key=two=x policy=degraded remaining=0 rule=two";
    assert_eq!(named(&service.call_times(3, &["two"]).await), denied);
}

#[tokio::test]
async fn texts_of_a_request_are_bounded_and_may_be_left_out() {
    let service = service(NamedDecisions::Denials);
    let long = "é".repeat(70_000 / 2);
    let response = service.call(vec![descriptor("none", &long)]).await;
    let metadata = response.dynamic_metadata.expect("names the rule");
    assert!(metadata.encoded_len() < 300, "{}", metadata.encoded_len());
    let options = naming(NamedDecisions::DenialsWithoutKey);
    let response = TestService::with(Modes::default(), options).call_times(1, &["none"]).await;
    assert_eq!(named(&response), "code=OVER_LIMIT policy=enforced remaining=0 rule=none");
}
