//! Valid updates, and invalid ones.

use super::control_plane::{ControlPlane, TYPE_URL, any, config};
use super::*;

/// Waits until a request of the domain passes, or does not, and says how long that took.
async fn wait_until_it_passes(client: &mut Client, passes: bool) -> Duration {
    let is_enforced = async || client.passes("web", &[("key", "a")]).await == passes;
    until("what was pushed is not enforced", is_enforced).await
}

#[tokio::test]
async fn pushed_rules_are_enforced_within_a_second() {
    let plane = ControlPlane::start();
    plane.push("first", &[config("web", "key", 0)]);
    let instance = XdsInstance::start(&plane.url(), &[]);
    let mut client = instance.client().await;
    assert!(!client.passes("web", &[("key", "a")]).await);

    let mut took = Vec::new();
    for push in 0..20 {
        let passes = push % 2 == 0;
        plane.push(&push.to_string(), &[config("web", "key", if passes { 1_000_000 } else { 0 })]);
        took.push(wait_until_it_passes(&mut client, passes).await);
        plane.wait_for_ack(&push.to_string());
    }
    took.sort();
    println!("20 pushes were enforced within {:?} (median) and {:?} (longest)", took[10], took[19]);
    assert!(took[10] < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_bad_push_is_rejected_with_reasons_and_the_previous_rules_stay() {
    let plane = ControlPlane::start();
    plane.push("good", &[config("web", "key", 0)]);
    let instance = XdsInstance::start(&plane.url(), &[]);
    let mut client = instance.client().await;
    plane.wait_for_ack("good");

    let nameless = RateLimitDescriptor::default();
    let wrong = RateLimitConfig { descriptors: vec![nameless.clone(), nameless], ..config("web", "key", 5) };
    let garbage = Any { type_url: TYPE_URL.into(), value: b"\xff\xff\xff".to_vec() };
    let foreign =
        Any { type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".into(), value: vec![] };
    let twice = vec![any(&config("web", "key", 5)), any(&config("web", "other", 5))];
    let of_clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    for (version, type_url, resources, reason) in [
        ("wrong", TYPE_URL, vec![any(&wrong)], "resource web-rules: descriptors[1]: has no `key`"),
        ("garbage", TYPE_URL, vec![any(&config("web", "key", 5)), garbage], "resource 1: can't be decoded"),
        ("foreign", TYPE_URL, vec![foreign], "resource 0: is of the type `type.googleapis.com/envoy.config."),
        (
            "twice",
            TYPE_URL,
            twice,
            "resource web-rules (2): domain: the domain `web` is a duplicate of that in resource web-rules",
        ),
        ("clusters", of_clusters, vec![], "a response of the type `type.googleapis.com/envoy.config.cluster"),
    ] {
        let errors = instance.metric("tollgate_config_loads_total{result=\"error\"}");
        plane.push_all(version, type_url, resources);
        let (nack, report) = plane.wait_for_nack(reason);
        assert_eq!(nack.version_info, "good", "{report}");
        assert_eq!(nack.type_url, TYPE_URL);
        assert!(!nack.response_nonce.is_empty());
        assert_eq!(nack.error_detail.expect("looked for").code, 3);
        assert!(instance.rules()["problem"].as_str().is_some_and(|problem| problem.contains(reason)));
        assert!(!client.passes("web", &[("key", "a")]).await, "the old rules are enforced");
        assert_eq!(instance.metric("tollgate_config_loads_total{result=\"error\"}"), errors + 1.0);
        assert!(instance.log().contains(reason));
    }
    assert!(instance.is_ready());
    plane.push_accepted("better", &[config("web", "key", 1_000)]);
    assert!(client.passes("web", &[("key", "a")]).await);
    let rules = instance.rules();
    assert!(rules["problem"].is_null(), "{rules}");
    assert_eq!((&rules["source"], &rules["control_plane"]["version"]), (&"xds".into(), &"better".into()));
}

#[test]
fn returning_from_a_bad_version_to_the_active_one_fixes_it() {
    let (plane, instance) = XdsInstance::with_rules(&[config("web", "key", 5)], &[]);
    plane.push("2", &[config("", "key", 5)]);
    plane.wait_for_nack("domain: is missing or empty");
    let before = instance.wait_for_rules(|rules| !rules["problem"].is_null());
    assert_eq!(instance.metric("tollgate_config_last_load_successful"), 0.0);
    plane.push_accepted("3", &[config("web", "key", 5)]);
    let after = instance.rules();
    assert!(after["problem"].is_null(), "{after}");
    assert_eq!(after["since_ms"], before["since_ms"], "they were active all the time");
    assert_eq!(instance.metric("tollgate_config_last_load_successful"), 1.0);
}

#[test]
fn repeated_rejected_pushes_are_answered_more_slowly() {
    let plane = ControlPlane::start();
    plane.push("1", &[config("", "key", 5)]);
    let instance = XdsInstance::spawn(&plane.url(), &["--start-without-rules"]);
    plane.wait_for_nack("domain: is missing or empty");
    thread::sleep(Duration::from_secs(2));
    let nacks = plane.requests().into_iter().filter(|request| request.error_detail.is_some()).count();
    assert!((2..=6).contains(&nacks), "{nacks} in two seconds");
    assert_eq!(instance.log().matches("control plane sent invalid rules").count(), 1, "{}", instance.log());
    assert_eq!(instance.metric("tollgate_config_loads_total{result=\"error\"}"), 1.0);
}

#[test]
fn the_same_rules_under_another_version_change_only_the_version() {
    let plane = ControlPlane::start();
    let (a, b) = (config("a", "key", 5), config("b", "key", 5));
    plane.push("1", &[a.clone(), b.clone()]);
    let instance = XdsInstance::start(&plane.url(), &[]);
    plane.wait_for_ack("1");
    let before = instance.rules();
    plane.push_accepted("2", &[b, a]);
    let after = instance.rules();
    assert_eq!((&after["since_ms"], &after["fingerprint"]), (&before["since_ms"], &before["fingerprint"]));
    assert_eq!(after["control_plane"]["version"], "2");
    assert_eq!(instance.metric("tollgate_config_loads_total{result=\"success\"}"), 1.0);
}

#[tokio::test]
async fn an_empty_set_of_resources_is_an_empty_set_of_rules() {
    let (plane, instance) = XdsInstance::with_rules(&[config("web", "key", 0)], &[]);
    let mut client = instance.client().await;
    assert!(!client.passes("web", &[("key", "a")]).await);
    plane.push_accepted("2", &[]);
    assert!(client.passes("web", &[("key", "a")]).await);
    assert!(instance.is_ready());
    let log = instance.wait_for_log("control plane removed all rules");
    assert!(log.contains("WARN"), "{log}");
}

#[test]
fn rules_from_a_control_plane_are_shown_and_read_only() {
    let (_plane, instance) = XdsInstance::with_rules(&[config("web", "key", 5)], &[]);
    let listed = http::get(&instance.tollgate.admin_url("/api/v1/rules")).body;
    assert!(listed.contains("\"file\":\"resource web-rules\""), "{listed}");
    let files = http::get(&instance.tollgate.admin_url("/api/v1/versions/current"));
    assert_eq!(files.status, 404);
    assert!(
        files.body.contains("the rules come from an xDS control plane and have no files"),
        "{}",
        files.body
    );
    let status = http::get(&instance.tollgate.admin_url("/api/v1/status")).body;
    assert!(status.contains("\"is_editable\":false"), "{status}");
}

#[test]
fn a_control_plane_receives_the_node_identity() {
    let plane = ControlPlane::start();
    plane.push("1", &[]);
    let flags = [
        "--xds-node-id",
        "edge",
        "--xds-node-metadata",
        "zone=a,team=b",
        "--xds-headers",
        "authorization=Bearer open sesame,x-tenant=t",
    ];
    let instance = XdsInstance::start(&plane.url(), &flags);
    let first = plane.requests().remove(0);
    assert_eq!((&*first.type_url, &*first.version_info, &*first.response_nonce), (TYPE_URL, "", ""));
    let node = first.node.expect("a node");
    assert_eq!((&*node.id, &*node.user_agent_name), ("edge", "tollgate"));
    assert_eq!(node.metadata.expect("metadata").fields.len(), 2);
    let headers = plane.headers().remove(0);
    assert_eq!(headers.get("authorization").expect("sent"), "Bearer open sesame");
    assert_eq!(headers.get("x-tenant").expect("sent"), "t");
    assert!(!instance.log().contains("sesame"));
}
