//! A running server and its shutdown.

use std::net::SocketAddr;

use tokio::select;
use tokio::time::{Instant, sleep};
use tollgate_serve::{grpc::GrpcListen, net::Port};

use super::{
    Instance,
    components::{ComponentFailure, Components},
    rule_sources::Reload,
};
use crate::settings::ProcessSettings;

/// A running server. Dropping it stops it without waiting; see [`Running::stop`] for a graceful shutdown.
pub(super) struct Running {
    pub(super) grpc_address: GrpcListen,
    /// Addresses of the other ports that are open, with the ports that were assigned.
    pub(super) addresses: Vec<(Port, SocketAddr)>,
    pub(super) instance: Instance,
    pub(super) components: Components,
    /// Functions that have the files of rules read again.
    pub(super) reloads: Vec<Reload>,
    pub(super) process: ProcessSettings,
}

impl Running {
    /// Address of a port other than the gRPC one, if it is open.
    pub(super) fn address(&self, port: Port) -> Option<SocketAddr> {
        self.addresses.iter().find(|(open, _)| *open == port).map(|(_, address)| *address)
    }

    /// Fails health checks, and keeps serving for the drain delay, so that callers move to other instances before any call
    /// is refused. Returns early if an essential component ends.
    pub(super) async fn begin_drain(&mut self) -> Option<ComponentFailure> {
        self.instance.readiness.stop();
        let delay = self.process.drain_delay;
        select! {
            failure = self.components.failed() => Some(failure),
            () = sleep(delay) => None,
        }
    }

    /// Stops the components in the reverse order of their start; calls in flight have until the drain timeout.
    pub(super) async fn stop(self) {
        self.components.stop(Instant::now() + self.process.drain_timeout).await;
    }
}
