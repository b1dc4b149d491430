//! Startup before there are rules or a control plane, and times without one.

use std::net::TcpListener;

use super::control_plane::{ControlPlane, Manner, config};
use super::*;
use crate::support::proxy::{Proxy, Way};

#[test]
fn ports_open_once_there_are_rules() {
    let port = free_port();
    let instance = XdsInstance::spawn(&format!("http://127.0.0.1:{port}"), &BACKOFF);
    let log = instance.wait_for_log("control plane unreachable");
    let waiting = log.lines().find(|line| line.contains("waiting for rules before opening ports"));
    assert!(waiting.is_some_and(|line| line.contains(&format!("http://127.0.0.1:{port}/"))), "{log}");
    assert!(http::try_get(&instance.tollgate.url("/healthcheck")).is_none());

    let plane = ControlPlane::start_as(port, Manner::Serves, None);
    plane.push("bad", &[config("", "key", 0)]);
    plane.wait_for_nack("domain: is missing or empty");
    assert!(http::try_get(&instance.tollgate.url("/healthcheck")).is_none());
    plane.push("good", &[config("web", "key", 0)]);
    instance.tollgate.wait_until_ready();
}

#[test]
fn a_start_that_waits_for_rules_can_be_ended() {
    let mut instance = XdsInstance::spawn(&format!("http://127.0.0.1:{}", free_port()), &[]);
    instance.wait_for_log("control plane unreachable");
    instance.tollgate.signal("TERM");
    assert_eq!(instance.tollgate.wait(), Some(0));
}

#[tokio::test]
async fn ports_that_open_without_rules_are_ready_once_there_are_some() {
    let port = free_port();
    let flags =
        ["--start-without-rules", "--xds-backoff", "500ms,500ms,0.5", "--xds-initial-fetch-timeout", "60s"];
    let instance = XdsInstance::spawn(&format!("http://127.0.0.1:{port}"), &flags);
    let rules = find("an answer", || http::try_get(&instance.tollgate.admin_url("/api/v1/status")));
    assert_eq!(rules.status, 200);
    instance.wait_for_rules(|rules| !rules["control_plane"]["problem"].is_null());
    assert!(!instance.is_ready());
    let refused = instance.client().await.call(request("web", &[&[("key", "a")]])).await;
    assert_eq!(refused.expect_err("no rules").code(), tonic::Code::Unavailable);

    let plane = ControlPlane::start_as(port, Manner::Serves, None);
    instance.wait_for_log("control plane unreachable");
    plane.wait_for(|_| true);
    assert!(!instance.is_ready(), "the control plane may have some");
    plane.push("1", &[config("web", "key", 0)]);
    instance.tollgate.wait_until_ready();
    assert!(!instance.client().await.passes("web", &[("key", "a")]).await);
}

#[tokio::test]
async fn a_control_plane_that_sends_nothing_has_no_rules() {
    let plane = ControlPlane::start();
    let begun = Instant::now();
    let patience = Duration::from_secs(1);
    let instance =
        XdsInstance::start(&plane.url(), &["--start-without-rules", "--xds-initial-fetch-timeout", "1s"]);
    assert!(begun.elapsed() >= patience);
    instance.wait_for_log("control plane sent no rules for this node");
    assert_eq!(instance.rules()["control_plane"]["link"], "connected");
    assert_eq!(instance.metric("tollgate_xds_connected"), 1.0);
    let request = request("web", &[&[("key", "a")]]);
    let refused = instance.client().await.call(request).await.expect_err("no rules");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    plane.push_accepted("1", &[config("web", "key", 0)]);
    assert_eq!(instance.metric("tollgate_rules"), 1.0);
}

#[test]
fn a_hanging_control_plane_differs_from_one_without_rules() {
    // The kernel accepts connections, but no process does.
    let hanging = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("http://{}", hanging.local_addr().expect("an address"));
    let flags =
        ["--start-without-rules", "--xds-initial-fetch-timeout", "500ms", "--xds-backoff", "500ms,500ms,0.5"];
    let instance = XdsInstance::spawn(&url, &flags);
    instance.wait_for_log("connected, but no response within 0.5 s");
    assert!(!instance.is_ready());
    assert_eq!(instance.rules()["control_plane"]["link"], "connecting");
    assert_eq!(instance.metric("tollgate_xds_connected"), 0.0);
    assert!(!instance.log().contains("control plane sent no rules"), "{}", instance.log());
}

#[test]
fn a_control_plane_with_rejected_rules_has_rules_even_if_silent_later() {
    let plane = ControlPlane::start();
    let port = plane.port;
    plane.push("bad", &[config("", "key", 0)]);
    let flags =
        ["--start-without-rules", "--xds-initial-fetch-timeout", "500ms", "--xds-backoff", "500ms,500ms,0.5"];
    let instance = XdsInstance::spawn(&plane.url(), &flags);
    plane.wait_for_nack("domain: is missing or empty");
    drop(plane);
    instance.wait_for_log("control plane unreachable");
    let _silent = ControlPlane::start_as(port, Manner::Serves, None);
    instance.wait_for_rules(|rules| rules["control_plane"]["link"] == "connected");
    assert!(
        !instance.is_ready() && !instance.log().contains("control plane sent no rules"),
        "{}",
        instance.log()
    );
}

#[tokio::test]
async fn rules_stay_while_the_control_plane_is_down_and_changes_apply_once_it_recovers() {
    let plane = ControlPlane::start();
    let port = plane.port;
    plane.push("7", &[config("web", "key", 0)]);
    let instance = XdsInstance::start(&plane.url(), &BACKOFF);
    let mut client = instance.client().await;
    plane.wait_for_ack("7");
    drop(plane);

    let rules = instance.wait_for_rules(|rules| !rules["control_plane"]["problem"].is_null());
    assert_eq!(rules["control_plane"]["link"], "connecting", "{rules}");
    assert!(rules["problem"].is_null(), "{rules}");
    assert_eq!(instance.metric("tollgate_xds_connected"), 0.0);
    // Several attempts, of which the log is not to be full.
    instance.wait_for_log("Connection refused");
    sleep(Duration::from_secs(2)).await;
    assert!(!client.passes("web", &[("key", "a")]).await);
    assert!(instance.is_ready());
    let found = instance.log().matches("control plane unreachable").count();
    assert!((1..=3).contains(&found), "the loss, and failed reconnects: {}", instance.log());

    // Its versions begin anew.
    let plane = ControlPlane::start_as(port, Manner::Serves, None);
    plane.push("1", &[config("web", "key", 1_000)]);
    let opening = plane.wait_for(|_| true);
    assert_eq!((&*opening.version_info, &*opening.response_nonce), ("", ""));
    assert!(opening.node.is_some());
    plane.wait_for_ack("1");
    assert!(client.passes("web", &[("key", "a")]).await);
    instance.wait_for_rules(|rules| rules["control_plane"]["link"] == "connected");
    assert_eq!(instance.metric("tollgate_xds_connected"), 1.0);
    instance.wait_for_log("control plane connected");
}

#[tokio::test]
async fn different_rules_under_a_known_version_are_adopted_after_an_outage() {
    let (plane, instance) = XdsInstance::with_rules(&[config("web", "key", 0)], &BACKOFF);
    let port = plane.port;
    let mut client = instance.client().await;
    assert!(!client.passes("web", &[("key", "a")]).await);
    drop(plane);

    let plane = ControlPlane::start_as(port, Manner::Serves, None);
    plane.push_accepted("1", &[config("web", "key", 1_000)]);
    assert!(client.passes("web", &[("key", "a")]).await);
}

#[test]
fn unchanged_rules_stay_active_after_an_outage() {
    let (plane, instance) = XdsInstance::with_rules(&[config("web", "key", 5)], &BACKOFF);
    let port = plane.port;
    let before = instance.rules();
    drop(plane);
    instance.wait_for_rules(|rules| rules["control_plane"]["link"] == "connecting");
    let plane = ControlPlane::start_as(port, Manner::Serves, None);
    plane.push_accepted("1", &[config("web", "key", 5)]);
    let after = instance.rules();
    assert_eq!(after["since_ms"], before["since_ms"]);
    assert_eq!(instance.metric("tollgate_config_loads_total{result=\"success\"}"), 1.0);
}

#[test]
fn a_control_plane_that_ends_each_stream_is_not_flooded() {
    let plane = ControlPlane::start_as(free_port(), Manner::Closes, None);
    let instance = XdsInstance::spawn(&plane.url(), &["--start-without-rules"]);
    instance.wait_for_log("ended the stream");
    thread::sleep(Duration::from_secs(4));
    // After 0.25 to 0.5 s, 0.5 to 1 s, and so on.
    let streams = plane.headers().len();
    assert!((3..=7).contains(&streams), "{streams} in four seconds");
    assert!(!instance.is_ready());
    assert_eq!(instance.log().matches("control plane unreachable").count(), 1, "{}", instance.log());
}

#[test]
fn a_silently_lost_control_plane_is_noticed() {
    let plane = ControlPlane::start();
    plane.push("1", &[config("web", "key", 5)]);
    let proxy = Proxy::to(plane.port);
    let flags = ["--xds-keepalive", "1s", "--xds-backoff", "500ms,500ms,0.5"];
    let instance = XdsInstance::start(&format!("http://127.0.0.1:{}", proxy.port()), &flags);
    plane.wait_for_ack("1");
    proxy.set_both(Way::Silent);
    instance.wait_for_rules(|rules| rules["control_plane"]["link"] == "connecting");
    proxy.set_both(Way::Open);
    instance.wait_for_rules(|rules| rules["control_plane"]["link"] == "connected");
}
