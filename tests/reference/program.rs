//! The program, started as the reference's image is: by variables alone; its ports, paths and signals.

use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::*;
use crate::support::Process;

/// The variables of an environment, by name.
pub(super) type Variables = BTreeMap<String, String>;

/// A program that runs, and what it wrote.
pub(super) struct Running {
    process: Process,
    directory: TempDir,
    pub(super) variables: Variables,
}

impl Running {
    /// Starts it with these variables and no others, but for what a busy machine needs and for ports that are free.
    pub(super) fn start(mut variables: Variables) -> Self {
        for name in ["PORT", "GRPC_PORT", "DEBUG_PORT"] {
            variables.insert(name.into(), free_port().to_string());
        }
        // A decision that is late would be this instance's own.
        variables.insert("TOLLGATE_STORE_TIMEOUT".into(), "5s".into());
        let directory = tempfile::tempdir().expect("a temporary directory");
        let output = fs::File::create(directory.path().join("output")).expect("created");
        let mut program = command();
        program.env_clear().envs(&variables).stdin(Stdio::null());
        program.stdout(output.try_clone().expect("cloned")).stderr(output);
        let process = Process::of(program.spawn().expect("the program starts"), None);
        let mut running = Self { process, directory, variables };
        running.wait_until_ready();
        running
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while http::try_get(&self.url("PORT", "/healthcheck")).is_none_or(|answer| answer.status != 200) {
            let ended = self.process.0.try_wait().expect("it was started");
            assert!(ended.is_none() && Instant::now() < deadline, "{ended:?}:\n{}", self.output());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A URL on the port that a variable names.
    pub(super) fn url(&self, port: &str, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.variables[port])
    }

    /// The output so far.
    pub(super) fn output(&self) -> String {
        fs::read_to_string(self.directory.path().join("output")).expect("a text")
    }

    /// The messages of its warnings, in their order.
    pub(super) fn warnings(&self) -> Vec<String> {
        let text = self.output();
        let of_line = |line: &str| match serde_json::from_str::<Value>(line) {
            Ok(line) => {
                (line["level"] == "WARN").then(|| line["notice"].as_str().expect("a text").to_owned())
            }
            Err(_) => {
                let (_, message) = line.split_once(" WARN ")?;
                let (_, event) = message.split_once(": ").expect("its origin");
                Some(event.strip_prefix("settings need attention notice=").unwrap_or(event).to_owned())
            }
        };
        text.lines().filter_map(of_line).collect()
    }

    /// Sends a request over gRPC.
    pub(super) async fn call(&self, request: RateLimitRequest) -> RateLimitResponse {
        let endpoint = Endpoint::from_shared(self.url("GRPC_PORT", "")).expect("a URL");
        let channel = endpoint.connect().await.expect("it listens");
        let answer = RateLimitServiceClient::new(channel).should_rate_limit(request).await;
        answer.expect("an answer").into_inner()
    }

    pub(super) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> Option<i32> {
        self.process.0.wait().expect("it was started").code()
    }
}

/// The variables of a file: lines of `NAME=VALUE`, and comments that begin with `#`.
pub(super) fn read(path: &Path) -> Variables {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once('=').unwrap_or_else(|| panic!("no variable: {line}")));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

const RULES: &str = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n";

/// The program with rules of a directory and these variables.
fn start(directory: &TempDir, others: &[(&str, &str)]) -> Running {
    let mut variables: Variables = [
        ("RUNTIME_ROOT".to_owned(), directory.path().display().to_string()),
        ("RUNTIME_APPDIRECTORY".to_owned(), ".".to_owned()),
        ("TOLLGATE_STORE".to_owned(), "memory".to_owned()),
    ]
    .into();
    variables.extend(others.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Running::start(variables)
}

#[test]
fn the_debug_port_points_to_what_it_lacks() {
    let config = rules(RULES);
    let running = start(&config, &[]);
    assert_eq!(http::get(&running.url("DEBUG_PORT", "/")).status, 200);
    for (path, content) in [
        ("/debug/pprof/", "perf record"),
        ("/debug/pprof/profile", "perf record"),
        ("/debug/pprof/trace?seconds=1", "perf record"),
    ] {
        let answer = http::get(&running.url("DEBUG_PORT", path));
        assert_eq!((answer.status, answer.body.lines().count()), (404, 1), "{path}");
        assert!(answer.body.contains(content), "{path}: {}", answer.body);
    }
}

#[test]
fn counts_have_lines_on_the_debug_port() {
    let config = rules(RULES);
    let running = start(&config, &[]);
    let json = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    let statuses = [(); 3].map(|()| http::post(&running.url("PORT", "/json"), json).status);
    assert_eq!(statuses, [200, 429, 429]);
    let page = http::get(&running.url("DEBUG_PORT", "/stats")).body;
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines.is_sorted(), "{page}");
    for line in [
        "ratelimit.service.rate_limit.d.k.total_hits: 3",
        "ratelimit.service.rate_limit.d.k.within_limit: 1",
        "ratelimit.service.rate_limit.d.k.over_limit: 2",
        "ratelimit.service.config_load_success: 1",
        "ratelimit.service.config_load_error: 0",
    ] {
        assert!(lines.contains(&line), "no {line} in\n{page}");
    }
}

#[test]
fn the_metrics_port_serves_only_its_path() {
    let config = rules(RULES);
    let address = format!("127.0.0.1:{}", free_port());
    let listen = format!("{address}/a/b");
    let variables = [("TOLLGATE_METRICS_ADDRESS", &*listen)];
    let running = start(&config, &variables);
    let page = http::get(&format!("http://{address}/a/b"));
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    assert!(page.body.contains("\ntollgate_rules 1\n"), "{}", page.body);
    // Names of the reference are another matter.
    assert!(!page.body.contains("ratelimit_service_"));
    for path in ["/", "/metrics", "/a/b/", "/json", "/healthcheck"] {
        assert_eq!(http::get(&format!("http://{address}{path}")).status, 404, "{path}");
    }
    let posted = http::post(&format!("http://{address}/a/b"), "{}");
    assert_eq!(posted.status, 405);
    assert!(running.output().contains("metrics port open"), "{}", running.output());
}

#[tokio::test]
async fn the_health_service_uses_the_references_name() {
    let config = rules(RULES);
    let running = start(&config, &[]);
    let endpoint = Endpoint::from_shared(running.url("GRPC_PORT", "")).expect("a URL");
    let mut health = HealthClient::new(endpoint.connect().await.expect("it listens"));
    let answer = health.check(HealthCheckRequest { service: "ratelimit".to_owned() }).await;
    assert_eq!(answer.expect("known").into_inner().status(), ServingStatus::Serving);
}

#[test]
fn every_stop_signal_stops_gracefully() {
    let config = rules(RULES);
    for signal in ["TERM", "INT"] {
        let mut running = start(&config, &[]);
        running.signal(signal);
        assert_eq!(running.wait(), Some(0), "{signal}: {}", running.output());
    }
}
