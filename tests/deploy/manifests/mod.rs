//! Output of `deploy/kubernetes`: valid for Kubernetes, consistent, and in agreement with the program.

mod envoy_gateway;
pub(super) mod consistency_check;
mod rollout_check;
mod mutations;
mod network;
mod operators;
mod redis;
#[cfg(feature = "regions")]
mod regions;

use std::sync::LazyLock;

use tollgate::{serve::grpc::GrpcListen, settings::Settings};
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::*;

/// All that is built: what `deploy/` has for others, and the rest of the components.
pub(crate) const OVERLAYS: [&str; 6] = [
    "deploy/kubernetes/overlays/dev",
    "deploy/kubernetes/overlays/production",
    "tests/deploy/overlays/operators",
    "tests/deploy/overlays/sentinel",
    "deploy/kubernetes/overlays/two-regions/us-east",
    "deploy/kubernetes/overlays/two-regions/eu-west",
];

/// The output of kustomize for an overlay.
pub(super) fn built(overlay: &str) -> &'static [Value] {
    static BUILT: LazyLock<Vec<Vec<Value>>> = LazyLock::new(|| OVERLAYS.map(build).into());
    let index = OVERLAYS.iter().position(|known| *known == overlay).expect("one of them");
    &BUILT[index]
}

/// The documents that kustomize makes of a directory, held to Kubernetes' schemas.
fn build(directory: &str) -> Vec<Value> {
    let mut kustomize = Command::new(installed("target/kustomize/kustomize"));
    let built = output_of(kustomize.args(["build", directory]).current_dir(project(".")));
    let documents = python(&["tests/deploy/manifests.py"], built);
    let documents = documents.as_array().expect("documents").clone();
    assert!(documents.len() > 5, "{directory} is all but empty");
    documents
}

/// The document of that kind and name; hashes behind names don't count.
pub(super) fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    documents
        .iter()
        .find(|document| document["kind"] == kind && consistency_check::plain_name(document) == name)
}

/// The variables that a build of tollgate's pod sets, with `store` for the URL that a Secret holds.
fn environment(documents: &[Value], store: &str) -> BTreeMap<String, String> {
    let settings = find(documents, "ConfigMap", "tollgate-settings").expect("settings");
    let settings = settings["data"].as_object().expect("a mapping").iter();
    let mut all: BTreeMap<_, _> =
        settings.map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned())).collect();
    let deployment = find(documents, "Deployment", "tollgate").expect("a deployment");
    for variable in
        deployment.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array).expect("a list")
    {
        assert_eq!(variable["name"], "TOLLGATE_STORE");
        all.insert("TOLLGATE_STORE".to_owned(), store.to_owned());
    }
    all
}

/// The program's settings from these variables; a misspelt variable is an error.
pub(super) fn settings(environment: &BTreeMap<String, String>) -> Settings {
    let variables = environment.iter().map(|(name, value)| (name.into(), value.into()));
    match settings::parse(["tollgate".into()], variables) {
        Ok(settings::Command::Serve(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_overlay_is_valid_and_consistent() {
    for overlay in OVERLAYS {
        let problems = consistency_check::problems(built(overlay));
        assert!(problems.is_empty(), "{overlay}: {problems:#?}");
    }
}

/// The ports, the paths and the times in the manifests are those of the program with these settings.
#[test]
fn the_program_accepts_its_settings() {
    for overlay in OVERLAYS {
        let documents = built(overlay);
        let settings = settings(&environment(documents, "rediss://localhost:6379"));
        let pod = find(documents, "Deployment", "tollgate").and_then(|it| it.pointer("/spec/template/spec"));
        let pod = pod.expect("a pod");
        let container = &pod["containers"][0];
        let port = |name: &str| {
            let ports = container["ports"].as_array().expect("a list").iter();
            let mut named = ports.filter(|port| port["name"] == name);
            named.next().and_then(|port| port["containerPort"].as_u64()).expect("a port")
        };
        let GrpcListen::Tcp(grpc) = settings.grpc.listen else { panic!("a socket") };
        assert_eq!(u64::from(grpc.port()), port("grpc"));
        assert_eq!(u64::from(settings.http.address.port()), port("http"));
        assert!(grpc.ip().is_unspecified() && settings.http.address.ip().is_unspecified());
        // No other address, unless a token is required.
        let admin = settings.admin.address.expect("an admin port");
        let is_open = overlay.ends_with("operators");
        assert_eq!(admin.ip().is_loopback(), !is_open);
        assert!(!is_open || u64::from(admin.port()) == port("admin"));

        let mounts = container["volumeMounts"].as_array().expect("a list");
        let mounted = |path: &Path| {
            mounts.iter().any(|mount| path.starts_with(mount["mountPath"].as_str().expect("a path")))
        };
        assert!(mounted(&settings.rules.directory));
        let environment = environment(documents, "");
        let paths = environment.values().flat_map(|value| value.split(','));
        for path in paths.filter(|path| path.starts_with('/')) {
            assert!(mounted(path.as_ref()), "{overlay}: nothing is mounted at {path}");
        }
        let with_tls = overlay.ends_with("production") || overlay.ends_with("operators");
        assert_eq!(settings.grpc.tls().is_some(), with_tls);
        for address in [grpc, settings.http.address] {
            assert_eq!(address.is_ipv6(), is_open, "{overlay}");
        }

        // What the last steps may take, and a second for the rest of the process.
        let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("a number");
        let least = (settings.process.drain_delay + settings.process.drain_timeout).as_secs() + 2;
        assert!(grace > least, "{overlay}: killed after {grace} s, which may need {least}");
        // The health check of Envoy, as its files and the DestinationRule have it, and then the endpoints' change.
        assert!(settings.process.drain_delay.as_secs() >= 5, "{overlay}: no time to notice");
        let sidecar = sidecar_drains(documents);
        assert!(least < sidecar && sidecar < grace, "{overlay}: a sidecar ends after {sidecar} s");
    }
}

/// For how many seconds a sidecar of Istio would serve on.
fn sidecar_drains(documents: &[Value]) -> u64 {
    let deployment = find(documents, "Deployment", "tollgate").expect("a deployment");
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    let proxy = annotations["proxy.istio.io/config"].as_str().expect("a text");
    let proxy: Value = serde_json::from_str(proxy).expect("JSON");
    assert_eq!(proxy["holdApplicationUntilProxyStarts"], true);
    let drain = proxy["terminationDrainDuration"].as_str().and_then(|text| text.strip_suffix('s'));
    drain.and_then(|seconds| seconds.parse().ok()).expect("seconds")
}

#[test]
fn the_rules_load_and_none_is_missing() {
    for overlay in OVERLAYS {
        let documents = built(overlay);
        let rules = find(documents, "ConfigMap", "tollgate-rules").expect("rules");
        assert_eq!(
            rules["metadata"]["name"], "tollgate-rules",
            "a hash would restart all pods with each change"
        );
        let directory = tempfile::tempdir().expect("a temporary directory");
        let files = rules["data"].as_object().expect("a mapping");
        for (file, text) in files {
            fs::write(directory.path().join(file), text.as_str().expect("a text")).expect("writable");
        }
        let loaded = config::load(directory.path(), &Options::default()).expect("valid");
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        let names = |path: &str| -> Vec<_> {
            let entries = fs::read_dir(project(path)).expect("a directory");
            let mut names: Vec<_> = entries
                .map(|entry| entry.expect("read").file_name().into_string().expect("a text"))
                .collect();
            names.sort();
            names
        };
        let expected = if overlay.ends_with("production") {
            format!("{overlay}/rules")
        } else if overlay.contains("two-regions") {
            "deploy/kubernetes/overlays/two-regions/common/rules".into()
        } else {
            "config/default".into()
        };
        assert_eq!(files.keys().cloned().collect::<Vec<_>>(), names(&expected));
    }
}

/// Each probe of the pod is put to the program, run with the pod's variables.
#[tokio::test]
async fn probes_are_answered() {
    let documents = built(OVERLAYS[0]);
    let deployment = find(documents, "Deployment", "tollgate").expect("a deployment");
    let container = deployment.pointer("/spec/template/spec/containers/0").expect("a container");
    let mut program = command();
    let mut environment = environment(documents, "memory");
    // Stated by the test.
    environment.remove("TOLLGATE_CONFIG");
    program.envs(environment);
    let tollgate = Tollgate::spawn_by(program, &project("config/default"), &[]);
    tollgate.wait_until_ready();
    let mut kinds = Vec::new();
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let probe = &container[name];
        if let Some(path) = probe.pointer("/httpGet/path") {
            assert_eq!(probe["httpGet"]["port"], "http");
            assert_eq!(http::get(&tollgate.url(path.as_str().expect("a path"))).status, 200, "{name}");
            kinds.push("http");
        }
        if let Some(service) = probe.pointer("/grpc/service") {
            let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", tollgate.grpc_port));
            let channel = endpoint.expect("a URL").connect().await.expect("connected");
            let service = service.as_str().expect("a name").to_owned();
            let answer =
                HealthClient::new(channel).check(HealthCheckRequest { service }).await.expect("known");
            assert_eq!(answer.get_ref().status(), ServingStatus::Serving);
            kinds.push("grpc");
        }
    }
    assert_eq!(kinds, ["http", "http", "grpc"]);
    // With TLS, Kubernetes calls this in place of the last one.
    let tls = built(OVERLAYS[1]);
    let deployment = find(tls, "Deployment", "tollgate").expect("a deployment");
    let readiness = deployment.pointer("/spec/template/spec/containers/0/readinessProbe").expect("a probe");
    assert_eq!(readiness.get("grpc"), None);
    let path = readiness.pointer("/httpGet/path").and_then(Value::as_str).expect("a path");
    assert_eq!(http::get(&tollgate.url(path)).status, 200);
}

/// The autoscaler's metric is one that the adapter derives from an exported metric.
#[test]
fn the_autoscalers_metric_derives_from_an_existing_one() {
    let documents = built(OVERLAYS[1]);
    let scaler = find(documents, "HorizontalPodAutoscaler", "tollgate").expect("an autoscaler");
    let metrics = scaler.pointer("/spec/metrics").and_then(Value::as_array).expect("a list");
    assert_eq!(metrics.len(), 2);
    let name = metrics[1].pointer("/pods/metric/name").and_then(Value::as_str).expect("a name");
    let adapter =
        fs::read_to_string(project("deploy/kubernetes/components/monitoring/adapter.yaml")).expect("a text");
    assert!(adapter.contains(&format!("    as: {name}\n")), "{name}");
    let series = adapter.lines().find_map(|line| line.strip_prefix("- seriesQuery: ")).expect("a query");
    let series = series.split('{').next().unwrap_or_default();
    assert!(adapter.contains(&format!("matches: ^{series}$")));
    let tollgate = Tollgate::start(&project("config/default"), &[]);
    assert_eq!(tollgate.hit("edge", &[("path", "/")]).status, 200);
    let monitor = find(documents, "PodMonitor", "tollgate").expect("a monitor");
    let endpoint = monitor.pointer("/spec/podMetricsEndpoints/0").expect("an endpoint");
    assert_eq!(endpoint["port"], "http");
    let named =
        serde_json::json!([{"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "instance"}]);
    assert_eq!(endpoint["relabelings"], named, "alerts name addresses");
    let page = http::get(&tollgate.url(endpoint["path"].as_str().expect("a path"))).body;
    assert!(page.contains(&format!("\n{series}{{")), "no {series}");
}

/// `deploy/kubernetes/components/monitoring/generate.py` makes the others of the first.
#[test]
fn the_operators_alerts_and_the_lists_of_runbooks_are_those_of_prometheus() {
    let rule = find(built(OVERLAYS[1]), "PrometheusRule", "tollgate").expect("alerts");
    assert_eq!(rule["spec"], yaml("deploy/prometheus/alerts.yaml"));
    let copy = tempfile::tempdir().expect("a temporary directory");
    let script = "deploy/kubernetes/components/monitoring/generate.py";
    let made = [
        "deploy/kubernetes/components/monitoring/prometheus-rule.yaml",
        "docs/runbooks/README.md",
        "docs/SUMMARY.md",
    ];
    for file in [script, "deploy/prometheus/alerts.yaml"].into_iter().chain(made) {
        let place = copy.path().join(file);
        fs::create_dir_all(place.parent().expect("a directory")).expect("writable");
        fs::copy(project(file), place).expect("copied");
    }
    assert!(Command::new("python3").arg(copy.path().join(script)).status().expect("python").success());
    for file in made {
        let [made, kept] =
            [copy.path().join(file), project(file)].map(|path| fs::read(path).expect("a file"));
        assert!(made == kept, "{script} is to be run again for {file}");
    }
}

/// The dashboard of `deploy/grafana`, as it finds one.
#[test]
fn grafanas_sidecar_finds_the_dashboard() {
    let dashboard = find(built(OVERLAYS[1]), "ConfigMap", "tollgate-dashboard").expect("a dashboard");
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(dashboard["metadata"]["name"], "tollgate-dashboard");
    let json = dashboard["data"]["tollgate.json"].as_str().expect("a text");
    assert_eq!(json, fs::read_to_string(project("deploy/grafana/tollgate.json")).expect("readable"));
    // What kubectl notes of an object has to find room in an annotation.
    assert!(json.len() < 250 * 1024);
}
