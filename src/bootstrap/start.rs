//! The components of a server, in the order of their start. They are stopped in the reverse order.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tollgate_envoyproxy::stats::DELTAS;
use tollgate_fleet::{self as fleet, FleetView};
use tollgate_metrics::Exporter;
use tollgate_serve::{grpc::unary::UnaryService, net::Port, readiness::Readiness};
use tollgate_store::BackgroundQueue;
use tollgate_telemetry::{statsd::StatsdExporter, traces::TraceExporter};

use super::activation::Activator;
use super::components::Components;
use super::ports::{Ports, Routes, ServedPort};
use super::regions::Regions;
use super::rule_sources::{RuleSources, open_control};
use super::stores::{ServiceFactory, report_memory};
use super::workers::{OpenService, start_workers};
use super::{Instance, StartError, metrics, reports, running::Running};
use crate::settings::Settings;

/// Starts the server that `settings` describe, and returns when it is ready, or as ready as it can be without rules.
/// `/metrics` renders `exporter`.
///
/// The acceptor and the HTTP ports run on the current runtime.
///
/// # Errors
/// [`StartError`]; components started by then end by themselves.
pub(super) async fn start(settings: Settings, exporter: Option<Exporter>) -> Result<Running, StartError> {
    start_with(settings, exporter, |services| Arc::new(move |rules, queue| services.open(rules, queue))).await
}

/// Starts a server whose calls are answered by the services that the result of `opener` opens, one for each worker and one
/// for HTTP.
pub(super) async fn start_with<T: UnaryService>(
    mut settings: Settings,
    exporter: Option<Exporter>,
    opener: impl FnOnce(ServiceFactory) -> OpenService<T>,
) -> Result<Running, StartError> {
    // Before any task on which others depend runs on this thread.
    let mut components = Components::new();
    let all_started = CancellationToken::new();
    components.add("the StatsD exporter", StatsdExporter::start(settings.statsd.clone(), &DELTAS)?);
    let traces = TraceExporter::start(&settings.traces);
    let traces = traces.map_err(|error| format!("cannot export traces: {error}"))?;
    let tracer = traces.as_ref().map(|traces| traces.tracer.clone());
    components.add("the trace exporter", traces);

    let regions = Regions::load(&mut settings)?;
    let services = ServiceFactory::new(&settings, regions.layer.clone(), regions.shares.clone(), tracer);
    let (open, view) = (opener(services.clone()), regions.view.clone());
    let ServiceFactory { stores, readiness, observations, .. } = &services;
    let (instance, sources) = load_rules(&settings, readiness, &regions, &components.panicked).await?;
    let reloads = sources.reloads();
    components.add("the rule sources", sources);

    let Ports { grpc, grpc_tls, http, reloads: credentials } = Ports::open(&settings).await?;
    components.add("the reload of certificates and tokens", credentials);
    let mut addresses = http.addresses()?;
    let (tasks, address) = regions.start(&instance, stores).await?;
    components.add("the regions", tasks);
    addresses.extend(address.map(|address| (Port::Region, address)));
    let routes = Routes { settings: &settings, instance: &instance, exporter, services: &services, view };
    // A background queue of its own: HTTP outlives the workers, so its pending refunds must not delay them.
    let rate_limit = open(&instance.rules, BackgroundQueue::default())?;
    for (name, port) in http.serve(routes, rate_limit, &all_started)? {
        components.add(name, port);
    }
    let grpc_address = grpc.address()?;
    let (balancer, workers) = start_workers(&settings, grpc_tls, &instance, &open).await?;
    for (name, worker) in workers {
        components.add(name, worker);
    }
    let serve = |stop| grpc.run(balancer, settings.grpc.max_connections, stop);
    components.add("the gRPC port", ServedPort::start(serve));

    components.add("the fleet", fleet::start(settings.webhook, &instance.control, &instance.fleet));
    components.add("the reports of bans and thresholds", reports::start(observations.clone(), &instance));
    components.add("the memory metrics", JoinSet::from_iter([report_memory(stores.memory.clone())]));
    components.add("the maintenance of metrics", JoinSet::from_iter([metrics::maintain()]));
    components.add("the health checks", instance.readiness.clone());
    all_started.cancel();
    Ok(Running { grpc_address, addresses, instance, components, reloads, process: settings.process })
}

/// Loads the first rules of the instance.
async fn load_rules(
    settings: &Settings,
    readiness: &Readiness,
    regions: &Regions,
    panicked: &CancellationToken,
) -> Result<(Instance, RuleSources), StartError> {
    let activator = Activator::new(readiness.clone(), &settings.rules);
    let control = open_control(settings)?;
    regions.prepare(&control).await;
    let sources = RuleSources::start(&settings.rules, &activator, &control, panicked).await?;
    let Activator { rules, status, .. } = activator;
    let fleet = FleetView::new(control.clone(), settings.admin.top_talkers, Arc::clone(&rules));
    Ok((Instance { readiness: readiness.clone(), rules, control, status, fleet }, sources))
}
