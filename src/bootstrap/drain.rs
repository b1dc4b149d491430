//! A server while it runs.

use std::{convert::Infallible, future::pending, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    join, select,
    sync::mpsc::UnboundedReceiver,
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use super::{
    ports::{Files, Served},
    rule_sources::Source,
    workers::WorkerLost,
};
use crate::{
    control::{Control, RulesStatus},
    readiness::Readiness,
    rules::Snapshot,
    settings::{GrpcListen, ProcessSettings},
    tracing::Tracing,
};

/// How long the HTTP port may take at least to finish the requests in flight, and a thread to end once it has nothing
/// left to do.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// A server that runs. Dropped, it ends without waiting for anything; see [`Running::stop`].
#[derive(Debug)]
pub struct Running {
    pub(super) grpc_address: GrpcListen,
    pub(super) readiness: Readiness,
    pub(super) rules: Arc<Snapshot>,
    pub(super) control: Control,
    pub(super) status: RulesStatus,
    pub(super) source: Source,
    pub(super) acceptor: JoinHandle<()>,
    pub(super) stop_accepting: DropGuard,
    pub(super) alarms: UnboundedReceiver<WorkerLost>,
    /// A part of it that is no worker panicked.
    pub(super) panicked: CancellationToken,
    pub(super) http: Served,
    pub(super) metrics: Option<Served>,
    pub(super) admin: Option<Served>,
    pub(super) files: Files,
    pub(super) process: ProcessSettings,
    /// Tells of the memory store, if there is one; ends with this.
    pub(super) occupancy: Option<AbortOnDropHandle<Infallible>>,
    /// Delivers traces, if there are any.
    pub(super) tracing: Option<Tracing>,
}

impl Running {
    /// Where gRPC listens, with the port that was picked.
    pub const fn grpc_address(&self) -> &GrpcListen {
        &self.grpc_address
    }

    /// Where HTTP listens, with the port that was picked.
    pub const fn http_address(&self) -> SocketAddr {
        self.http.address
    }

    /// Where the admin port listens, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// Where metrics alone are, if anywhere.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.address)
    }

    /// What health checks see.
    pub const fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// The rules in force.
    pub const fn rules(&self) -> &Arc<Snapshot> {
        &self.rules
    }

    /// What operators change.
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Which rules are enforced.
    pub const fn rules_status(&self) -> &RulesStatus {
        &self.status
    }

    /// Waits for a part to end that should not have: then nothing is left but to stop.
    pub async fn failed(&mut self) -> Failed {
        select! {
            lost = self.alarms.recv() => lost.map_or(Failed::Acceptor, Failed::Worker),
            _ = &mut self.acceptor => Failed::Acceptor,
            () = self.panicked.cancelled() => Failed::Panic,
            () = self.http.failed() => Failed::Http,
            () = failed(&mut self.metrics) => Failed::Metrics,
            () = failed(&mut self.admin) => Failed::Admin,
            () = self.files.failed() => Failed::Files,
        }
    }

    /// Fails health checks and serves on as before for the drain delay, so that callers turn to others while nothing is
    /// refused yet; or until a part of it ends that should not have.
    pub async fn retire(&mut self) -> Option<Failed> {
        self.readiness.stop();
        let delay = self.process.drain_delay;
        select! {
            failed = self.failed() => Some(failed),
            () = sleep(delay) => None,
        }
    }

    /// Ends it in order: health checks fail; no more connections are accepted; calls in flight are finished,
    /// those that take longer than the drain timeout are cut; threads and ports are given up.
    pub async fn stop(mut self) {
        let begun = Instant::now();
        self.readiness.stop();
        drop((self.occupancy, self.stop_accepting));
        let source = self.source;
        let watching = spawn_blocking(move || source.stop());
        if !self.acceptor.is_finished() {
            // Cannot fail but by a panic, which is logged.
            let _ = self.acceptor.await;
        }
        // The workers keep to the drain timeout themselves.
        let ended = async { while self.alarms.recv().await.is_some() {} };
        if timeout(self.process.drain_timeout.saturating_add(LAST_STEPS), ended).await.is_err() {
            tracing::error!("a worker did not end in time");
        }
        if timeout(LAST_STEPS, watching).await.is_err() {
            tracing::warn!("the rules are still being read: that is not waited for");
        }
        // It told until now that this process stops; what was asked of it before has as long as calls of gRPC.
        let left = self.process.drain_timeout.saturating_sub(begun.elapsed()).max(LAST_STEPS);
        join!(self.http.stop(left), stopped(self.metrics, left), stopped(self.admin, left));
        if let Some(tracing) = self.tracing {
            tracing.stop().await;
        }
    }
}

async fn stopped(port: Option<Served>, limit: Duration) {
    if let Some(port) = port {
        port.stop(limit).await;
    }
}

async fn failed(port: &mut Option<Served>) {
    match port {
        Some(port) => port.failed().await,
        None => pending().await,
    }
}

/// A part of a server that ended although it should not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// A worker.
    #[error(transparent)]
    Worker(#[from] WorkerLost),
    /// What accepts gRPC connections.
    #[error("the gRPC port failed")]
    Acceptor,
    /// The HTTP port.
    #[error("the HTTP port failed")]
    Http,
    /// The rules' watch, or something on the thread that accepts connections and serves HTTP.
    #[error("a part of the process panicked")]
    Panic,
    /// The port for metrics alone.
    #[error("the metrics port failed")]
    Metrics,
    /// The admin port.
    #[error("the admin port failed")]
    Admin,
    /// What follows the changes of certificates and tokens.
    #[error("the watch over certificates and tokens failed")]
    Files,
}
