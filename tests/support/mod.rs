//! Real servers and other means of the tests.

pub(crate) mod cluster;
pub(crate) mod envoy;
pub(crate) mod http;
pub(crate) mod redis;
pub(crate) mod sentinel;
pub(crate) mod stores;
pub(crate) mod tollgate;
pub(crate) mod upstream;

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command},
    sync::atomic::{AtomicU16, Ordering},
};

/// Where the next port comes from: below the range that systems usually give out by themselves.
static NEXT_PORT: AtomicU16 = AtomicU16::new(10_100);

/// A port that nothing listens on and that no other test is given.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 15_000, "out of ports");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A process that ends with its test.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Sends a signal, by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill is installed");
        assert!(status.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
