//! Environments of the reference start the program as they are, which says of each variable without effect that it has
//! none, and nothing of the others.
//!
//! In their files, `{…}` stands for what differs from run to run, and `#!` before a warning that is expected.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::symlink;

use super::program::{Running, Variables, read};
use super::*;
use crate::{support::sentinel, topologies::tls::Certificates};

/// The surroundings that an environment needs; they end with the test.
struct World {
    root: TempDir,
    redis: Redis,
    cluster: Option<Cluster>,
    certificates: Certificates,
    /// Takes what is sent, by either protocol.
    statsd: (TcpListener, UdpSocket),
}

impl World {
    fn new(name: &str) -> Self {
        let certificates = Certificates::new();
        let cluster = (name == "cluster").then(|| {
            let mut arguments = certificates.arguments();
            arguments.extend(["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned));
            Cluster::start(2, 0, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), "sesame")
        });
        let port = free_port();
        let tcp = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let udp = UdpSocket::bind(("127.0.0.1", port)).expect("a free port");
        let root = tempfile::tempdir().expect("a temporary directory");
        Self { root, redis: Redis::start(), cluster, certificates, statsd: (tcp, udp) }
    }

    /// The environment of a name, as it is here.
    fn variables(&self, name: &str) -> Variables {
        let mut variables = read(&project(&format!("tests/reference/environments/{name}.env")));
        let cluster = self.cluster.as_ref().map_or(0, |cluster| cluster.port(0));
        let unix = self.redis.unix_url();
        for value in variables.values_mut() {
            for (name, here) in [
                ("{root}", self.root.path().display().to_string()),
                ("{redis}", format!("127.0.0.1:{}", self.redis.port())),
                ("{socket}", unix.trim_start_matches("redis+unix://").to_owned()),
                ("{cluster}", format!("127.0.0.1:{cluster}")),
                ("{certificates}", self.certificates.path("").display().to_string()),
                ("{statsd}", self.statsd.0.local_addr().expect("bound").port().to_string()),
            ] {
                *value = value.replace(name, &here);
            }
            if value.contains("{prometheus}") {
                *value = value.replace("{prometheus}", &free_port().to_string());
            }
            if value.contains("{sentinels}") {
                *value = value.replace("{sentinels}", &sentinel::shared().addresses());
            }
        }
        self.mount(&variables);
        variables
    }

    /// Puts rules where the environment has them, as a ConfigMap is mounted.
    fn mount(&self, variables: &Variables) {
        let below = variables.get("RUNTIME_SUBDIRECTORY").map_or("", String::as_str);
        let app = variables.get("RUNTIME_APPDIRECTORY").map_or("config", String::as_str);
        let mount = self.root.path().join(below).join(app);
        fs::create_dir_all(mount.join("..2026_07_01")).expect("created");
        let rules = project("tests/reference/config/basic/rules/rules.yaml");
        fs::copy(rules, mount.join("..2026_07_01/rules.yaml")).expect("copied");
        symlink("..2026_07_01", mount.join("..data")).expect("linked");
        symlink("..data/rules.yaml", mount.join("rules.yaml")).expect("linked");
    }
}

/// The warnings that an environment's file expects, sorted.
fn expected(name: &str) -> Vec<String> {
    let path = project(&format!("tests/reference/environments/{name}.env"));
    let text = fs::read_to_string(path).expect("a text");
    let mut all: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("#! ")).map(str::to_owned).collect();
    all.sort();
    all
}

fn warnings(running: &Running) -> Vec<String> {
    let mut all = running.warnings();
    all.sort();
    all
}

/// Starts an environment, sends requests until one is denied, and checks its pages.
async fn check(name: &str) {
    let world = World::new(name);
    let running = Running::start(world.variables(name));
    let json = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "plan", "value": "trial"}]}]}"#;
    let statuses = [(); 3].map(|()| http::post(&running.url("PORT", "/json"), json).status);
    assert_eq!(statuses, [200, 200, 429], "{name}");
    if !running.variables.contains_key("GRPC_SERVER_USE_TLS") {
        let answer = running.call(request("shop", &[&[("plan", "trial")]])).await;
        assert_eq!(answer.overall_code(), Code::OverLimit, "{name}");
    }
    let health = http::get(&running.url("PORT", "/healthcheck"));
    assert_eq!((health.status, &*health.body), (200, "OK"), "{name}");
    let listed = http::get(&running.url("DEBUG_PORT", "/rlconfig")).body;
    assert!(listed.contains("shop.plan_trial: unit=DAY requests_per_unit=2, "), "{name}: {listed}");
    if let Some(address) = running.variables.get("PROMETHEUS_ADDR") {
        let path = &running.variables["PROMETHEUS_PATH"];
        let page = http::get(&format!("http://{address}{path}"));
        let series = "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"plan_trial\"} 4";
        assert!(page.body.lines().any(|line| line == series), "{name}: {}", page.body);
        assert_eq!(http::get(&format!("http://{address}/json")).status, 404, "{name}");
    }
    assert_eq!(warnings(&running), expected(name), "{name}:\n{}", running.output());
}

macro_rules! environments {
    ($($name:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            check(stringify!($name)).await;
        })*

        #[test]
        fn every_environment_is_run() {
            let folder = fs::read_dir(project("tests/reference/environments")).expect("a folder");
            let name = |entry: fs::DirEntry| entry.path().file_stem().map(|name| name.display().to_string());
            let mut found: Vec<_> = folder.filter_map(|entry| name(entry.expect("readable"))).collect();
            found.sort();
            assert_eq!(found, [$(stringify!($name)),*]);
        }
    };
}

environments! {
    cluster compose dogstatsd everything istio memcached per_second prometheus sentinel statsd tls unix without_redis
}
