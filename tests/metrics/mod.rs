//! Observability: the metrics page, the Grafana dashboard, the alerts and their runbooks, all checked against running
//! instances.

mod alerts;
mod anomalies;
mod dashboard;
mod page;

use crate::support::{prelude::*, prometheus::promtool};
use crate::xds::control_plane::ControlPlane;

const RULES: &str = "
domain: edge
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 3}}
- {key: watched, rate_limit: {unit: year, requests_per_unit: 3}, shadow_mode: true}
- {key: service, value: shop, load_shedding: {target: 80%}}
- key: tenant
  descriptors:
  - key: path
    descriptors:
    - {key: method, rate_limit: {unit: year, requests_per_unit: 3}}
";

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn page(tollgate: &Tollgate) -> String {
    tollgate.metrics()
}

/// Instances of every kind: with a Redis that has versions of the rules, with one that is not there, and without any but
/// with TLS or a control plane.
struct Instances {
    redis: Tollgate,
    degraded: Tollgate,
    memory: Tollgate,
    with_control_plane: Tollgate,
    server: Redis,
    _plane: ControlPlane,
    _directories: [TempDir; 2],
}

impl Instances {
    fn start() -> Self {
        let (config, server) = (rules(RULES), Redis::start());
        let url = server.url();
        let versions = ["--store", &url, "--store-timeout", "5s", "--rules", "redis", "--reference-metrics"];
        let redis = Tollgate::start(config.path(), &versions);
        let unreachable =
            ["--store", "redis://127.0.0.1:1", "--on-store-error", "local", "--ready-without-store"];
        let degraded = Tollgate::start(config.path(), &unreachable);
        let files = tempfile::tempdir().expect("a temporary directory");
        Authority::new("ours").sign(&["localhost"]).write(files.path());
        let pair =
            ["cert.pem", "key.pem"].map(|name| files.path().join(name).display().to_string()).join(",");
        let tls = ["--grpc-tls", &pair];
        let memory = Tollgate::start(config.path(), &tls);
        let plane = ControlPlane::start();
        plane.push("1", &[]);
        let with_control_plane =
            Tollgate::start(config.path(), &["--rules", "xds", "--xds-server", &plane.url()]);
        let directories = [config, files];
        Self { redis, degraded, memory, with_control_plane, server, _plane: plane, _directories: directories }
    }

    fn all(&self) -> [&Tollgate; 4] {
        [&self.redis, &self.degraded, &self.memory, &self.with_control_plane]
    }

    /// Requests of every kind: that pass, that are near and over a limit, watched, of unknown domains, and malformed.
    async fn send_requests(&self) {
        for tollgate in [&self.redis, &self.degraded] {
            let mut client = tollgate.client().await;
            for _ in 0..5 {
                let deep = [("tenant", "acme"), ("path", "/"), ("method", "GET")];
                let report = [("service", "shop"), ("utilization", "0.5")];
                let all: [&[(&str, &str)]; 4] = [&[("user", "me")], &[("watched", "me")], &deep, &report];
                let _ = client.call(request("edge", &all)).await.expect("an answer");
            }
            let _ = client.call(request("unknown", &[&[("user", "me")]])).await.expect("an answer");
            assert!(client.call(request("", &[])).await.is_err());
        }
        self.memory.hit("edge", &[("user", "me")]);
    }
}

/// The names of metrics in an expression, which all have one of our prefixes.
fn names(expression: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = expression.split(|character| !is_part(character)).map(str::to_owned);
    words.filter(|word| word.starts_with("tollgate_") || word.starts_with("process_")).collect()
}

/// The samples of a page, by name.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
        })
        .collect()
}
