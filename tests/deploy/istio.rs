//! The EnvoyFilters of `deploy/istio`, applied to proxies that are shaped as Istio's are, before a live tollgate.

use super::*;
use crate::support::{envoy, upstream::Upstream};

const TOLLGATE: &str = "outbound|8081||tollgate.tollgate.svc.cluster.local";

/// Istio's proxy of that shape, with the filters of these files, before a tollgate with their rules.
fn proxy(context: &str, shape: &str, filters: &[&str], upstream: u16) -> (TempDir, Tollgate, Envoy) {
    let rules = by_the_hour("deploy/istio/rules");
    let tollgate = Tollgate::start(rules.path(), &[]);
    let (admin, port) = (free_port(), free_port());
    let ports = [(9901, admin), (10_000, port), (10_001, upstream), (8081, tollgate.grpc_port)];
    let moved = |text: String| {
        ports.iter().fold(text, |text, (from, to)| {
            let stated = format!("\"port_value\":{from}}}");
            assert!(text.contains(&stated), "no port {from}");
            text.replace(&stated, &format!("\"port_value\":{to}}}"))
        })
    };
    let patched = moved(apply(context, shape, filters));
    // What a machine needs that is busy with tests.
    let patient = patched.replace("\"0.02s\"", "\"5s\"").replace("\"0.1s\"", "\"5s\"");
    assert_ne!(patched, patient);
    let endpoint = format!("{TOLLGATE}::127.0.0.1:{}", tollgate.grpc_port);
    let envoy = Envoy::run(&patient, admin, port, &[endpoint]);
    (rules, tollgate, envoy)
}

/// A proxy's configuration with the patches of these files, as JSON.
fn apply(context: &str, shape: &str, filters: &[&str]) -> String {
    let files: Vec<_> = filters.iter().map(|name| format!("deploy/istio/{name}.yaml")).collect();
    let arguments: Vec<_> =
        ["tests/deploy/istio.py", context].into_iter().chain(files.iter().map(String::as_str)).collect();
    let bootstrap = fs::read(project(&format!("tests/deploy/istio/{shape}.yaml"))).expect("readable");
    python(&arguments, bootstrap).to_string()
}

#[test]
fn no_filter_has_a_field_that_envoy_deprecates() {
    for (context, shape, filters) in [
        ("GATEWAY", "gateway", &["gateway", "cluster"][..]),
        ("SIDECAR_INBOUND", "sidecar", &["sidecar", "concurrency"]),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("envoy.yaml");
        fs::write(&file, apply(context, shape, filters)).expect("written");
        let (is_valid, log) = envoy::validate(&file);
        assert!(is_valid && !log.contains("deprecated"), "{shape}: {log}");
    }
}

/// The statuses of this many sequential requests.
fn statuses(envoy: &Envoy, path: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| envoy.get(path).status).collect()
}

#[tokio::test]
async fn a_gateway_limits_each_client_and_one_route() {
    let upstream = Upstream::between(Duration::ZERO, Duration::from_micros(1)).await.port;
    let story = move || {
        let (_rules, tollgate, envoy) = proxy("GATEWAY", "gateway", &["gateway", "cluster"], upstream);
        // Each counts for the client too.
        assert_eq!(statuses(&envoy, "/login", 3), [200, 200, 200]);
        assert_eq!(statuses(&envoy, "//login", 1), [429], "another spelling");
        let first = envoy.get("/");
        assert_eq!((first.status, first.header("x-ratelimit-limit")), (200, Some("10, 10;w=3600")));
        assert_eq!(statuses(&envoy, "/", 6), [200, 200, 200, 200, 200, 429]);
        // The health check of cluster.yaml marks the host unhealthy without any request; then Envoy fails open.
        tollgate.signal("STOP");
        envoy.wait_for("health_flags::/failed_active_hc");
        tollgate.signal("CONT");
        drop(tollgate);
        assert_eq!(statuses(&envoy, "/login", 2), [200, 200]);
    };
    spawn_blocking(story).await.expect("no panic");
}

#[tokio::test]
async fn a_sidecar_limits_requests_to_its_workload() {
    let upstream = Upstream::between(Duration::ZERO, Duration::from_micros(1)).await.port;
    let story = move || {
        let (_rules, tollgate, envoy) = proxy("SIDECAR_INBOUND", "sidecar", &["sidecar"], upstream);
        assert_eq!(statuses(&envoy, "/", 7), [200, 200, 200, 200, 200, 429, 429]);
        let url = format!("http://127.0.0.1:{}/", envoy.port);
        let grpc = http::get_as(&url, &[("content-type", "application/grpc")]);
        assert_eq!((grpc.status, grpc.header("grpc-status")), (200, Some("8")));
        drop(tollgate);
        assert_eq!(envoy.get("/").status, 200);
    };
    spawn_blocking(story).await.expect("no panic");
}

#[tokio::test]
async fn a_sidecar_holds_permits_until_streams_end_and_fails_closed() {
    let upstream = Upstream::closed().await;
    let port = upstream.port;
    let proxy = move || proxy("SIDECAR_INBOUND", "sidecar", &["concurrency"], port);
    let (_rules, tollgate, envoy) = spawn_blocking(proxy).await.expect("no panic");
    let url = format!("http://127.0.0.1:{}/", envoy.port);
    let get = |url: String| spawn_blocking(move || http::get(&url).status);
    let mut held = JoinSet::new();
    for _ in 0..2 {
        held.spawn(get(url.clone()));
    }
    while upstream.inside() < 2 {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(get(url.clone()).await.expect("no panic"), 429);
    upstream.open();
    for status in held.join_all().await {
        assert_eq!(status.expect("no panic"), 200);
    }
    for _ in 0..5 {
        assert_eq!(get(url.clone()).await.expect("no panic"), 200, "a permit was not released");
    }
    drop(tollgate);
    assert_eq!(get(url).await.expect("no panic"), 503);
}

/// With TLS it is the same, and the certificate that the component makes has the name that is looked for.
#[test]
fn with_tls_gateways_behave_alike() {
    let plain = documents("deploy/istio/cluster.yaml").remove(0);
    let mut rule = documents("deploy/istio/cluster_tls.yaml").remove(0);
    let policy = rule["spec"]["trafficPolicy"].as_object_mut().expect("a mapping");
    let tls = policy.remove("tls").expect("TLS");
    assert_eq!(rule, plain);
    let host = plain["spec"]["host"].as_str().expect("a name");
    let expected = json!({
        "mode": "MUTUAL", "credentialName": "tollgate-client", "sni": host, "subjectAltNames": [host],
    });
    assert_eq!(tls, expected);
    let certificate = documents("deploy/kubernetes/components/tls/cert-manager/certificate.yaml").remove(0);
    let names = certificate["spec"]["dnsNames"].as_array().expect("a list");
    assert!(names.contains(&json!(host)), "{names:?}");
    // And it is the Service of the manifests.
    let service = documents("deploy/kubernetes/base/service.yaml").remove(0);
    let name =
        format!("{}.tollgate.svc.cluster.local", service["metadata"]["name"].as_str().expect("a name"));
    assert_eq!(name, host);
    assert_eq!(service["spec"]["ports"][0]["appProtocol"], "grpc", "requests are not balanced");
    let balanced = json!({
        "loadBalancer": {"simple": "LEAST_REQUEST"},
        "outlierDetection": {
            "consecutive5xxErrors": 5, "interval": "1s", "baseEjectionTime": "5s", "maxEjectionPercent": 50,
        },
    });
    assert_eq!(plain["spec"]["trafficPolicy"], balanced);
}
