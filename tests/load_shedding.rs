//! Load shedding by instances that share a Redis, and without one.

use crate::support::prelude::*;

const RULES: &str = "domain: shop\ndescriptors:\n- {key: service, value: cart, load_shedding: {target: 80%, half_life: 1s}}\n";

const LOW: &[(&str, &str)] = &[("service", "cart"), ("priority", "low")];
const CRITICAL: &[(&str, &str)] = &[("service", "cart"), ("priority", "critical")];

/// Reports a utilization to an instance, as a service without Envoy does.
fn report(tollgate: &Tollgate) {
    assert_eq!(tollgate.hit("shop", &[("service", "cart"), ("utilization", "97%")]).status, 200);
}

/// The state of the rule, as the admin API shows it.
fn state(tollgate: &Tollgate) -> Value {
    let rules = tollgate.api("/rules");
    rules["rules"][0]["shedding"].clone()
}

async fn call(client: &mut Client, entries: &[(&str, &str)]) -> RateLimitResponse {
    client.call(request("shop", &[entries])).await.expect("an answer")
}

#[tokio::test]
async fn instances_shed_by_the_reports_to_all_of_them_and_without_redis_by_their_own() {
    let config = rules(RULES);
    let redis = Redis::start();
    let url = redis.url();
    let arguments = ["--store", &url, "--store-timeout", "2s", "--problem-body"];
    let reported = Tollgate::start(config.path(), &arguments);
    let other = Tollgate::start(config.path(), &arguments);
    let mut client = other.client().await;
    let mut shed = None;
    until("it does not come about", async || {
        report(&reported);
        let answer = call(&mut client, LOW).await;
        shed = (answer.overall_code() == Code::OverLimit).then_some(answer);
        shed.is_some()
    })
    .await;
    assert_shed(&shed.expect("it was"));
    assert_eq!(call(&mut client, CRITICAL).await.overall_code(), Code::Ok);
    let shared = state(&other);
    assert_eq!(shared["is_shared"], true, "{shared}");
    assert!(shared["utilization"].as_f64().is_some_and(|known| (known - 0.97).abs() < 1e-6), "{shared}");
    assert!(shared["priorities"][3]["shed"].as_u64() >= Some(1), "{shared}");

    drop(redis);
    until("it does not come about", async || {
        report(&reported);
        let own = state(&reported);
        own["is_shared"] == false && own["utilization"].as_f64().is_some_and(|known| known > 0.9)
    })
    .await;
}

fn assert_shed(answer: &RateLimitResponse) {
    let header = |name: &str| {
        let named = answer.response_headers_to_add.iter().find(|header| header.key == name);
        named.map(|header| header.value.as_str())
    };
    assert_eq!(header("x-ratelimit-policy"), Some("shed"));
    let retry_after: u64 = header("Retry-After").expect("is set").parse().expect("a number");
    assert!((1..=5).contains(&retry_after));
    let reset = answer.statuses[0].duration_until_reset.as_ref().expect("a time");
    assert_eq!(u64::try_from(reset.seconds), Ok(retry_after));
    let body: Value = serde_json::from_slice(&answer.raw_body).expect("JSON");
    assert!(
        body["detail"].as_str().is_some_and(|detail| detail.starts_with("The service is busy; retry in ")),
        "{body}"
    );
    let metadata = format!("{:?}", answer.dynamic_metadata.as_ref().expect("metadata").fields["shed"]);
    assert!(metadata.contains("service_cart") && metadata.contains("low"), "{metadata}");
}

#[test]
fn explain_shows_priorities_and_reports_of_a_rule_that_sheds() {
    let config = rules(RULES);
    let explain = |descriptor: &str| {
        let path = config.path().display().to_string();
        let arguments = ["explain", "--config", &path, "--domain", "shop", descriptor];
        ended(command().args(arguments)).stdout
    };
    let limit =
        "limit    load shedding, target 80%, half_life 1s, floor 1%, stale_after 10s, priority_key priority";
    for (descriptor, note) in [
        ("service=cart,priority=low", "states the priority low"),
        ("service=cart,priority=urgent", "states the priority default"),
        ("service=cart,utilization=0.835", "reports a utilization of 83.50%: never denied"),
        ("service=cart,utilization=full", "would report a utilization, but is invalid: expected a number"),
    ] {
        let explained = explain(descriptor);
        assert!(explained.contains(note) && explained.contains(limit), "{explained}");
    }
    assert!(explain("service=cart").contains("=> rule shop.service_cart (rules.yaml:3)"));
}
