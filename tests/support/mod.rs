//! Real servers and other means of the tests.

pub(crate) mod envoy;
pub(crate) mod http;
pub(crate) mod redis;
pub(crate) mod stores;
pub(crate) mod tollgate;

use std::{
    net::{Ipv4Addr, TcpListener},
    process::Child,
};

/// A port that nothing listens on at the moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("bound").port()
}

/// A process that ends with its test.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
