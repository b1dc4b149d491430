//! Times without a control plane.

use std::time::Duration;

use super::{
    XdsInstance,
    control_plane::{ControlPlane, Manner, config},
};
use crate::support::{
    free_port,
    proxy::{Proxy, Way},
};

#[tokio::test]
async fn rules_stay_while_the_control_plane_is_down_and_changes_apply_once_it_recovers() {
    let plane = ControlPlane::start();
    let port = plane.port;
    plane.push("7", &[config("web", "key", 0)]);
    let instance = XdsInstance::start(&plane.url(), &["--xds-backoff", "500ms,500ms,0.5"]);
    let mut client = instance.client().await;
    plane.wait_for_ack("7");
    drop(plane);

    let rules = instance.wait_for_rules(|rules| !rules["control_plane"]["problem"].is_null());
    assert_eq!(rules["control_plane"]["link"], "connecting", "{rules}");
    assert!(rules["problem"].is_null(), "{rules}");
    assert_eq!(instance.metric("tollgate_xds_connected"), 0.0);
    // Several attempts, of which the log is not to be full.
    instance.wait_for_log("Connection refused");
    tokio::time::sleep(Duration::from_secs(2)).await;
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
    let plane = ControlPlane::start();
    let port = plane.port;
    plane.push("1", &[config("web", "key", 0)]);
    let instance = XdsInstance::start(&plane.url(), &["--xds-backoff", "500ms,500ms,0.5"]);
    let mut client = instance.client().await;
    plane.wait_for_ack("1");
    assert!(!client.passes("web", &[("key", "a")]).await);
    drop(plane);

    let plane = ControlPlane::start_as(port, Manner::Serves, None);
    plane.push("1", &[config("web", "key", 1_000)]);
    plane.wait_for_ack("1");
    assert!(client.passes("web", &[("key", "a")]).await);
}

#[test]
fn unchanged_rules_stay_active_after_an_outage() {
    let plane = ControlPlane::start();
    let port = plane.port;
    plane.push("1", &[config("web", "key", 5)]);
    let instance = XdsInstance::start(&plane.url(), &["--xds-backoff", "500ms,500ms,0.5"]);
    plane.wait_for_ack("1");
    let before = instance.rules();
    drop(plane);
    instance.wait_for_rules(|rules| rules["control_plane"]["link"] == "connecting");
    let plane = ControlPlane::start_as(port, Manner::Serves, None);
    plane.push("1", &[config("web", "key", 5)]);
    plane.wait_for_ack("1");
    let after = instance.rules();
    assert_eq!(after["since_ms"], before["since_ms"]);
    assert_eq!(instance.metric("tollgate_config_loads_total{result=\"success\"}"), 1.0);
}

#[test]
fn a_control_plane_that_ends_each_stream_is_not_flooded() {
    let plane = ControlPlane::start_as(free_port(), Manner::Closes, None);
    let instance = XdsInstance::spawn(&plane.url(), &["--start-without-rules"]);
    instance.wait_for_log("ended the stream");
    std::thread::sleep(Duration::from_secs(4));
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
