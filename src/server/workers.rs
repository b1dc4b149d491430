//! All workers: how they start together.

use std::{io, num::NonZeroUsize, sync::Arc};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    balance::Balancer,
    dispatch::side_services,
    health::Readiness,
    io::Accepted,
    start::StartError,
    worker::{self, Plan, WorkerLost},
};
use crate::{
    net::tls::Tls,
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService,
    rules::Snapshot,
    settings::Settings,
    store::{Later, StoreError},
};

/// What the workers need.
pub(super) fn plan(
    settings: &Settings,
    tls: Option<Tls>,
    readiness: &Readiness,
    later: Later,
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
    O: Fn(&Arc<Snapshot>, Later) -> Result<T, StoreError> + Clone + Send + 'static,
{
    let (raise, mut alarms) = unbounded_channel();
    let plan = plan(raise);
    let mut balancer = Balancer::new();
    let mut starting = Vec::with_capacity(count.get());
    for worker in 0..count.get() {
        let (open, rules, later) = (open.clone(), Arc::clone(rules), plan.later.clone());
        let connections = balancer.add_worker();
        let ready = worker::start(worker, plan.clone(), move || open(&rules, later), connections);
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
