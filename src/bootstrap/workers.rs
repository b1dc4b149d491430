//! A worker: one thread, one runtime, and the connections that it was given.

use std::{io, num::NonZeroUsize, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::Builder,
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;

use super::{
    balance::{Balancer, Place},
    io::{Accepted, Io},
    start::StartError,
};
use crate::{
    grpc::{
        connection::Connections,
        dispatch::{Dispatch, side_services},
        request_body::Limits,
    },
    net::tls::Tls,
    panics::{self, CatchUnwind},
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService,
    readiness::Readiness,
    rules::Snapshot,
    settings::{GrpcSettings, ProcessSettings, Settings},
    store::{BackgroundQueue, StoreError},
};

/// What every worker needs.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) grpc: GrpcSettings,
    pub(super) process: ProcessSettings,
    pub(super) tls: Option<Tls>,
    pub(super) side_services: Routes,
    /// What the workers' last calls leave to be given back is waited for.
    pub(super) later: BackgroundQueue,
    /// Hears of workers that failed; closed when all have ended.
    pub(super) alarms: UnboundedSender<WorkerLost>,
}

/// A worker ended although it was not told to, or something in it panicked that was not the answer to one call: it may
/// hold on to a broken state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} failed")]
pub struct WorkerLost(usize);

/// Raises the alarm when a worker's thread ends, a panic included, unless it may.
struct Alarm {
    worker: usize,
    alarms: UnboundedSender<WorkerLost>,
    may_end: bool,
}

impl Alarm {
    fn stand_down(mut self) {
        self.may_end = true;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !self.may_end {
            // Nobody listens once the process ends anyway.
            let _ = self.alarms.send(WorkerLost(self.worker));
        }
    }
}

/// Starts worker number `worker`. It serves what `open` makes, on the worker's own runtime, to the connections
/// it receives; when there are no more to come, it drains them and ends.
///
/// What is returned tells when it is ready, or why it is not.
fn start<T, O>(
    worker: usize,
    plan: Plan,
    open: O,
    connections: UnboundedReceiver<(Accepted, Place)>,
) -> io::Result<oneshot::Receiver<Result<(), StoreError>>>
where
    T: RateLimitService,
    O: FnOnce() -> Result<T, StoreError> + Send + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (opened, ready) = oneshot::channel();
    let work = async move {
        let service = match open() {
            Ok(service) => service,
            Err(error) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        // The starter waits for this.
        let _ = opened.send(Ok(()));
        let limits = Limits { bytes: plan.grpc.max_message_bytes, time: plan.process.handshake_timeout };
        let services = Dispatch::new(service, plan.side_services, limits);
        let draining = CancellationToken::new();
        let served = Connections::new(&plan.grpc, plan.tls, plan.process.handshake_timeout, draining.clone());
        serve(services, connections, &served, plan.process.drain_timeout, draining, &plan.later).await;
    };
    let alarm = Alarm { worker, alarms: plan.alarms, may_end: false };
    thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
        let (worker, alarms) = (alarm.worker, alarm.alarms.clone());
        // Nobody listens once the process ends anyway.
        panics::set_thread_alarm(move || {
            let _ = alarms.send(WorkerLost(worker));
        });
        runtime.block_on(work);
        // Cuts what is left, before anyone hears that this worker has ended.
        drop(runtime);
        alarm.stand_down();
    })?;
    Ok(ready)
}

async fn serve<T: RateLimitService>(
    services: Dispatch<T>,
    mut incoming: UnboundedReceiver<(Accepted, Place)>,
    connections: &Connections,
    drain_timeout: Duration,
    draining: CancellationToken,
    later: &BackgroundQueue,
) {
    let tasks = TaskTracker::new();
    while let Some((accepted, place)) = incoming.recv().await {
        match Io::new(accepted, place) {
            Ok(io) => {
                tasks.spawn(CatchUnwind::new(connections.clone().serve(io, services.clone())));
            }
            Err(error) => tracing::warn!("a connection was lost: {error}"),
        }
    }
    draining.cancel();
    tasks.close();
    let begun = Instant::now();
    if timeout(drain_timeout, tasks.wait()).await.is_err() {
        tracing::warn!("{} connections were cut: their calls did not end in time", tasks.len());
    }
    if timeout(drain_timeout.saturating_sub(begun.elapsed()), later.settled()).await.is_err() {
        tracing::warn!("the store did not take back in time what is left of calls that did not pass");
    }
}

/// What the workers need.
pub(super) fn plan(
    settings: &Settings,
    tls: Option<Tls>,
    readiness: &Readiness,
    later: BackgroundQueue,
) -> Result<impl FnOnce(UnboundedSender<WorkerLost>) -> Plan, StartError> {
    let side_services = side_services(readiness.clone())?;
    let (grpc, process) = (settings.grpc.clone(), settings.process);
    Ok(move |alarms| Plan { grpc, process, tls, side_services, later, alarms })
}

/// Starts the workers and waits until each is ready.
pub(super) async fn start_workers<T, O>(
    count: NonZeroUsize,
    plan: impl FnOnce(UnboundedSender<WorkerLost>) -> Plan,
    rules: &Arc<Snapshot>,
    open: O,
) -> Result<(Balancer<Accepted>, UnboundedReceiver<WorkerLost>), StartError>
where
    T: RateLimitService,
    O: Fn(&Arc<Snapshot>, BackgroundQueue) -> Result<T, StoreError> + Clone + Send + 'static,
{
    let (raise, mut alarms) = unbounded_channel();
    let plan = plan(raise);
    let mut balancer = Balancer::new();
    let mut starting = Vec::with_capacity(count.get());
    for worker in 0..count.get() {
        let (open, rules, later) = (open.clone(), Arc::clone(rules), plan.later.clone());
        let connections = balancer.add_worker();
        let ready = start(worker, plan.clone(), move || open(&rules, later), connections);
        starting.push(ready.map_err(StartError::System)?);
    }
    // The workers have the only senders left, so that the end of the last one ends the alarms.
    drop(plan);
    for ready in starting {
        match ready.await {
            Ok(opened) => opened?,
            // It ended without a word, so an alarm is due.
            Err(_) => return Err(alarms.recv().await.map_or_else(unexplained, StartError::Worker)),
        }
    }
    Ok((balancer, alarms))
}

fn unexplained() -> StartError {
    StartError::System(io::Error::other("a worker ended"))
}
