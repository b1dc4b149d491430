//! A Redis server of a test.

use std::env;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A server that ends with the test.
pub(super) struct Server {
    process: Child,
    _directory: TempDir,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let program = env::var("TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--port"]);
        command.arg(port.to_string()).current_dir(&directory).stdout(Stdio::null());
        let process = command.spawn().expect("redis-server is installed; `tests/run.sh` installs it");
        Self { process, _directory: directory, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
