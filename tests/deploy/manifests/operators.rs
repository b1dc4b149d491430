//! The component `operators`: rules in Redis, changed by any instance, by who has a token.

use super::*;

const OVERLAY: &str = "tests/deploy/overlays/operators";
const TOKENS: &str = "ann operator 0123456789abcdef\ngrafana viewer fedcba9876543210\n";

/// An instance with the pod's variables; where it listens, and where its files are, is of this test.
fn instance(url: &str, tokens: &str) -> Tollgate {
    let mut environment = environment(built(OVERLAY), url);
    for stated in ["TOLLGATE_CONFIG", "TOLLGATE_ADMIN_ADDRESS", "TOLLGATE_REDIS_CA"] {
        assert!(environment.remove(stated).is_some(), "{stated}");
    }
    // TLS is another component, and tested by itself.
    environment.retain(|name, _| !name.starts_with("TOLLGATE_GRPC_TLS"));
    environment.insert("TOLLGATE_ADMIN_TOKEN_FILE".to_owned(), tokens.to_owned());
    let mut program = command();
    program.envs(environment).env("TOLLGATE_STORE_TIMEOUT", "5s");
    Tollgate::spawn_by(program, &project("config/default"), &[])
}

#[test]
fn operators_change_the_rules_of_all_pods_through_any_pod() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tokens = directory.path().join("tokens");
    fs::write(&tokens, TOKENS).expect("writable");
    let pods = [(); 2].map(|()| instance(&redis.url(), tokens.to_str().expect("a text")));
    pods.iter().for_each(Tollgate::wait_until_ready);
    let status = |pod: &Tollgate, token: &str| {
        http::get_with(&pod.admin_url("/api/v1/versions/current"), &format!("Bearer {token}"))
    };
    assert_eq!(http::get(&pods[0].admin_url("/api/v1/versions/current")).status, 401);
    for pod in &pods {
        let seen = status(pod, "fedcba9876543210");
        assert_eq!(seen.status, 200, "{}", seen.body);
        let version = seen.json();
        assert_eq!(
            version["version"]["number"], 1,
            "the files of the ConfigMap are the first version: {version}"
        );
    }
    let name = "Bearer 0123456789abcdef";
    let headers = [("authorization", name), ("content-type", "application/json")];
    let file = "domain: new\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 987654}}\n";
    let change = json!({"based_on": 1, "comment": "c", "files": {"e.yaml": file}, "force": true}).to_string();
    let url = pods[0].admin_url("/api/v1/versions");
    let viewer = [("authorization", "Bearer fedcba9876543210"), headers[1]];
    assert_eq!(http::send("POST", &url, &viewer, Some(&change)).status, 403);
    let applied = http::send("POST", &url, &headers, Some(&change));
    assert_eq!(applied.status, 201, "{}", applied.body);
    wait("the other pod does not enforce it", || {
        pods[1].hit("new", &[("k", "v")]).body.contains("\"requestsPerUnit\":987654")
    });
}

/// The port of the Service and the pod is the port of the settings, and only the pod's group can read the Secret.
#[test]
fn the_admin_port_has_a_service_and_tokens_are_for_the_pod_alone() {
    let documents = built(OVERLAY);
    let service = find(documents, "Service", "tollgate-admin").expect("a service");
    let port = &service["spec"]["ports"][0];
    assert_eq!((port["port"].as_u64(), port["targetPort"].as_str()), (Some(6070), Some("admin")));
    assert_eq!(service["spec"]["sessionAffinity"], "ClientIP");
    assert_eq!(service["spec"].get("type"), None, "no access from outside the cluster");
    let pod = find(documents, "Deployment", "tollgate").and_then(|it| it.pointer("/spec/template/spec"));
    let pod = pod.expect("a pod");
    let volumes = pod["volumes"].as_array().expect("a list").iter();
    let secret =
        volumes.filter_map(|volume| volume.get("secret")).find(|it| it["secretName"] == "tollgate-operators");
    assert_eq!(secret.expect("a volume")["defaultMode"], 0o440);
    assert_eq!(pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsGroup"]);
    let files = environment(documents, "memory");
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("a list").iter();
    let mount = mounts.clone().find(|mount| mount["name"] == "operators").expect("a mount");
    assert_eq!(
        files["TOLLGATE_ADMIN_TOKEN_FILE"],
        format!("{}/tokens", mount["mountPath"].as_str().expect("a path"))
    );
}
