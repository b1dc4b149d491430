//! A running server and its shutdown.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    select,
    sync::mpsc::UnboundedReceiver,
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_control::{Control, RulesStatus};
use tollgate_limiter::ActiveRules;

use super::{
    instance::Instance,
    ports::{CredentialReloads, ServedPorts},
    regions::RegionTasks,
    rule_sources::RuleSources,
    tasks::Tasks,
    workers::WorkerLost,
};
use crate::{
    readiness::Readiness,
    settings::{GrpcListen, Port, ProcessSettings},
    tracing::TraceExporter,
};

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
    pub(super) credentials: CredentialReloads,
    pub(super) process: ProcessSettings,
    /// Tasks beside the ports and the workers; aborted on drop.
    pub(super) tasks: Tasks,
    /// Region table and service between regions; stopped on drop.
    pub(super) regions: Option<RegionTasks>,
    /// Exporter of traces, if enabled.
    pub(super) tracing: Option<TraceExporter>,
}

impl Running {
    /// Address of the gRPC port or socket, with the port that was assigned.
    pub const fn grpc_address(&self) -> &GrpcListen {
        &self.grpc_address
    }

    /// Address of the HTTP port, with the port that was assigned.
    pub const fn http_address(&self) -> SocketAddr {
        self.ports.http.address
    }

    /// Address of the admin port, if enabled.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.ports.admin.as_ref().map(|admin| admin.address)
    }

    /// Address of the separate metrics port, if enabled.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.ports.metrics.as_ref().map(|metrics| metrics.address)
    }

    /// Address of the service between regions, if enabled.
    pub fn region_address(&self) -> Option<SocketAddr> {
        self.regions.as_ref().and_then(RegionTasks::address)
    }

    /// Readiness reported to health checks.
    pub const fn readiness(&self) -> &Readiness {
        &self.instance.readiness
    }

    /// Snapshot of the active rules.
    pub const fn rules(&self) -> &Arc<ActiveRules> {
        &self.instance.rules
    }

    /// Control store: what operators change at run time.
    pub const fn control(&self) -> &Control {
        &self.instance.control
    }

    /// Status of the active rules.
    pub const fn rules_status(&self) -> &RulesStatus {
        &self.instance.status
    }

    /// Completes when an essential component ends. The only remedy is to stop.
    pub async fn failed(&mut self) -> ComponentFailure {
        select! {
            lost = self.worker_failures.recv() => lost.map_or(ComponentFailure::Acceptor, ComponentFailure::Worker),
            _ = &mut self.acceptor => ComponentFailure::Acceptor,
            () = self.panicked.cancelled() => ComponentFailure::Panic,
            port = self.ports.failed() => match port {
                Port::Metrics => ComponentFailure::Metrics,
                Port::Admin => ComponentFailure::Admin,
                Port::Http | Port::Grpc | Port::Region => ComponentFailure::Http,
            },
            () = self.credentials.failed() => ComponentFailure::Credentials,
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
    /// The acceptor of gRPC connections.
    #[error("the gRPC port failed")]
    Acceptor,
    /// The HTTP port.
    #[error("the HTTP port failed")]
    Http,
    /// A task that watches rules, or that runs on the thread of the acceptor and HTTP.
    #[error("a background task panicked")]
    Panic,
    /// The separate metrics port.
    #[error("the metrics port failed")]
    Metrics,
    /// The admin port.
    #[error("the admin port failed")]
    Admin,
    /// The reload of certificates and tokens.
    #[error("the reload of certificates and tokens failed")]
    Credentials,
}
