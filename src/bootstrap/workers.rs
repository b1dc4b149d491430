//! Workers: each is one thread with its own runtime, service and connections.

use std::{io, sync::Arc, thread, time::Duration};

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_limiter::ActiveRules;
use tollgate_runtime::panics::{self, CatchUnwind};
use tollgate_serve::grpc::connection::{Connections, Dispatch, side_services};
use tollgate_serve::grpc::listener::{Accepted, Balancer, ConnectionPermit};
use tollgate_serve::grpc::{GrpcSettings, request_body::MessageLimits, unary::UnaryService};
use tollgate_serve::net::tls::Tls;
use tollgate_store::{BackgroundQueue, StoreError};
use tonic::service::Routes;

use super::{Instance, StartError, metrics::busy_time};
use crate::settings::{ProcessSettings, Settings};

/// Settings and handles of every worker.
#[derive(Clone)]
struct WorkerConfig {
    grpc: GrpcSettings,
    process: ProcessSettings,
    tls: Option<Tls>,
    rules: Arc<ActiveRules>,
    side_services: Routes,
    /// Queue of background refunds, flushed at shutdown.
    background: BackgroundQueue,
    /// Receives the workers that failed; closed once all have ended.
    failures: UnboundedSender<WorkerLost>,
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
    O: Fn(&Arc<ActiveRules>, BackgroundQueue) -> Result<T, StoreError> + Send + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let busy_time = busy_time(&worker, runtime.handle());
    let (opened, ready) = oneshot::channel();
    let work = async move {
        let service = match open(&config.rules, config.background.clone()) {
            Ok(service) => service,
            Err(error) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        // `start_workers` waits for this.
        let _ = opened.send(Ok(()));
        let timeout = config.process.connections.handshake_timeout;
        let limits = MessageLimits { max_bytes: config.grpc.max_message_bytes, timeout };
        let services = Dispatch::new(service, config.side_services, limits);
        let draining = CancellationToken::new();
        let served = Connections::new(&config.grpc, config.tls, timeout, draining.clone());
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

/// Starts the workers and waits until each is ready. Returns the balancer of their connections, and the receiver of those that
/// fail, which is closed once all have ended.
pub(super) async fn start_workers<T, O>(
    settings: &Settings,
    tls: Option<Tls>,
    instance: &Instance,
    open: O,
) -> Result<(Balancer<Accepted>, UnboundedReceiver<WorkerLost>), StartError>
where
    T: UnaryService,
    O: Fn(&Arc<ActiveRules>, BackgroundQueue) -> Result<T, StoreError> + Clone + Send + 'static,
{
    let (failures, mut failed) = unbounded_channel();
    let config = WorkerConfig {
        grpc: settings.grpc.clone(),
        process: settings.process,
        tls,
        rules: Arc::clone(&instance.rules),
        side_services: side_services(instance.readiness.clone())?,
        background: BackgroundQueue::default(),
        failures,
    };
    let mut balancer = Balancer::default();
    let mut starting = Vec::new();
    for worker in 0..config.process.workers.get() {
        let ready = start(worker, config.clone(), open.clone(), balancer.add_worker());
        starting.push(ready.map_err(StartError::System)?);
    }
    // The workers keep the only senders, so that the channel closes when the last worker ends.
    drop(config);
    let unknown_reason = || StartError::System(io::Error::other("a worker ended without an error"));
    for ready in starting {
        match ready.await {
            Ok(opened) => opened?,
            // The worker ended without a result, so its failure is reported.
            Err(_) => return Err(failed.recv().await.map_or_else(unknown_reason, StartError::Worker)),
        }
    }
    Ok((balancer, failed))
}
