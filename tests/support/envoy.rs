//! A real Envoy.

use super::{Process, prelude::*};

/// File of what it writes to its standard output.
const ACCESS_LOG: &str = "access.log";

/// A running Envoy; it ends with the test.
#[derive(Debug)]
pub(crate) struct Envoy {
    _process: Process,
    directory: TempDir,
    pub(crate) port: u16,
    admin: u16,
}

/// A file of `deploy/envoy`, with ports of its own and the time that a busy machine needs.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    pub(crate) yaml: String,
    admin: u16,
    port: u16,
}

impl Bootstrap {
    /// Reads the file of that name, for the tollgate at `grpc_port` and for its own upstream or one of the test's.
    pub(crate) fn read(name: &str, grpc_port: u16, upstream: Option<u16>) -> Self {
        let path = format!("deploy/envoy/{name}.yaml");
        let yaml = fs::read_to_string(project(&path)).expect("readable");
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
        let patient = ["timeout: 0.02s", "timeout: 0.1s"]
            .iter()
            .fold(listeners.clone(), |text, timeout| text.replace(timeout, "timeout: 5s"));
        assert_ne!(listeners, patient, "{path} does not say how long an answer may take");
        let yaml = format!("{patient}\n  clusters:\n{clusters}");
        Self { yaml, admin, port }
    }

    /// Starts with `from`, which must occur, replaced by another text.
    pub(crate) fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.yaml.contains(from), "there is no {from}");
        self.yaml = self.yaml.replace(from, to);
        self
    }

    /// Runs it until it has found each of these tollgates healthy.
    pub(crate) fn run(&self, grpc_ports: &[u16]) -> Envoy {
        let healthy: Vec<_> = grpc_ports.iter().map(|port| format!("::127.0.0.1:{port}")).collect();
        Envoy::run(&self.yaml, self.admin, self.port, &healthy)
    }
}

/// The program that `tests/run.sh` installs.
pub(crate) fn program() -> PathBuf {
    let program = project("target/envoy/bin/envoy");
    assert!(program.exists(), "{} is missing; `tests/run.sh` installs it", program.display());
    program
}

/// Whether Envoy accepts a configuration, and its warnings.
pub(crate) fn validate(file: &Path) -> (bool, String) {
    let words = ["--mode", "validate", "--log-level", "warning", "--config-path"];
    let ended = ended(Command::new(program()).args(words).arg(file));
    (ended.code == Some(0), ended.stderr)
}

impl Envoy {
    /// Runs `deploy/envoy/edge.yaml` on ports of its own, in front of the tollgate at `grpc_port`.
    pub(crate) fn edge(grpc_port: u16) -> Self {
        Self::edge_with(grpc_port, "")
    }

    /// Starts with additional settings of the cluster `tollgate`.
    pub(crate) fn edge_with(grpc_port: u16, cluster: &str) -> Self {
        let mut bootstrap = Bootstrap::read("edge", grpc_port, None);
        // The cluster of tollgate comes last.
        bootstrap.yaml.extend(cluster.lines().map(|line| format!("    {line}\n")));
        bootstrap.run(&[grpc_port])
    }

    /// Runs `deploy/envoy/concurrency.yaml` likewise, before its own upstream or one of the test's.
    pub(crate) fn concurrency(grpc_port: u16, upstream: Option<u16>) -> Self {
        Bootstrap::read("concurrency", grpc_port, upstream).run(&[grpc_port])
    }

    /// Runs `yaml`, which listens on `port` and has its admin interface on `admin`, until it is ready and its list of
    /// endpoints shows `healthy` as such.
    pub(crate) fn run(yaml: &str, admin: u16, port: u16, healthy: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("envoy.yaml");
        fs::write(&file, yaml).expect("writable");
        let child = Command::new(program())
            .args(["--config-path", &file.display().to_string()])
            .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"])
            .args(["--file-flush-interval-msec", "50"])
            .stdin(Stdio::null())
            .stdout(fs::File::create(directory.path().join(ACCESS_LOG)).expect("created"))
            .spawn()
            .expect("Envoy starts");
        let envoy = Self { _process: Process::of(child, Some(directory.path())), directory, port, admin };
        for endpoint in healthy {
            envoy.wait_for(&format!("{endpoint}::health_flags::healthy"));
        }
        wait("Envoy does not become ready", || {
            http::try_get(&envoy.admin_url("/ready")).is_some_and(|answer| answer.status == 200)
        });
        envoy
    }

    fn admin_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.admin)
    }

    /// Waits until its list of endpoints says so.
    pub(crate) fn wait_for(&self, said: &str) {
        self.wait_for_page("/clusters", |page| page.contains(said));
    }

    /// Waits until its statistics have this line.
    pub(crate) fn wait_for_stat(&self, line: &str) {
        self.wait_for_page("/stats", |page| page.lines().any(|found| found == line));
    }

    fn wait_for_page(&self, path: &str, is_so: impl Fn(&str) -> bool) {
        wait(path, || http::try_get(&self.admin_url(path)).is_some_and(|answer| is_so(&answer.body)));
    }

    /// The lines of its access log, which it writes with a delay.
    pub(crate) fn access_log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.path().join(ACCESS_LOG)).expect("readable");
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
    }

    /// A page of the upstream, through Envoy.
    pub(crate) fn get(&self, path: &str) -> http::Answer {
        http::get(&format!("http://127.0.0.1:{}{path}", self.port))
    }
}
