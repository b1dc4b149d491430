//! The program, started as the reference's image is: by variables alone.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tollgate::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient,
};
use tonic::transport::Endpoint;

use crate::support::{Process, free_port, http, tollgate::command};

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
        let of_line = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
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
