//! The components for Redis: everyone knows all pods by their names, and tollgate where to find them.

use super::*;

/// `redis-N.service:port` of all pods that a StatefulSet makes.
fn pods(documents: &[Value], name: &str, port: u16) -> BTreeSet<String> {
    let set = find(documents, "StatefulSet", name).expect("a StatefulSet");
    let replicas = set["spec"]["replicas"].as_u64().expect("a number");
    let service = set["spec"]["serviceName"].as_str().expect("a name");
    let headless = find(documents, "Service", service).expect("a Service");
    assert_eq!(headless["spec"]["clusterIP"], "None", "pods have no names");
    assert_eq!(headless["spec"]["publishNotReadyAddresses"], true);
    assert!(set["spec"]["minReadySeconds"].as_u64().is_some_and(|seconds| seconds >= 10));
    (0..replicas).map(|index| format!("{name}-{index}.{service}:{port}")).collect()
}

/// The values of all variables of that name, in whatever container.
fn stated<'a>(documents: &'a [Value], variable: &str) -> Vec<&'a str> {
    let containers = documents.iter().filter_map(|it| it.pointer("/spec/template/spec/containers"));
    let variables = containers
        .flat_map(|containers| containers.as_array().into_iter().flatten())
        .flat_map(|container| container["env"].as_array().into_iter().flatten());
    variables.filter(|each| each["name"] == variable).filter_map(|each| each["value"].as_str()).collect()
}

/// The content of a component's Secret.
fn url(documents: &[Value]) -> String {
    let secret = find(documents, "Secret", "tollgate-store").expect("a Secret");
    let encoded = secret["data"]["url"].as_str().expect("a text");
    output_of(Command::new("sh").args(["-c", "echo \"$1\" | base64 -d", "sh", encoded]))
}

#[test]
fn the_nodes_of_the_cluster_and_tollgate_discover_each_other() {
    let documents = built("deploy/kubernetes/overlays/dev");
    let nodes = pods(documents, "redis-cluster", 6379);
    assert_eq!(nodes.len(), 6);
    let lists = stated(documents, "NODES");
    assert_eq!(lists.len(), 2, "the pods' and the job's");
    for list in lists {
        assert_eq!(list.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>(), nodes);
    }
    let settings = settings(&environment(documents, &url(documents)));
    assert!(format!("{:?}", settings.store).contains("redis-cluster"), "{:?}", settings.store);
    let set = find(documents, "StatefulSet", "redis-cluster").expect("a StatefulSet");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["sh", "/etc/redis/start.sh"]));
    assert_eq!(container["workingDir"], "/data");
    let script = find(documents, "ConfigMap", "redis-cluster").expect("a ConfigMap");
    let files: Vec<_> = script["data"].as_object().expect("a mapping").keys().collect();
    assert_eq!(files, ["create.sh", "redis.conf", "start.sh"]);
}

#[test]
fn the_sentinels_and_tollgate_discover_each_other() {
    let documents = built("tests/deploy/overlays/sentinel");
    let sentinels = pods(documents, "redis-sentinel", 26379);
    let lists = stated(documents, "SENTINELS");
    assert_eq!(lists.len(), 2, "each Redis calls them, too");
    for list in lists {
        assert_eq!(list.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>(), sentinels);
    }
    assert_eq!(stated(documents, "FIRST"), ["redis-sentinel-0.redis-sentinel:6379"; 2]);
    assert_eq!(stated(documents, "SELF"), ["$(POD).redis-sentinel:6379", "$(POD).redis-sentinel:26379"]);
    let url = url(documents);
    let (hosts, name) = url
        .strip_prefix("redis+sentinel://")
        .and_then(|rest| rest.split_once('/'))
        .expect("sentinels and a name");
    assert_eq!(hosts.split(',').map(str::to_owned).collect::<BTreeSet<_>>(), sentinels);
    let script = find(documents, "ConfigMap", "redis-sentinel").expect("a ConfigMap");
    assert!(
        script["data"]["start.sh"]
            .as_str()
            .is_some_and(|it| it.contains(&format!("sentinel monitor {name} ")))
    );
    settings(&environment(documents, &url));
}
