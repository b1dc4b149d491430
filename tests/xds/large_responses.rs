//! Large responses.

use std::time::{Duration, Instant};

use tollgate::proto::ratelimit::config::ratelimit::v3::RateLimitDescriptor;

use super::{
    XdsInstance,
    control_plane::{ControlPlane, EVENT_TIMEOUT, config},
};

/// A domain with this many rules for values of a key.
fn many(
    count: usize,
    requests_per_unit: u32,
) -> tollgate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig {
    let mut all = config("web", "key", requests_per_unit);
    let one = all.descriptors.remove(0);
    let value = |number: usize| format!("value-{number}");
    let each = (0..count).map(|number| RateLimitDescriptor { value: value(number), ..one.clone() });
    all.descriptors = each.collect();
    all
}

#[tokio::test]
async fn fifty_thousand_rules_are_accepted_while_serving() {
    let plane = ControlPlane::start();
    plane.push("1", &[config("other", "key", 1_000_000)]);
    let instance = XdsInstance::start(&plane.url(), &[]);
    let mut client = instance.client().await;
    plane.wait_for_ack("1");

    let begun = Instant::now();
    plane.push("2", &[many(50_000, 0), config("other", "key", 1_000_000)]);
    let mut longest = Duration::ZERO;
    loop {
        let sent_at = Instant::now();
        assert!(client.passes("other", &[("key", "a")]).await);
        longest = longest.max(sent_at.elapsed());
        if !client.passes("web", &[("key", "value-49999")]).await {
            break;
        }
        assert!(begun.elapsed() < EVENT_TIMEOUT * 3, "what was pushed is not enforced");
    }
    println!(
        "50,000 rules were enforced {:?} after the push; meanwhile an answer took {longest:?} at most",
        begun.elapsed()
    );
    plane.wait_for_ack("2");
    assert_eq!(instance.metric("tollgate_rules"), 50_001.0);
}

#[tokio::test]
async fn a_message_above_the_size_limit_is_logged_and_the_rules_stay() {
    let plane = ControlPlane::start();
    plane.push("1", &[config("web", "key", 0)]);
    let flags = ["--xds-max-message-bytes", "10000", "--xds-backoff", "500ms,500ms,0.5"];
    let instance = XdsInstance::start(&plane.url(), &flags);
    let mut client = instance.client().await;
    plane.wait_for_ack("1");
    plane.push("2", &[many(1_000, 1_000)]);
    let log = instance.wait_for_log("--xds-max-message-bytes is 10000");
    assert!(log.contains("too large"), "{log}");
    assert!(!client.passes("web", &[("key", "a")]).await);
    assert!(instance.is_ready());
    plane.push("3", &[config("web", "key", 1_000)]);
    plane.wait_for_ack("3");
    assert!(client.passes("web", &[("key", "a")]).await);
}
