//! A control plane that is broken or hostile, and large responses.

use super::control_plane::{ControlPlane, Manner, config};
use super::*;

#[tokio::test]
async fn a_flood_of_new_rules_costs_little_and_the_last_ones_are_enforced() {
    const PUSHES: u32 = 3_000;
    let plane = ControlPlane::start_as(free_port(), Manner::Floods(PUSHES), None);
    let instance = XdsInstance::start(&plane.url(), &[]);
    plane.wait_for_ack(&PUSHES.to_string());
    let mut client = instance.client().await;
    // Each has a limit of its number, and the last one of 0.
    assert!(!client.passes("web", &[("key", "a")]).await);
    let loads = instance.metric("tollgate_config_loads_total{result=\"success\"}");
    assert!(loads < f64::from(PUSHES) / 10.0, "{loads}");
    assert!(instance.tollgate.logged("rules of the control plane active").len() <= 100);
}

#[test]
fn the_text_of_a_failing_control_plane_stays_on_its_log_line() {
    let plane = ControlPlane::start_as(free_port(), Manner::Fails("a\nERROR forged \u{1b}[31m"), None);
    let instance = XdsInstance::spawn(&plane.url(), &[]);
    let log = instance.wait_for_log("forged");
    assert!(log.contains("a\\nERROR forged \\u{1b}[31m"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("ERROR")), "{log}");
    assert!(!log.contains('\u{1b}'));
}

#[test]
fn a_push_without_most_of_the_rules_is_a_warning() {
    let plane = ControlPlane::start();
    let rules = |domains: usize| -> Vec<RateLimitConfig> {
        (0..domains).map(|number| config(&format!("d{number}"), "key", 5)).collect()
    };
    plane.push("all", &rules(10));
    let instance = XdsInstance::start(&plane.url(), &[]);
    plane.push_accepted("few", &rules(2));
    let log = instance.wait_for_log("control plane removed most rules");
    assert!(log.contains("rules=2 before=10"), "{log}");
}

#[test]
fn a_response_with_an_enormous_version_is_refused() {
    let plane = ControlPlane::start();
    plane.push(&"v".repeat(1 << 20), &[config("web", "key", 5)]);
    let instance = XdsInstance::spawn(&plane.url(), &[]);
    instance.wait_for_log("a response whose version or nonce is longer than 4096 bytes");
    plane.push_accepted("good", &[config("web", "key", 5)]);
}

/// A domain with this many rules for values of a key.
fn many(count: usize, requests_per_unit: u32) -> RateLimitConfig {
    let mut all = config("web", "key", requests_per_unit);
    let one = all.descriptors.remove(0);
    let value = |number: usize| format!("value-{number}");
    let each = (0..count).map(|number| RateLimitDescriptor { value: value(number), ..one.clone() });
    all.descriptors = each.collect();
    all
}

#[tokio::test]
async fn fifty_thousand_rules_are_accepted_while_serving() {
    let (plane, instance) = XdsInstance::with_rules(&[config("other", "key", 1_000_000)], &[]);
    let mut client = instance.client().await;

    plane.push("2", &[many(50_000, 0), config("other", "key", 1_000_000)]);
    let mut longest = Duration::ZERO;
    let took = until("what was pushed is not enforced", async || {
        let sent_at = Instant::now();
        assert!(client.passes("other", &[("key", "a")]).await);
        longest = longest.max(sent_at.elapsed());
        !client.passes("web", &[("key", "value-49999")]).await
    });
    let took = took.await;
    println!("50,000 rules were enforced {took:?} after the push; an answer took {longest:?} at most");
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
    plane.push_accepted("3", &[config("web", "key", 1_000)]);
    assert!(client.passes("web", &[("key", "a")]).await);
}
