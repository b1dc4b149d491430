//! A running server, its tasks and its shutdown.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio::{select, sync::mpsc::UnboundedReceiver};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tollgate_serve::{grpc::GrpcListen, net::Port};
use tollgate_telemetry::traces::TraceExporter;

use super::{
    Instance, ports::ServedPorts, regions::RunningRegions, rule_sources::RuleSources, workers::WorkerLost,
};
use crate::settings::ProcessSettings;

/// Minimum time for the HTTP port to finish requests in flight, and for an idle thread to end.
const MIN_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it without waiting; see [`Running::stop`] for a graceful shutdown.
#[derive(Debug)]
pub struct Running {
    pub(super) grpc_address: GrpcListen,
    pub(super) instance: Instance,
    pub(super) rule_sources: RuleSources,
    pub(super) acceptor: JoinHandle<()>,
    pub(super) stop_accepting: DropGuard,
    /// Failed workers; closed once all workers have ended.
    pub(super) worker_failures: UnboundedReceiver<WorkerLost>,
    /// Cancelled by a panic outside the workers.
    pub(super) panicked: CancellationToken,
    pub(super) ports: ServedPorts,
    /// Tasks that reload certificates and tokens.
    pub(super) reloads: JoinSet<()>,
    pub(super) process: ProcessSettings,
    /// Tasks beside the ports and the workers; aborted on drop.
    pub(super) tasks: Vec<AbortOnDropHandle<Infallible>>,
    /// Region table and service between regions, if there are any; stopped on drop.
    pub(super) regions: RunningRegions,
    /// Exporter of traces, if enabled.
    pub(super) tracing: Option<TraceExporter>,
}

impl Running {
    /// Address of a port other than the gRPC one, with the port that was assigned, if it is open.
    pub fn address(&self, port: Port) -> Option<SocketAddr> {
        match port {
            Port::Region => self.regions.1,
            port => self.ports.address(port),
        }
    }

    /// Completes when an essential component ends. The only remedy is to stop.
    pub async fn failed(&mut self) -> ComponentFailure {
        select! {
            lost = self.worker_failures.recv() => lost.map_or(GRPC_PORT, ComponentFailure::Worker),
            _ = &mut self.acceptor => GRPC_PORT,
            () = self.panicked.cancelled() => ComponentFailure::Panic,
            port = self.ports.failed() => ComponentFailure::Part(port),
            // Only a panic ends one.
            Some(_) = self.reloads.join_next() => ComponentFailure::Part("reload of certificates and tokens"),
        }
    }

    /// Fails health checks, and keeps serving for the drain delay, so that callers move to other instances before any call
    /// is refused. Returns early if an essential component ends.
    pub async fn begin_drain(&mut self) -> Option<ComponentFailure> {
        self.instance.readiness.stop();
        let delay = self.process.drain_delay;
        select! {
            failure = self.failed() => Some(failure),
            () = sleep(delay) => None,
        }
    }

    /// Shuts down in order: fails health checks; accepts no more connections; finishes calls in flight, and aborts those
    /// that exceed the drain timeout; ends threads and closes ports.
    pub async fn stop(mut self) {
        let begun = Instant::now();
        self.instance.readiness.stop();
        drop((self.tasks, self.stop_accepting));
        let rule_sources = self.rule_sources;
        let sources_stopped = spawn_blocking(move || rule_sources.stop());
        if !self.acceptor.is_finished() {
            // Fails only by a panic, which is logged.
            let _ = self.acceptor.await;
        }
        // The workers apply the drain timeout themselves.
        let workers_ended = async { while self.worker_failures.recv().await.is_some() {} };
        if timeout(self.process.drain_timeout.saturating_add(MIN_SHUTDOWN_TIMEOUT), workers_ended)
            .await
            .is_err()
        {
            tracing::error!("worker did not end in time");
        }
        if timeout(MIN_SHUTDOWN_TIMEOUT, sources_stopped).await.is_err() {
            tracing::warn!("rules still loading; stopping without waiting");
        }
        // HTTP reports the shutdown until now; its requests in flight have as long as gRPC calls.
        let left = self.process.drain_timeout.saturating_sub(begun.elapsed()).max(MIN_SHUTDOWN_TIMEOUT);
        self.ports.stop(left).await;
        if let Some(tracing) = self.tracing {
            tracing.stop().await;
        }
    }
}

/// Essential component that ended unexpectedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComponentFailure {
    /// A worker thread.
    #[error(transparent)]
    Worker(#[from] WorkerLost),
    /// A task that watches rules, or that runs on the thread of the acceptor and HTTP.
    #[error("a background task panicked")]
    Panic,
    /// A port, or the reload of its credentials.
    #[error("the {0} failed")]
    Part(&'static str),
}

/// Failure of the acceptor of gRPC connections.
const GRPC_PORT: ComponentFailure = ComponentFailure::Part("gRPC port");
