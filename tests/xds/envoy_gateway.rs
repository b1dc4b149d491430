//! Envoy Gateway's rate-limit deployment, with tollgate in it.

use std::os::unix::fs::symlink;

use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::control_plane::{ControlPlane, config};
use super::*;
use crate::support::Process;

/// The deployment's container.
struct Container {
    _process: Process,
    directory: TempDir,
    grpc_port: u16,
    http_port: u16,
}

impl Container {
    /// Starts what the image has as `/bin/ratelimit`, with the variables that Envoy Gateway sets.
    fn start(plane: u16, redis: u16, authority: &Authority, own: &Pair) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let certificates = directory.path().display().to_string();
        write(directory.path(), "ca.crt", &authority.pem());
        write(directory.path(), "tls.crt", &own.certificate);
        write(directory.path(), "tls.key", &own.key);
        let mapping = project("crates/envoyproxy/src/variables/envoy_gateway_mapping.yaml");
        fs::copy(mapping, directory.path().join("conf.yaml")).expect("copied");
        let program = directory.path().join("ratelimit");
        symlink(command().get_program(), &program).expect("a link");
        let (grpc_port, http_port) = (free_port(), free_port());
        let log = File::create(directory.path().join("log")).expect("writable");

        let mut container = Command::new(program);
        container.env_clear().current_dir(directory.path()).stdin(Stdio::null());
        container.stdout(Stdio::from(log.try_clone().expect("a file"))).stderr(Stdio::from(log));
        for (name, value) in variables(&project("tests/xds/envoy-gateway.env")) {
            let value = value.replace("/certs", &certificates);
            let value = value.replace("envoy-gateway:18001", &format!("localhost:{plane}"));
            let value =
                value.replace("redis.redis-system.svc.cluster.local:6379", &format!("127.0.0.1:{redis}"));
            let value = value.replace("/etc/statsd-exporter", &certificates);
            let value = value.replace(":19001", &format!(":{}", free_port()));
            container.env(name, value);
        }
        for (name, port) in [("GRPC_PORT", grpc_port), ("PORT", http_port), ("DEBUG_PORT", free_port())] {
            container.env(name, port.to_string());
        }
        // Which `deploy/envoy-gateway/values.yaml` adds.
        container.env("TOLLGATE_GRPC_TLS_CLIENT_CA", format!("{certificates}/ca.crt"));
        // Redis answers late on a busy machine.
        container.env("TOLLGATE_STORE_TIMEOUT", "5s");
        let process = Process::of(container.spawn().expect("it starts"), None);
        Self { _process: process, directory, grpc_port, http_port }
    }

    fn is_ready(&self) -> bool {
        let answer = http::try_get(&format!("http://127.0.0.1:{}/healthcheck", self.http_port));
        answer.is_some_and(|answer| answer.status == 200)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).expect("a text")
    }

    /// The lines of the log that are more than information.
    fn problems(&self) -> Vec<String> {
        let log = self.log();
        let is_problem = |line: &&str| ["WARN", "ERROR"].iter().any(|level| line.contains(level));
        log.lines().filter(is_problem).map(str::to_owned).collect()
    }

    /// An Envoy, which shows a certificate too.
    async fn envoy(&self, authority: &Authority, shown: &Pair) -> RateLimitServiceClient<Channel> {
        let channel = self.endpoint(authority, shown).connect().await.expect("it listens");
        RateLimitServiceClient::new(channel)
    }

    fn endpoint(&self, authority: &Authority, shown: &Pair) -> Endpoint {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority.pem()))
            .identity(Identity::from_pem(&shown.certificate, &shown.key))
            .domain_name("envoy-ratelimit");
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.grpc_port)).expect("a URL");
        endpoint.tls_config(tls).expect("good TLS")
    }
}

/// The variables of a file.
fn variables(path: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).expect("a text");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.split_once('=').expect("a variable");
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// The control plane of an Envoy Gateway, with a Redis.
fn gateway() -> (Authority, Redis, ControlPlane) {
    let authority = Authority::new("envoy-gateway");
    let own = authority.sign(&["envoy-gateway", "localhost"]);
    let plane = ControlPlane::start_tls(free_port(), &own, &authority);
    (authority, Redis::start(), plane)
}

fn container(plane: &ControlPlane, redis: &Redis, authority: &Authority) -> Container {
    Container::start(plane.port, redis.port(), authority, &authority.sign(&["envoy-ratelimit"]))
}

#[tokio::test]
async fn the_deployment_of_envoy_gateway_runs_with_tollgate_in_place_of_its_image() {
    let (authority, redis, plane) = gateway();
    let container = container(&plane, &redis, &authority);
    let opening = plane.wait_for(|_| true);
    assert_eq!(opening.node.expect("a node").id, "envoy-ratelimit");
    assert!(!container.is_ready(), "there may be rules");

    plane.push("1", &[config("envoy-gateway-system/eg/http", "route", 2)]);
    plane.wait_for_ack("1");
    wait("readiness", || container.is_ready());
    let mut envoy = container.envoy(&authority, &authority.sign(&["envoy"])).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        let call = request("envoy-gateway-system/eg/http", &[&[("route", "r")]]);
        let answer = envoy.should_rate_limit(call).await.expect("an answer");
        codes.push(answer.get_ref().overall_code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut redis.connect()).expect("answers");
    assert!(!keys.is_empty(), "counters are in Redis");
    assert_eq!(container.problems(), Vec::<String>::new());

    // Another client in the cluster.
    let other = Authority::new("other").sign(&["envoy"]);
    let mut foreign = RateLimitServiceClient::new(container.endpoint(&authority, &other).connect_lazy());
    let call = request("envoy-gateway-system/eg/http", &[&[("route", "r")]]);
    foreign.should_rate_limit(call).await.expect_err("it is refused");

    // The last policy is deleted.
    plane.push("2", &[]);
    plane.wait_for_ack("2");
    let call = request("envoy-gateway-system/eg/http", &[&[("route", "r")]]);
    assert_eq!(envoy.should_rate_limit(call).await.expect("an answer").get_ref().overall_code(), Code::Ok);
    assert!(container.is_ready());
}

#[test]
fn without_any_policy_the_rate_limit_deployment_is_ready_at_once() {
    let (authority, redis, plane) = gateway();
    // For a Gateway without a policy, Envoy Gateway pushes an empty set.
    plane.push("1", &[]);
    let container = container(&plane, &redis, &authority);
    plane.wait_for_ack("1");
    wait("readiness", || container.is_ready());
    assert!(!container.log().contains("sent no rules for this node"), "{}", container.log());
    let problems = container.problems();
    assert!(problems.iter().all(|line| line.contains("no rules: every request passes")), "{problems:?}");
}

#[test]
fn without_any_gateway_the_rate_limit_deployment_becomes_ready() {
    let (authority, redis, plane) = gateway();
    let container = container(&plane, &redis, &authority);
    plane.wait_for(|_| true);
    // Envoy Gateway then sends no response at all, like a control plane without rules for this node.
    wait("readiness", || container.is_ready());
    assert!(container.log().contains("control plane sent no rules for this node"), "{}", container.log());
}
