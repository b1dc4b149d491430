//! A private Redis.

use std::{
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tollgate::store::{RedisStore, redis::RedisSettings};

use super::{Process, free_port};

/// A Redis server of one test's own; it ends with the test and keeps nothing.
#[derive(Debug)]
pub(crate) struct Redis {
    process: Process,
    directory: TempDir,
    port: u16,
}

impl Redis {
    /// Starts a server with additional arguments and waits until it answers.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_on(free_port(), arguments)
    }

    /// Starts a server on a port that was got before.
    pub(crate) fn start_on(port: u16, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .args(["--port", &port.to_string()])
            .args(["--unixsocket", "redis.sock"])
            .args(arguments)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed; `tests/run.sh` installs it");
        let mut process = Process(child);
        // Its own socket, which nobody else can answer on; it comes after the port.
        let socket = directory.path().join("redis.sock");
        let deadline = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(&socket).is_err() {
            assert!(process.0.try_wait().expect("it was started").is_none(), "redis-server ended");
            assert!(Instant::now() < deadline, "redis-server does not answer");
            thread::sleep(Duration::from_millis(5));
        }
        Self { process, directory, port }
    }

    /// Starts a plain server.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Sends the server a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.directory.path().join("redis.sock").display())
    }

    /// A connection for looking at the server.
    pub(crate) fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("a valid URL");
        client.get_connection().expect("the server answers")
    }

    /// A store on this server, to be used on the current runtime.
    pub(crate) fn store(&self) -> RedisStore {
        RedisStore::open(&settings(&self.url())).expect("valid settings")
    }
}

/// Settings for a store under test. The time-out is long, so that a busy machine fails no test.
pub(crate) fn settings(url: &str) -> RedisSettings {
    RedisSettings {
        url: url.into(),
        timeout: Duration::from_secs(5),
        key_prefix: String::new(),
        ca_certificate: None,
        client_certificate: None,
    }
}
