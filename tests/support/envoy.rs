//! A real Envoy.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{Process, free_port, http, tollgate::project};

/// A running Envoy; it ends with the test.
#[derive(Debug)]
pub(crate) struct Envoy {
    _process: Process,
    _directory: TempDir,
    pub(crate) port: u16,
}

/// The program that `tests/run.sh` installs.
pub(crate) fn program() -> PathBuf {
    let program = project("target/envoy/bin/envoy");
    assert!(program.exists(), "{} is missing; `tests/run.sh` installs it", program.display());
    program
}

impl Envoy {
    /// Runs `deploy/envoy/edge.yaml` on ports of its own, in front of the tollgate at `grpc_port`.
    pub(crate) fn edge(grpc_port: u16) -> Self {
        Self::edge_with(grpc_port, "")
    }

    /// The same, with more to say of the cluster `tollgate`.
    pub(crate) fn edge_with(grpc_port: u16, cluster: &str) -> Self {
        Self::start("deploy/envoy/edge.yaml", "timeout: 0.02s", grpc_port, None, cluster)
    }

    /// Runs `deploy/envoy/concurrency.yaml` likewise, before its own upstream or one of the test's.
    pub(crate) fn concurrency(grpc_port: u16, upstream: Option<u16>) -> Self {
        Self::start("deploy/envoy/concurrency.yaml", "timeout: 0.1s", grpc_port, upstream, "")
    }

    /// Runs a file of the project on ports of its own; `timeout` is how it states the time for an answer.
    fn start(path: &str, timeout: &str, grpc_port: u16, upstream: Option<u16>, cluster: &str) -> Self {
        let yaml = fs::read_to_string(project(path)).expect("readable");
        let (admin, port, own_upstream) = (free_port(), free_port(), free_port());
        let (listeners, clusters) = yaml.split_once("\n  clusters:\n").expect("clusters come last");
        let moves = |text: &str, moves: &[(u16, u16)]| {
            moves.iter().fold(text.to_owned(), |text, (from, to)| {
                let stated = format!("port_value: {from}}}");
                assert!(text.contains(&stated), "{path} has no port {from}");
                text.replace(&stated, &format!("port_value: {to}}}"))
            })
        };
        let listeners = moves(listeners, &[(9901, admin), (10_000, port), (10_001, own_upstream)]);
        let clusters = moves(clusters, &[(10_001, upstream.unwrap_or(own_upstream)), (8081, grpc_port)]);
        // Envoy acts on its own when it gets no answer in time, as from a machine busy with tests.
        assert!(listeners.contains(timeout), "{path} has no {timeout}");
        // The cluster of tollgate comes last.
        let cluster: String = cluster.lines().map(|line| format!("    {line}\n")).collect();
        let listeners = listeners.replace(timeout, "timeout: 5s");
        let moved = format!("{listeners}\n  clusters:\n{clusters}{cluster}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("envoy.yaml");
        fs::write(&file, moved).expect("writable");
        let child = Command::new(program())
            .args(["--config-path", &file.display().to_string()])
            .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"])
            .stdin(Stdio::null())
            .spawn()
            .expect("Envoy starts");
        let envoy =
            Self { _process: Process::of(child, Some(directory.path())), _directory: directory, port };
        let deadline = Instant::now() + Duration::from_secs(30);
        let is_ready = || {
            let clusters = http::try_get(&format!("http://127.0.0.1:{admin}/clusters"))?;
            let healthy =
                clusters.body.contains(&format!("tollgate::127.0.0.1:{grpc_port}::health_flags::healthy"));
            (healthy && http::try_get(&format!("http://127.0.0.1:{admin}/ready"))?.status == 200)
                .then_some(())
        };
        while is_ready().is_none() {
            assert!(Instant::now() < deadline, "Envoy does not become ready");
            thread::sleep(Duration::from_millis(20));
        }
        envoy
    }

    /// A page of the upstream, through Envoy.
    pub(crate) fn get(&self, path: &str) -> http::Answer {
        http::get(&format!("http://127.0.0.1:{}{path}", self.port))
    }
}
