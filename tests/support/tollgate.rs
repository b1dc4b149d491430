//! The program under test.

use std::time::SystemTime;

use prost_types::value::Kind;
use tempfile::NamedTempFile;
use tollgate::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient,
};
use tonic::transport::{Channel, Endpoint};

use super::{Process, prelude::*};

/// A running tollgate; it ends with the test.
#[derive(Debug)]
pub(crate) struct Tollgate {
    process: Process,
    /// Directory of its rules, if it has one of its own.
    _config: Option<TempDir>,
    /// Its output, if it is kept.
    log: Option<NamedTempFile>,
    pub(crate) grpc_port: u16,
    pub(crate) http_port: u16,
    pub(crate) admin_port: u16,
}

/// The program that cargo built for this test, or another one that `TEST_PROGRAM` names.
pub(crate) fn command() -> Command {
    let other = env::var_os("TEST_PROGRAM");
    Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_tollgate").into()))
}

/// A program of `tools/`, which cargo has built beside the server's if it tests the whole workspace.
pub(crate) fn tool(name: &str) -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_tollgate")).with_file_name(name);
    assert!(
        path.exists(),
        "no {name}; run `cargo test --workspace`, or `cargo build --package {name}` before"
    );
    Command::new(path)
}

/// A file or folder of the project.
pub(crate) fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

impl Tollgate {
    /// Serves these rules and waits until it is ready.
    pub(crate) fn serving(yaml: &str, arguments: &[&str]) -> Self {
        let config = rules(yaml);
        let mut tollgate = Self::start(config.path(), arguments);
        tollgate._config = Some(config);
        tollgate
    }

    /// Serves these rules to a client.
    pub(crate) async fn serving_one(yaml: &str, arguments: &[&str]) -> (Self, Client) {
        let tollgate = Self::serving(yaml, arguments);
        let client = tollgate.client().await;
        (tollgate, client)
    }

    /// Serves the rules in `config` and waits until it is ready.
    pub(crate) fn start(config: &Path, arguments: &[&str]) -> Self {
        let tollgate = Self::spawn(config, arguments);
        tollgate.wait_until_ready();
        tollgate
    }

    /// Serves these rules, keeps the log, and waits until it is ready.
    pub(crate) fn logging(yaml: &str, arguments: &[&str]) -> Self {
        let config = rules(yaml);
        let mut tollgate = Self::spawn_logging(command(), config.path(), arguments);
        tollgate.wait_until_ready();
        tollgate._config = Some(config);
        tollgate
    }

    /// Starts by a command that replaces itself with the program, and keeps the log.
    pub(crate) fn spawn_logging(mut program: Command, config: &Path, arguments: &[&str]) -> Self {
        let log = NamedTempFile::new().expect("a file");
        let output = || log.as_file().try_clone().expect("a file");
        program.stdout(output()).stderr(output());
        Self { log: Some(log), ..Self::spawn_by(program, config, arguments) }
    }

    /// The text that it has written so far. Fails unless the log is kept.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log.as_ref().expect("a kept log").path()).expect("a text")
    }

    /// The lines of the log with a text.
    pub(crate) fn logged(&self, text: &str) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    /// Waits until the log has a text in it, and returns all of it.
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        find(text, || Some(self.log()).filter(|log| log.contains(text)))
    }

    /// Serves the rules in `config`. Errors of the store are seen, unless the arguments say otherwise.
    pub(crate) fn spawn(config: &Path, arguments: &[&str]) -> Self {
        Self::spawn_by(command(), config, arguments)
    }

    /// Starts by a command that replaces itself with the program.
    pub(crate) fn spawn_by(program: Command, config: &Path, arguments: &[&str]) -> Self {
        Self::spawn_at(free_port(), program, config, arguments)
    }

    /// Starts with a given gRPC port.
    pub(crate) fn spawn_at(grpc_port: u16, mut program: Command, config: &Path, arguments: &[&str]) -> Self {
        age(config);
        let (http_port, admin_port) = (free_port(), free_port());
        let child = program
            .arg("serve")
            .arg("--config")
            .arg(config)
            .args(["--grpc-address", &format!("127.0.0.1:{grpc_port}")])
            .args(["--http-address", &format!("127.0.0.1:{http_port}")])
            .args(["--on-store-error", "error"])
            .args(["--admin-address", &format!("127.0.0.1:{admin_port}")])
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .expect("the program starts");
        Self { process: Process::of(child, None), _config: None, log: None, grpc_port, http_port, admin_port }
    }

    pub(crate) fn wait_until_ready(&self) {
        wait("tollgate does not become ready", || {
            http::try_get(&self.url("/healthcheck")).is_some_and(|answer| answer.status == 200)
        });
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.http_port)
    }

    pub(crate) fn admin_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.admin_port)
    }

    /// Its page of metrics.
    pub(crate) fn metrics(&self) -> String {
        http::get(&self.url("/metrics")).body
    }

    /// A metric's value, by its name and labels; none if it was not recorded.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let page = self.metrics();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(value.parse().expect("a number"))
    }

    /// The sum of a metric over its labels; none if it was not recorded.
    pub(crate) fn sum_of(&self, name: &str) -> Option<f64> {
        let page = self.metrics();
        let rests = page.lines().filter_map(|line| line.strip_prefix(name));
        let values =
            rests.filter(|rest| rest.starts_with([' ', '{'])).filter_map(|rest| rest.rsplit(' ').next());
        values.map(|value| value.parse::<f64>().expect("a number")).reduce(|sum, value| sum + value)
    }

    /// The response of its admin API at a path such as `/rules`.
    pub(crate) fn api(&self, path: &str) -> Value {
        let answer = http::get(&self.admin_url(&format!("/api/v1{path}")));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    /// The answer of `/json` to this body.
    pub(crate) fn post(&self, body: &str) -> http::Answer {
        http::post(&self.url("/json"), body)
    }

    /// The answer of `/json` to a request for one hit on one descriptor.
    pub(crate) fn hit(&self, domain: &str, entries: &[(&str, &str)]) -> http::Answer {
        let entries: Value = entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        self.post(&json!({"domain": domain, "descriptors": [{"entries": entries}]}).to_string())
    }

    /// A client on a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.grpc_port)).expect("a URL");
        Client { inner: RateLimitServiceClient::new(endpoint.connect().await.expect("tollgate listens")) }
    }

    /// Bytes of memory that it has resident.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        1024 * kilobytes.and_then(|number| number.parse::<u64>().ok()).expect("a number")
    }

    /// Processor time that it has used.
    pub(crate) fn processor_time(&self) -> Duration {
        self.process.processor_time()
    }

    /// Whether the program does something of its own on SIGTERM.
    pub(crate) fn handles_terminate(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        u64::from_str_radix(caught.trim(), 16).expect("a mask") & 1 << 14 != 0
    }

    /// Sends a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for the end of the process and gives its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.process.0.wait().expect("it was started").code()
    }
}

/// A caller.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    inner: RateLimitServiceClient<Channel>,
}

impl Client {
    /// Sends a request as it is.
    pub(crate) async fn call(
        &mut self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, tonic::Status> {
        self.inner.should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    /// Sends a request that says how long its caller waits.
    pub(crate) async fn call_within(
        &mut self,
        timeout: Duration,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, tonic::Status> {
        let mut request = tonic::Request::new(request);
        request.set_timeout(timeout);
        self.inner.should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    /// Sends a request with its metadata.
    pub(crate) async fn call_with(
        &mut self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, tonic::Status> {
        self.inner.should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    /// Sends a request for one hit on one descriptor; whether it passes.
    pub(crate) async fn passes(&mut self, domain: &str, entries: &[(&str, &str)]) -> bool {
        let answer = self.call(request(domain, &[entries])).await.expect("an answer");
        answer.overall_code() == Code::Ok
    }

    /// The remaining hits of one descriptor, by a request that charges none.
    pub(crate) async fn left(&mut self, domain: &str, entries: &[(&str, &str)]) -> u32 {
        let mut look = request(domain, &[entries]);
        look.descriptors[0].hits_addend = Some(0);
        self.call(look).await.expect("an answer").statuses[0].limit_remaining
    }
}

/// The lease in a response.
pub(crate) fn lease_of(answer: &RateLimitResponse) -> Option<String> {
    match answer.dynamic_metadata.as_ref()?.fields.get("lease")?.kind.as_ref()? {
        Kind::StringValue(lease) => Some(lease.clone()),
        _ => None,
    }
}

/// A request with one hit for each descriptor.
pub(crate) fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
        entries: entries
            .iter()
            .map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() })
            .collect(),
        ..Default::default()
    };
    RateLimitRequest {
        domain: domain.into(),
        descriptors: descriptors.iter().map(descriptor).collect(),
        hits_addend: 0,
    }
}

/// Dates the files of a temporary directory back: the program waits for files that were written just now.
pub(crate) fn age(directory: &Path) {
    if !directory.starts_with(env::temp_dir()) {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            age(&path);
        } else if let Ok(file) = fs::File::options().append(true).open(path) {
            file.set_modified(SystemTime::UNIX_EPOCH).expect("a time can be set");
        }
    }
}

/// Rules with a limit a year for each value of `k` in the domain `d`.
pub(crate) fn yearly(limit: u32) -> String {
    format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {{unit: year, requests_per_unit: {limit}}}\n")
}

/// Rules with a limit that nothing reaches, in a window that does not end.
pub(crate) const UNREACHED: &str =
    "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: year, requests_per_unit: 4000000000}\n";

/// A directory with one file of rules.
pub(crate) fn rules(yaml: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("rules.yaml"), yaml).expect("writable");
    directory
}
