//! Network policies let through exactly the traffic of tollgate, Redis and their clients.

use super::*;
use crate::support::Process;

/// Who is on the other side of a rule, and the ports, as text: `namespace/labels: protocol port`.
pub(super) fn passes(rules: &Value, side: &str) -> BTreeSet<String> {
    let rules = rules.as_array().into_iter().flatten();
    let pairs = rules.flat_map(|rule| {
        let peers = rule[side].as_array().expect("an empty selector would match everyone").iter();
        let ports = rule["ports"].as_array().expect("no port is meant by every one");
        peers.flat_map(move |peer| ports.iter().map(move |port| format!("{}: {}", who(peer), at(port))))
    });
    pairs.collect()
}

fn at(port: &Value) -> String {
    let number = port["port"].as_str().map_or_else(|| port["port"].to_string(), str::to_owned);
    format!("{} {number}", port["protocol"].as_str().expect("a protocol"))
}

fn who(peer: &Value) -> String {
    let labels = |selector: &Value| {
        let named = selector["matchLabels"].as_object().into_iter().flatten();
        let mut all: Vec<String> = named
            .map(|(name, value)| {
                let name = name.rsplit(['/', '.']).next().unwrap_or_default();
                format!("{name}={}", value.as_str().expect("a text"))
            })
            .collect();
        let listed = selector["matchExpressions"].as_array().into_iter().flatten();
        all.extend(listed.map(|each| format!("{} {}", each["operator"], each["values"]).replace('"', "")));
        all.join(",")
    };
    match peer["ipBlock"]["cidr"].as_str() {
        Some(cidr) => cidr.to_owned(),
        None => format!("[{}] {}", labels(&peer["namespaceSelector"]), labels(&peer["podSelector"])),
    }
}

#[test]
fn the_policy_lets_through_the_needed_traffic_and_no_more() {
    for overlay in OVERLAYS.into_iter().filter(|overlay| !overlay.ends_with("dev")) {
        let policy = find(built(overlay), "NetworkPolicy", "tollgate").expect("a policy");
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        let within = passes(&policy["spec"]["ingress"], "from");
        let expected = [
            "[In [istio-system,istio-ingress]] : TCP grpc",
            "[name=monitoring] : TCP http",
            "[tollgate-client=true] : TCP grpc",
            "[tollgate-operator=true] : TCP 6070",
        ];
        assert_eq!(within, expected.map(str::to_owned).into());
        let mut without = passes(&policy["spec"]["egress"], "to");
        // An example of addresses, which an overlay adds.
        without.remove("10.20.0.0/16: TCP 6379");
        let expected = [
            "169.254.20.10/32: TCP 53",
            "169.254.20.10/32: UDP 53",
            "[] component=redis: TCP 26379",
            "[] component=redis: TCP 6379",
            "[name=envoy-gateway-system] control-plane=envoy-gateway: TCP 18001",
            "[name=kube-system] k8s-app=kube-dns: TCP 53",
            "[name=kube-system] k8s-app=kube-dns: UDP 53",
            "[name=monitoring] : TCP 4317",
            "[name=monitoring] : TCP 4318",
        ];
        assert_eq!(without, expected.map(str::to_owned).into(), "{overlay}");
    }
}

/// The admitted peers are existing pods, with all their ports: Redis' cluster bus has a port of its own.
#[test]
fn redis_is_for_tollgate_and_for_redis() {
    for overlay in ["deploy/kubernetes/overlays/production", "tests/deploy/overlays/sentinel"] {
        let policy = find(built(overlay), "NetworkPolicy", "redis").expect("a policy");
        assert_eq!(
            policy["spec"]["podSelector"]["matchLabels"],
            json!({"app.kubernetes.io/component": "redis"})
        );
        let rules = policy["spec"]["ingress"].as_array().expect("a list");
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].get("ports"), None);
        let peers: Vec<_> = rules[0]["from"].as_array().expect("a list").iter().map(who).collect();
        assert_eq!(peers, ["[] component=server,name=tollgate", "[] component=redis"]);
    }
}

/// Names in certificates are those by which it is reached.
#[test]
fn the_certificate_is_valid_for_the_services_names() {
    let documents = built(OVERLAYS[1]);
    let certificate = find(documents, "Certificate", "tollgate").expect("a certificate");
    for name in certificate["spec"]["dnsNames"].as_array().expect("a list") {
        let parts: Vec<_> = name.as_str().expect("a name").split('.').collect();
        let service = find(documents, "Service", parts[0]).expect("a service");
        assert_eq!(service["metadata"]["namespace"], parts[1]);
        assert!([["svc"].as_slice(), &["svc", "cluster", "local"]].contains(&&parts[2..]), "{name}");
    }
    assert_eq!(certificate["spec"]["usages"], json!(["digital signature", "server auth"]));
    let pod = find(documents, "Deployment", "tollgate").expect("a deployment");
    let volumes = pod.pointer("/spec/template/spec/volumes").and_then(Value::as_array).expect("a list");
    let secret = volumes.iter().find(|volume| volume["name"] == "tls").expect("a volume");
    assert_eq!(secret["secret"]["secretName"], certificate["spec"]["secretName"]);
}

/// The component `ipv6`: who comes by IPv4 is served as well.
#[test]
fn with_ipv6_both_kinds_of_addresses_are_served() {
    let mut environment = environment(built("tests/deploy/overlays/operators"), "memory");
    environment.retain(|name, _| name.ends_with("_ADDRESS") && !name.contains("ADMIN"));
    let mut program = command();
    let port = free_port();
    for (name, address) in &environment {
        let (host, _) = address.rsplit_once(':').expect("an address");
        let port = if name.contains("HTTP") { port } else { free_port() };
        program.env(name, format!("{host}:{port}"));
    }
    program.env("TOLLGATE_ADMIN_ADDRESS", "off").env("TOLLGATE_CONFIG", project("config/default"));
    let _process = Process::of(program.spawn().expect("it starts"), None);
    for host in ["127.0.0.1", "[::1]"] {
        let url = format!("http://{host}:{port}/ready");
        wait(host, || http::try_get(&url).is_some_and(|answer| answer.status == 200));
    }
}
