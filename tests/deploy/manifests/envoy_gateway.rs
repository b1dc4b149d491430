//! `deploy/envoy-gateway`: words that its API knows, and the Deployment that Envoy Gateway makes of them.

use serde_json::Map;

use super::*;

/// A file, held to what Envoy Gateway knows.
fn checked(name: &str) -> Value {
    let input = fs::read(project(&format!("deploy/envoy-gateway/{name}"))).expect("readable");
    python(&["tests/deploy/envoy-gateway/check.py", name], input)
}

/// Variables that Envoy Gateway 1.9 sets, as far as they matter to tollgate without a control plane; the protocol has
/// tests of its own.
const VARIABLES: [(&str, &str); 10] = [
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("USE_PROMETHEUS", "true"),
    ("GRPC_SERVER_USE_TLS", "true"),
];

/// A list with Envoy Gateway's own element, and those of the values.
fn with(own: Value, stated: &Value) -> Value {
    let stated = stated.as_array().into_iter().flatten().cloned();
    std::iter::once(own).chain(stated).collect()
}

/// The Deployment that it makes of the values.
fn made(values: &Value) -> Value {
    let spec = &values["config"]["envoyGateway"]["provider"]["kubernetes"]["rateLimitDeployment"];
    let labels = json!({
        "app.kubernetes.io/name": "envoy-ratelimit",
        "app.kubernetes.io/component": "ratelimit",
        "app.kubernetes.io/managed-by": "envoy-gateway",
    });
    let probe = json!({"httpGet": {"path": "/healthcheck", "port": 8080, "scheme": "HTTP"}});
    let mut env: Vec<Value> =
        VARIABLES.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    env.extend(spec["container"]["env"].as_array().expect("a list").iter().cloned());
    let mut deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "envoy-ratelimit", "labels": labels},
        "spec": {
            "strategy": spec["strategy"],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 300,
                    "securityContext": spec["pod"]["securityContext"],
                    "topologySpreadConstraints": spec["pod"]["topologySpreadConstraints"],
                    "volumes": with(json!({"name": "certs", "secret": {"secretName": "envoy-rate-limit"}}), &spec["pod"]["volumes"]),
                    "containers": [{
                        "name": "envoy-ratelimit",
                        "image": spec["container"]["image"],
                        "command": ["/bin/ratelimit"],
                        "env": env,
                        "ports": [
                            {"name": "grpc", "containerPort": 8081},
                            {"name": "metrics", "containerPort": 19001},
                            // Not declared by Envoy Gateway, but open nevertheless.
                            {"name": "http", "containerPort": 8080},
                        ],
                        "resources": spec["container"]["resources"],
                        "securityContext": spec["container"]["securityContext"],
                        "volumeMounts": with(
                            json!({"name": "certs", "mountPath": "/certs", "readOnly": true}),
                            &spec["container"]["volumeMounts"],
                        ),
                        "startupProbe": probe,
                        "readinessProbe": probe,
                        "livenessProbe": probe,
                    }],
                },
            },
        },
    });
    merge(&mut deployment, &spec["patch"]["value"]);
    deployment
}

/// A strategic merge, as far as the patch needs one: mappings field by field, and lists by the names in them.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert_with(|| Value::Object(Map::new())), value);
            }
        }
        (Value::Array(into), Value::Array(patch)) => {
            for item in patch {
                let named = into.iter_mut().find(|it| it["name"] == item["name"]);
                merge(named.expect("one of this name"), item);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

#[test]
fn envoy_gateway_generates_a_consistent_deployment() {
    let values = checked("values.yaml");
    let deployment = made(&values);
    let overlay = fs::read_to_string(project("deploy/envoy-gateway/overlay.yaml")).expect("readable");
    let all = format!("{deployment}\n---\n{overlay}");
    let documents = python(&["tests/deploy/manifests.py"], all.into_bytes());
    assert_eq!(consistency_check::of_pods(documents.as_array().expect("a list")), [""; 0]);
    let update = &deployment["spec"]["strategy"]["rollingUpdate"];
    assert_eq!((&update["maxUnavailable"], &update["maxSurge"]), (&json!(0), &json!(1)));
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        container["livenessProbe"]["httpGet"],
        json!({"path": "/live", "port": 8080, "scheme": "HTTP"})
    );
    let spread = &pod["topologySpreadConstraints"][0];
    let labels = deployment["metadata"]["labels"].as_object().expect("labels");
    for (name, value) in spread["labelSelector"]["matchLabels"].as_object().expect("labels") {
        assert_eq!(labels.get(name), Some(value));
    }
    assert_eq!(spread["nodeTaintsPolicy"], "Honor");
    assert_eq!(spread["matchLabelKeys"][0], "pod-template-hash");
    let limits = &values["config"]["envoyGateway"]["rateLimit"];
    assert_eq!((&limits["timeout"], &limits["failClosed"]), (&json!("20ms"), &json!(false)));
    let processors = container["resources"]["requests"]["cpu"].as_str().expect("a number");
    let scaler = &values["config"]["envoyGateway"]["provider"]["kubernetes"]["rateLimitHpa"];
    assert_eq!(scaler["metrics"][0]["resource"]["target"]["averageUtilization"], 60);

    let mut variables: BTreeMap<String, String> = container["env"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|each| {
            (each["name"].as_str().expect("a text").into(), each["value"].as_str().expect("a text").into())
        })
        .collect();
    let url = values.pointer("/config/envoyGateway/rateLimit/backend/redis/url").and_then(Value::as_str);
    variables.insert("REDIS_URL".into(), url.expect("a URL").into());
    // Its certificates are not here.
    variables.remove("GRPC_SERVER_USE_TLS");
    // The overlay is mounted where tollgate looks for it.
    let mounts = container["volumeMounts"].as_array().expect("a list");
    let overlay = mounts.iter().find(|mount| mount["name"] == "overlay").expect("is mounted");
    assert_eq!(variables.remove("TOLLGATE_RULES_OVERLAY").as_deref(), overlay["mountPath"].as_str());
    let authority = variables.remove("TOLLGATE_GRPC_TLS_CLIENT_CA");
    assert_eq!(authority.as_deref(), Some("/certs/ca.crt"), "without a token any client may call it");
    let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
    let Ok(settings::Command::Serve(settings)) = settings::parse(["ratelimit".into()], variables) else {
        panic!("its variables are not understood");
    };
    assert_eq!(settings.process.workers.get().to_string(), processors);
    assert!((5..60).contains(&settings.process.drain_delay.as_secs()));
}

#[test]
fn the_policy_for_envoy_gateway_states_limits() {
    let policy = checked("policy.yaml");
    let rules = policy.pointer("/spec/rateLimit/global/rules").and_then(Value::as_array).expect("rules");
    let limits: Vec<_> =
        rules.iter().map(|rule| (rule["limit"]["requests"].as_u64(), &rule["limit"]["unit"])).collect();
    let minute = json!("Minute");
    assert_eq!(limits, [(Some(100), &minute), (Some(100), &minute), (Some(20), &minute)]);
    for (rule, every_address) in rules.iter().zip(["0.0.0.0/0", "::/0"]) {
        let cidr = &rule["clientSelectors"][0]["sourceCIDR"];
        assert_eq!(*cidr, json!({"type": "Distinct", "value": every_address}));
    }
    assert_eq!(
        rules[2]["clientSelectors"][0]["headers"][0],
        json!({"type": "Distinct", "name": "x-user-id"})
    );
}

#[test]
fn the_overlay_for_envoy_gateway_matches_the_limits_of_the_policy() {
    let overlay = yaml("deploy/envoy-gateway/overlay.yaml");
    let values = checked("values.yaml");
    let volume = values.pointer("/config/envoyGateway/provider/kubernetes/rateLimitDeployment/pod/volumes/0");
    assert_eq!(volume.expect("a volume")["configMap"]["name"], overlay["metadata"]["name"]);
    assert_eq!(overlay["metadata"]["namespace"], "envoy-gateway-system");
    let policy = checked("policy.yaml");
    let (namespace, target) = (&policy["metadata"]["namespace"], &policy["spec"]["targetRefs"][0]);
    let name = |of: &Value| of.as_str().expect("a text").to_owned();
    let kind = name(&target["kind"]).to_lowercase();
    let route = format!("{kind}/{}/{}/rule/0/match/0/*", name(namespace), name(&target["name"]));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = overlay["data"]["limits.yaml"].as_str().expect("a text");
    fs::write(directory.path().join("limits.yaml"), text).expect("written");
    let slot = config::OverlaySlot::leaked(directory.path().to_owned());
    slot.load(tollgate::directory::read(directory.path()).expect("readable")).expect("valid");
    let generated = format!(
        "domain: envoy-gateway-system/eg/http\ndescriptors:\n- key: {route}\n  value: {route}\n  descriptors:\n  - key: \
         masked_remote_address\n    value: 0.0.0.0/0\n    descriptors:\n    - {{key: remote_address, rate_limit: {{unit: \
         minute, requests_per_unit: 100}}}}\n"
    );
    let options = Options { overlay: Some(slot), ..Options::default() };
    let loaded = config::load_files([("pushed.yaml".to_owned(), generated.into_bytes())], options);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let rule = loaded.rules.rules().next().expect("one");
    assert_eq!(rule.algorithm().map(|algorithm| algorithm.name()), Some("token_bucket"));
}

/// The policy selects the pods that Envoy Gateway creates, and lets the needed traffic through.
#[test]
fn the_network_policy_is_for_envoy_gateways_pods() {
    let policy = python(
        &["tests/deploy/manifests.py"],
        fs::read(project("deploy/envoy-gateway/network-policy.yaml")).expect("readable"),
    )[0]
    .clone();
    let deployment = made(&checked("values.yaml"));
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for (name, value) in policy["spec"]["podSelector"]["matchLabels"].as_object().expect("labels") {
        assert_eq!(&labels[name], value);
    }
    assert_eq!(policy["metadata"]["namespace"], "envoy-gateway-system");
    let within = network::passes(&policy["spec"]["ingress"], "from");
    let expected = [
        "[] component=proxy,managed-by=envoy-gateway: TCP 8081",
        "[name=monitoring] : TCP 19001",
        "[name=monitoring] : TCP 8080",
    ];
    assert_eq!(within, expected.map(str::to_owned).into());
    // `{}` is every namespace, and without it only that of the policy would count.
    assert!(policy.pointer("/spec/ingress/0/from/0/namespaceSelector").is_some());
    let without = network::passes(&policy["spec"]["egress"], "to");
    let expected = [
        "169.254.20.10/32: TCP 53",
        "169.254.20.10/32: UDP 53",
        "[] control-plane=envoy-gateway: TCP 18001",
        "[name=kube-system] k8s-app=kube-dns: TCP 53",
        "[name=kube-system] k8s-app=kube-dns: UDP 53",
        "[name=monitoring] : TCP 4317",
        "[name=redis-system] : TCP 6379",
    ];
    assert_eq!(without, expected.map(str::to_owned).into());
    let values = checked("values.yaml");
    let url = values.pointer("/config/envoyGateway/rateLimit/backend/redis/url").and_then(Value::as_str);
    assert!(url.is_some_and(|url| url.contains(".redis-system.svc") && url.ends_with(":6379")));
}

/// The monitor selects those pods, at an existing port, and labels them as the alerts expect.
#[test]
fn prometheus_sees_the_pods_of_envoy_gateway() {
    let monitor = yaml("deploy/envoy-gateway/pod-monitor.yaml");
    let deployment = made(&checked("values.yaml"));
    assert_eq!(monitor["metadata"]["namespace"], "envoy-gateway-system");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels");
    assert!(!selected.is_empty());
    for (name, value) in selected {
        assert_eq!(&labels[name], value);
    }
    // But for their names, the endpoints are those of tollgate's own pods.
    let mut own = yaml("deploy/kubernetes/components/monitoring/pod-monitor.yaml");
    own["spec"]["podMetricsEndpoints"][0]["port"] = json!("metrics");
    assert_eq!(monitor["spec"]["podMetricsEndpoints"], own["spec"]["podMetricsEndpoints"]);
    let ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().expect("a list");
    assert!(ports.contains(&json!({"name": "metrics", "containerPort": 19001})));
}
