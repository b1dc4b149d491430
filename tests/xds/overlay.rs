//! Keys of tollgate laid over the rules of a control plane.

use super::{control_plane::ControlPlane, *};
use crate::{docs, support::tollgate::age};

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn descriptors(stated: &Value) -> Vec<RateLimitDescriptor> {
    let each = stated["descriptors"].as_array().into_iter().flatten();
    let descriptor = |stated: &Value| RateLimitDescriptor {
        key: text(stated, "key").into(),
        value: text(stated, "value").into(),
        rate_limit: stated.get("rate_limit").map(|limit| RateLimitPolicy {
            unit: RateLimitUnit::from_str_name(text(limit, "unit")).expect("a unit").into(),
            requests_per_unit: limit["requests_per_unit"]
                .as_u64()
                .expect("a number")
                .try_into()
                .expect("small"),
            ..Default::default()
        }),
        descriptors: descriptors(stated),
        shadow_mode: stated["shadow_mode"].as_bool().unwrap_or_default(),
        quota_mode: stated["quota_mode"].as_bool().unwrap_or_default(),
        ..Default::default()
    };
    each.map(descriptor).collect()
}

/// The resources that Envoy Gateway 1.9.1 makes of a route's policy and of a shared one (internal/xds/translator/ratelimit.go),
/// with another limit of an address: a push has to differ from the one before.
fn snapshot(push: u32) -> Vec<RateLimitConfig> {
    let json = fs::read_to_string(project("tests/xds/envoy-gateway-snapshot.json")).expect("readable");
    configs(&json.replace("1000000", &(1_000_000 + push).to_string()))
}

/// The resources of a recorded snapshot.
pub(super) fn snapshot_of(file: &str) -> Vec<RateLimitConfig> {
    configs(&fs::read_to_string(project(file)).expect("readable"))
}

fn configs(json: &str) -> Vec<RateLimitConfig> {
    let stated: Vec<Value> = serde_json::from_str(json).expect("JSON");
    let config = |stated: &Value| RateLimitConfig {
        name: text(stated, "name").into(),
        domain: text(stated, "domain").into(),
        descriptors: descriptors(stated),
    };
    stated.iter().map(config).collect()
}

/// A directory with an overlay.
fn overlay(yaml: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write(directory.path(), "limits.yaml", yaml);
    age(directory.path());
    let flag = format!("--rules-overlay={}", directory.path().display());
    (directory, flag)
}

/// An Envoy whose route has the descriptors of the snapshot's.
fn envoy(grpc_port: u16) -> Envoy {
    let generic = |key: &str| {
        format!("                - generic_key: {{descriptor_key: {key}, descriptor_value: {key}}}\n")
    };
    let keys = [r#""httproute/shop/shop/rule/0/match/0/*""#, "rule-0-match-0"];
    let actions = format!("              - actions:\n{}", keys.map(generic).concat());
    let by_default = "              - actions:
                - remote_address: {}
              - actions:
                - metadata:
                    descriptor_key: path
                    metadata_key: {key: request, path: [{key: path}]}
                    # Of `/`, nothing is left.
                    default_value: /
";
    let bootstrap = Bootstrap::read("edge", grpc_port, None);
    let bootstrap = bootstrap.with("domain: edge", "domain: envoy-gateway-system/eg/http");
    bootstrap.with(by_default, &actions).run(&[grpc_port])
}

/// Requests until one is denied; a bucket of 100 in 5 minutes gets another hit every 3 seconds.
fn until_denied(envoy: &Envoy) -> u64 {
    let (begun, mut passed) = (Instant::now(), 0);
    loop {
        match envoy.get("/").status {
            200 => passed += 1,
            status => {
                assert_eq!(status, 429);
                break;
            }
        }
        assert!(passed <= 100 + begun.elapsed().as_secs() / 3 + 1, "{passed} have passed");
    }
    passed
}

fn limit(envoy: &Envoy) -> String {
    envoy.get("/").header("x-ratelimit-limit").expect("is set").to_owned()
}

/// Lays the overlay of the documentation over many snapshots, and checks that the overlay is active after each that is waited for.
fn enforced_through_pushes(awaited: u32, rapid: u32) {
    let plane = ControlPlane::start();
    plane.push("0", &snapshot(0));
    let (_directory, flag) = overlay(&docs::block("yaml overlay"));
    let instance = XdsInstance::start(&plane.url(), &[&flag]);
    let envoy = envoy(instance.tollgate.grpc_port);
    assert!(until_denied(&envoy) >= 100);
    let bucket = "100, 100;w=300";
    assert_eq!(limit(&envoy), bucket);
    for push in 1..=awaited {
        plane.push_accepted(&push.to_string(), &snapshot(push));
        assert_eq!(limit(&envoy), bucket);
    }
    for push in awaited + 1..=awaited + rapid {
        plane.push(&push.to_string(), &snapshot(push));
    }
    plane.wait_for_ack(&(awaited + rapid).to_string());
    assert_eq!(limit(&envoy), bucket);
    // The hits before the pushes count: at most what was refilled since is left.
    assert!(until_denied(&envoy) < 100, "the bucket is full again");
    assert_eq!(instance.metric("tollgate_overlay_patterns"), 1.0);
    assert_eq!(instance.metric("tollgate_overlay_patterns_unmatched"), 0.0);
}

#[test]
fn a_bucket_over_a_window_of_envoy_gateway_is_enforced_through_envoy_and_survives_pushes() {
    enforced_through_pushes(15, 85);
}

/// A hundred pushes, each of which is waited for: pushes are processed twice a second.
#[test]
#[ignore = "takes a minute"]
fn a_bucket_survives_a_hundred_pushes_one_by_one() {
    enforced_through_pushes(100, 1);
}

#[tokio::test]
async fn a_changed_overlay_is_active_without_a_push_and_an_invalid_one_is_reported() {
    let plane = ControlPlane::start();
    plane.push("0", &snapshot(0));
    let all = |limit: &str| {
        format!(
            "domain: shop/*\ndescriptors:\n- key: '**'\n  shadow_mode: false\n  rate_limit: {{{limit}}}\n"
        )
    };
    let (directory, flag) = overlay(&all("requests_per_unit: 0"));
    let instance = XdsInstance::start(&plane.url(), &[&flag]);
    let mut client = instance.client().await;
    let entries = [("shop/shared-limits/rule/0", "shop/shared-limits/rule/0"), ("rule-0-match-0", "me")];
    assert!(!client.passes("shop/shared-limits", &entries).await);

    write(directory.path(), "limits.yaml", &all("requests_per_unit: 1000000"));
    until("the overlay is not active", async || client.passes("shop/shared-limits", &entries).await).await;

    // Invalid by itself.
    write(directory.path(), "limits.yaml", &all("brust: 5"));
    let log = instance.wait_for_log("changed overlay is invalid");
    assert!(log.contains("limits.yaml:5: descriptors[0].rate_limit.brust: unknown key"), "{log}");
    assert!(client.passes("shop/shared-limits", &entries).await);
    let is_problem = |part: &'static str| {
        move |rules: &Value| rules["problem"].as_str().is_some_and(|problem| problem.contains(part))
    };
    instance.wait_for_rules(is_problem("rate_limit.brust:"));

    // Invalid with these rules: the pushed ones are rejected too, until it is mended.
    write(directory.path(), "limits.yaml", &all("burst: 5"));
    instance.wait_for_rules(is_problem("rate_limit.burst:"));
    plane.push("1", &snapshot(1));
    plane.wait_for_nack("limits.yaml:5");
    assert!(client.passes("shop/shared-limits", &entries).await);
    write(directory.path(), "limits.yaml", &all("requests_per_unit: 2000000"));
    instance.wait_for_rules(|rules| rules["problem"].is_null());

    // Patterns that match nothing.
    let (before, unmatched) = (all("requests_per_unit: 2000000"), "- {key: nothing, shadow_mode: true}\n");
    write(directory.path(), "limits.yaml", &(before + unmatched));
    instance.wait_for_log("limits.yaml:6: warning: descriptors[1]: matches no limit of the rules");
    wait("the metric", || instance.metric("tollgate_overlay_patterns_unmatched") == 1.0);
}

fn output(arguments: &[&str]) -> (bool, String) {
    let Ended { code, stdout, stderr } = ended(command().args(arguments));
    (code == Some(0), stdout + &stderr)
}

#[test]
fn check_and_explain_take_an_overlay_of_files_that_others_generate() {
    let generated =
        rules("domain: web\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 9}}\n");
    let yaml = "domain: web\ndescriptors:\n- key: k\n  rate_limit:\n    algorithm: token_bucket\n";
    let (directory, flag) = overlay(yaml);
    let path = |path: &Path| path.display().to_string();
    let (is_good, text) =
        output(&["explain", "--config", &path(generated.path()), &flag, "--domain", "web", "k=v"]);
    assert!(is_good && text.contains("9 per hour, token_bucket"), "{text}");
    let place = format!("stated   algorithm from {}/limits.yaml:5", path(directory.path()));
    assert!(text.contains(&place) && text.contains("stated   unit from rules.yaml:3"), "{text}");
    write(directory.path(), "limits.yaml", &yaml.replace("token_bucket", "leaky_bucket"));
    let (is_good, text) = output(&["check", &flag, &path(generated.path())]);
    assert!(!is_good && text.contains("limits.yaml:5: descriptors[0].rate_limit.algorithm: "), "{text}");
}

#[tokio::test]
async fn an_overlay_of_a_directory_changes_with_its_files() {
    let generated =
        rules("domain: web\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 9}}\n");
    let all = |limit: u32| {
        format!("domain: '*'\ndescriptors: [{{key: k, rate_limit: {{requests_per_unit: {limit}}}}}]\n")
    };
    let (directory, flag) = overlay(&all(0));
    let tollgate = Tollgate::start(generated.path(), &[&flag]);
    let mut client = tollgate.client().await;
    assert!(!client.passes("web", &[("k", "v")]).await);
    write(directory.path(), "limits.yaml", &all(1_000_000));
    until("the overlay is not active", async || client.passes("web", &[("k", "v")]).await).await;
    // The rules below it change too.
    write(
        generated.path(),
        "rules.yaml",
        "domain: web\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 9}}\n",
    );
    wait("the other unit", || http::get(&tollgate.admin_url("/rlconfig")).body.contains("unit=DAY"));
    assert!(client.passes("web", &[("k", "v")]).await);
}
