//! Workers: each is one thread with its own runtime, service and connections.

use std::{io, sync::Arc, thread, time::Duration};

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_limiter::ActiveRules;
use tollgate_runtime::panics::{self, CatchUnwind};
use tollgate_serve::grpc::dispatch::{Dispatch, side_services};
use tollgate_serve::grpc::listener::{Accepted, Balancer, ConnectionPermit};
use tollgate_serve::grpc::{
    GrpcSettings, connection::Connections, request_body::MessageLimits, service::UnaryService,
};
use tollgate_serve::{net::tls::Tls, readiness::Readiness};
use tollgate_store::{BackgroundQueue, StoreError};
use tonic::service::Routes;

use super::{StartError, metrics::BusyTime};
use crate::settings::{ProcessSettings, Settings};

/// Settings and handles of every worker.
#[derive(Clone)]
pub(super) struct WorkerConfig {
    grpc: GrpcSettings,
    process: ProcessSettings,
    tls: Option<Tls>,
    side_services: Routes,
    /// Queue of background refunds, flushed at shutdown.
    background: BackgroundQueue,
    /// Receives the workers that failed; closed once all have ended.
    failures: UnboundedSender<WorkerLost>,
}

impl WorkerConfig {
    /// Returns the configuration of the workers, and the receiver of those that fail.
    pub(super) fn new(
        settings: &Settings,
        tls: Option<Tls>,
        readiness: &Readiness,
    ) -> Result<(Self, UnboundedReceiver<WorkerLost>), StartError> {
        let side_services = side_services(readiness.clone())?;
        let (grpc, process) = (settings.grpc.clone(), settings.process);
        let (failures, failed) = unbounded_channel();
        let background = BackgroundQueue::default();
        Ok((Self { grpc, process, tls, side_services, background, failures }, failed))
    }
}

/// A worker ended unexpectedly, or a task in it panicked outside of a single call, which may leave a broken state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} failed")]
pub struct WorkerLost(usize);

/// Reports the worker as failed if its thread panics.
struct FailureGuard {
    worker: usize,
    failures: UnboundedSender<WorkerLost>,
}

impl Drop for FailureGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            // An error means that the process is ending already.
            let _ = self.failures.send(WorkerLost(self.worker));
        }
    }
}

/// Starts worker number `worker`. It calls `open` on its own runtime, and serves the result to the connections that it
/// receives; once their channel closes, it drains them and ends.
///
/// The returned receiver reports that the worker is ready, or the error of `open`.
fn start<T, O>(
    worker: usize,
    config: WorkerConfig,
    open: O,
    connections: UnboundedReceiver<(Accepted, ConnectionPermit)>,
) -> io::Result<oneshot::Receiver<Result<(), StoreError>>>
where
    T: UnaryService,
    O: FnOnce() -> Result<T, StoreError> + Send + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let busy_time = BusyTime::of(&worker, runtime.handle());
    let (opened, ready) = oneshot::channel();
    let work = async move {
        let service = match open() {
            Ok(service) => service,
            Err(error) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        // `start_workers` waits for this.
        let _ = opened.send(Ok(()));
        let limits = MessageLimits {
            max_bytes: config.grpc.max_message_bytes,
            timeout: config.process.handshake_timeout,
        };
        let services = Dispatch::new(service, config.side_services, limits);
        let draining = CancellationToken::new();
        let served =
            Connections::new(&config.grpc, config.tls, config.process.handshake_timeout, draining.clone());
        serve(services, connections, &served, config.process.drain_timeout, draining, &config.background)
            .await;
    };
    let guard = FailureGuard { worker, failures: config.failures };
    thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
        let (worker, failures) = (guard.worker, guard.failures.clone());
        // An error means that the process is ending already.
        panics::set_thread_alarm(move || {
            let _ = failures.send(WorkerLost(worker));
        });
        runtime.block_on(work);
        // Aborts remaining tasks before the end of this worker is reported.
        drop(runtime);
        drop((busy_time, guard));
    })?;
    Ok(ready)
}

async fn serve<T: UnaryService>(
    services: Dispatch<T>,
    mut incoming: UnboundedReceiver<(Accepted, ConnectionPermit)>,
    connections: &Connections,
    drain_timeout: Duration,
    draining: CancellationToken,
    background: &BackgroundQueue,
) {
    let tasks = TaskTracker::new();
    while let Some((accepted, permit)) = incoming.recv().await {
        match accepted.register() {
            Ok(io) => {
                let (connections, services) = (connections.clone(), services.clone());
                tasks.spawn(CatchUnwind::new(async move {
                    connections.serve(io, services, permit.detector.clone()).await;
                    // The connection is closed.
                    drop(permit);
                }));
            }
            Err(error) => tracing::warn!(%error, "accepted connection failed"),
        }
    }
    draining.cancel();
    tasks.close();
    let begun = Instant::now();
    if timeout(drain_timeout, tasks.wait()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "drain timed out; closing connections");
    }
    if timeout(drain_timeout.saturating_sub(begun.elapsed()), background.drain()).await.is_err() {
        tracing::warn!("drain timed out flushing refunds to the store");
    }
}

/// Starts the workers of `config` and waits until each is ready.
pub(super) async fn start_workers<T, O>(
    config: WorkerConfig,
    failures: &mut UnboundedReceiver<WorkerLost>,
    rules: &Arc<ActiveRules>,
    open: O,
) -> Result<Balancer<Accepted>, StartError>
where
    T: UnaryService,
    O: Fn(&Arc<ActiveRules>, BackgroundQueue) -> Result<T, StoreError> + Clone + Send + 'static,
{
    let mut balancer = Balancer::default();
    let mut starting = Vec::new();
    for worker in 0..config.process.workers.get() {
        let (open, rules, background) = (open.clone(), Arc::clone(rules), config.background.clone());
        let connections = balancer.add_worker();
        let ready = start(worker, config.clone(), move || open(&rules, background), connections);
        starting.push(ready.map_err(StartError::System)?);
    }
    // The workers keep the only senders, so that the channel closes when the last worker ends.
    drop(config);
    let unknown_reason = || StartError::System(io::Error::other("a worker ended without an error"));
    for ready in starting {
        match ready.await {
            Ok(opened) => opened?,
            // The worker ended without a result, so its failure is reported.
            Err(_) => return Err(failures.recv().await.map_or_else(unknown_reason, StartError::Worker)),
        }
    }
    Ok(balancer)
}
