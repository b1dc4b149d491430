//! Workers: each is one thread with its own runtime, service and connections.

use std::{io, sync::Arc, thread, time::Duration};

use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_limiter::ActiveRules;
use tollgate_runtime::panics::{self, CatchUnwind};
use tollgate_serve::grpc::connection::{Connections, Dispatch, side_services};
use tollgate_serve::grpc::listener::{Accepted, Balancer, ConnectionPermit};
use tollgate_serve::grpc::{GrpcSettings, request_body::MessageLimits, unary::UnaryService};
use tollgate_serve::net::tls::Tls;
use tollgate_store::{BackgroundQueue, StoreError};
use tonic::service::Routes;

use super::components::{Component, ComponentFailure, MIN_STOP_TIMEOUT};
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
}

/// A worker that runs. It ends by itself once the acceptor has ended.
pub(super) struct Worker {
    /// Receives each panic in the worker outside of a single call, which may leave a broken state; closed at its end.
    panics: UnboundedReceiver<()>,
}

impl Component for Worker {
    fn failed(&mut self) -> BoxFuture<'_, ()> {
        self.panics.recv().map(drop).boxed()
    }

    fn stop(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, ()> {
        // It applies the drain timeout itself.
        let limit = deadline + MIN_STOP_TIMEOUT;
        let stop = async move {
            let ended = async { while self.panics.recv().await.is_some() {} };
            if timeout_at(limit, ended).await.is_err() {
                tracing::error!("worker did not end in time");
            }
        };
        stop.boxed()
    }
}

/// Opens the service of a thread with a queue for background work, on the runtime that will use it.
pub(super) type OpenService<T> =
    Arc<dyn Fn(&Arc<ActiveRules>, BackgroundQueue) -> Result<T, StoreError> + Send + Sync>;

/// Starts the worker of that number. It calls `open` on its own runtime, and serves the result to the connections that it
/// receives; once their channel closes, it drains them and ends.
///
/// The returned receiver reports that the worker is ready, or the error of `open`.
fn start<T: UnaryService>(
    number: usize,
    config: WorkerConfig,
    open: OpenService<T>,
    connections: UnboundedReceiver<(Accepted, ConnectionPermit)>,
) -> io::Result<(Worker, oneshot::Receiver<Result<(), StoreError>>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let busy_time = busy_time(&number, runtime.handle());
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
    let (failures, panics) = unbounded_channel();
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        // An error means that the process is ending already.
        panics::set_thread_alarm(move || {
            let _ = failures.send(());
        });
        runtime.block_on(work);
        // Aborts remaining tasks before the end of this worker is reported.
        drop(runtime);
        drop(busy_time);
    })?;
    Ok((Worker { panics }, ready))
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

/// Starts the workers and waits until each is ready. Returns the balancer of their connections, and the workers with their
/// names.
pub(super) async fn start_workers<T: UnaryService>(
    settings: &Settings,
    tls: Option<Tls>,
    instance: &Instance,
    open: &OpenService<T>,
) -> Result<(Balancer<Accepted>, Vec<(String, Worker)>), StartError> {
    let config = WorkerConfig {
        grpc: settings.grpc.clone(),
        process: settings.process,
        tls,
        rules: Arc::clone(&instance.rules),
        side_services: side_services(instance.readiness.clone())?,
        background: BackgroundQueue::default(),
    };
    let mut balancer = Balancer::default();
    let mut starting = Vec::new();
    for number in 0..config.process.workers.get() {
        let started = start(number, config.clone(), Arc::clone(open), balancer.add_worker());
        starting.push(started?);
    }
    let mut workers = Vec::new();
    for (number, (worker, ready)) in starting.into_iter().enumerate() {
        let name = format!("worker {number}");
        // An error means that the worker ended without a result.
        ready.await.map_err(|_| ComponentFailure::Ended(name.clone()))??;
        workers.push((name, worker));
    }
    Ok((balancer, workers))
}
