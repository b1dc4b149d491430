//! Startup: before there are rules, before there is a control plane, and with one that sends nothing.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::{Duration, Instant},
};

use super::{
    XdsInstance,
    control_plane::{ControlPlane, Manner, config},
};
use crate::support::{free_port, http};

#[test]
fn ports_open_once_there_are_rules() {
    let port = free_port();
    let instance =
        XdsInstance::spawn(&format!("http://127.0.0.1:{port}"), &["--xds-backoff", "500ms,500ms,0.5"]);
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
    let rules = super::until("an answer", || http::try_get(&instance.tollgate.admin_url("/api/v1/status")));
    assert_eq!(rules.status, 200);
    instance.wait_for_rules(|rules| !rules["control_plane"]["problem"].is_null());
    assert!(!instance.is_ready());
    let refused =
        instance.client().await.call(crate::support::tollgate::request("web", &[&[("key", "a")]])).await;
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
    let request = crate::support::tollgate::request("web", &[&[("key", "a")]]);
    let refused = instance.client().await.call(request).await.expect_err("no rules");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    plane.push("1", &[config("web", "key", 0)]);
    plane.wait_for_ack("1");
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
