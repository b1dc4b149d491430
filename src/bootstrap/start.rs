//! Construction of a running server from settings.

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tollgate_admin::JsonSource;
use tollgate_fleet::{self as fleet, FleetView};
use tollgate_limiter::{ActiveRules, Observations, OwnShares};
use tollgate_metrics::Exporter;
use tollgate_rules::TableSize;
use tollgate_runtime::panics::{self, CancelOnPanic};
use tollgate_serve::{grpc::unary::UnaryService, readiness::Readiness};
use tollgate_store::{BackgroundQueue, StoreError};
use tollgate_telemetry::traces::TraceExporter;

use super::ports::{Ports, Routes, ServedPorts};
use super::regions::{Regions, RunningRegions};
use super::rule_sources::{self, FirstRules};
use super::stores::{AdminStore, ServiceFactory, Stores, report_memory};
use super::workers::start_workers;
use super::{Instance, StartError, activation::Activator, reports, running::Running};
use crate::settings::Settings;

/// Starts the server that `settings` describe, and returns when it is ready, or as ready as it can be without rules.
/// `/metrics` renders `exporter`.
///
/// The acceptor and the HTTP ports run on the current runtime.
///
/// # Errors
/// [`StartError`]; components started by then end by themselves.
pub(super) async fn start(mut settings: Settings, exporter: Option<Exporter>) -> Result<Running, StartError> {
    let shares = OwnShares::default();
    let regions = Regions::load(&settings, &shares)?;
    settings.rules.options.regions =
        regions.as_ref().map_or(TableSize::NoTable, |regions| regions.table_size);
    let stores = Stores::new(&settings, regions.as_ref().map(|regions| Arc::clone(&regions.layer)));
    let memory_gauge = AbortOnDropHandle::new(tokio::spawn(report_memory(stores.memory.clone())));
    let tracing =
        TraceExporter::start(&settings.traces).map_err(|error| format!("cannot export traces: {error}"))?;
    // Each worker opens a store, and so does the HTTP port.
    let readiness = stores.readiness(settings.process.workers.get().saturating_add(1));
    let admin_store = settings.admin.address.map(|_| AdminStore::open(&stores, &settings, &shares));
    let admin_store = admin_store.transpose()?;
    let needs_store = regions.as_ref().is_some_and(|regions| regions.needs_store);
    let lending_store = needs_store.then(|| stores.of_region()).transpose()?;
    let replicas = stores.replicas().unwrap_or_default();
    let observations = Observations::default();
    let view = regions.as_ref().map(|regions| regions.view.clone());
    let parts = StartParts { exporter, readiness: readiness.clone(), admin_store, view };
    let services = ServiceFactory {
        stores,
        readiness,
        shares: regions.as_ref().map_or(shares, |regions| regions.shares.clone()),
        observations: observations.clone(),
        tracer: tracing.as_ref().map(|tracing| tracing.tracer.clone()),
        response: settings.response.clone(),
        modes: settings.modes,
        is_shared: Arc::default(),
    };
    let open = move |rules: &Arc<ActiveRules>, background| services.open(rules, background);
    let mut running = start_with(settings, parts, regions.as_ref(), open).await?;
    let [bans, events] = reports::start(observations, &running.instance);
    running.tasks.extend([memory_gauge, bans, events]);
    if let Some(regions) = regions {
        running.regions = regions.start(&running.instance, lending_store, replicas).await?;
    }
    Ok(Running { tracing, ..running })
}

/// Parts of a server that are created before its rules are loaded.
#[derive(Debug, Default)]
pub(super) struct StartParts {
    /// Rendered by `/metrics`.
    pub(super) exporter: Option<Exporter>,
    pub(super) readiness: Readiness,
    /// Store of the admin API, if there is an admin port.
    pub(super) admin_store: Option<AdminStore>,
    /// The regions as the admin API shows them.
    pub(super) view: Option<JsonSource>,
}

/// Starts a server whose calls are answered by the service that `open` creates, once for each worker and once for HTTP,
/// on the runtime that will use it.
pub(super) async fn start_with<T, O>(
    settings: Settings,
    parts: StartParts,
    regions: Option<&Regions>,
    open: O,
) -> Result<Running, StartError>
where
    T: UnaryService,
    O: Fn(&Arc<ActiveRules>, BackgroundQueue) -> Result<T, StoreError> + Clone + Send + 'static,
{
    // Before any task on which others depend runs on this thread.
    let panicked = panic_token();
    let StartParts { exporter, readiness, admin_store, view } = parts;
    let (instance, activator, first_rules) = load_rules(&settings, readiness, regions).await?;
    let Ports { grpc, grpc_tls, http, metrics, admin, reloads } = Ports::open(&settings).await?;
    let grpc_address = grpc.address().map_err(StartError::System)?;
    let tasks = fleet::start(settings.webhook.clone(), &instance.control, &instance.fleet);
    let routes = Routes { settings: &settings, instance: &instance, exporter: exporter.as_ref() };
    // A background queue of its own: HTTP outlives the workers, so its pending refunds must not delay them.
    let http = (http, routes.public(open(&instance.rules, BackgroundQueue::default())?)?);
    let metrics = metrics.zip(routes.metrics());
    let admin =
        admin.zip(admin_store).map(|((port, tokens), store)| (port, routes.admin(tokens, store, view)));
    let (workers, worker_failures) = start_workers(&settings, grpc_tls, &instance, open).await?;
    let alarm = CancelOnPanic(panicked.clone());
    let rule_sources = first_rules.follow(&settings.rules, activator, alarm).map_err(StartError::System)?;
    let stop_accepting = CancellationToken::new();
    let accepting = grpc.run(workers, settings.grpc.max_connections, stop_accepting.clone());
    let acceptor = tokio::spawn(accepting);
    let ports =
        ServedPorts::serve([Some(http), metrics, admin].into_iter().flatten()).map_err(StartError::System)?;
    Ok(Running {
        grpc_address,
        instance,
        rule_sources,
        acceptor,
        stop_accepting: stop_accepting.drop_guard(),
        worker_failures,
        panicked,
        ports,
        reloads,
        process: settings.process,
        tasks,
        regions: RunningRegions::default(),
        tracing: None,
    })
}

/// Token that a panic on this thread, or of the process, cancels.
fn panic_token() -> CancellationToken {
    let panicked = panics::process_token().child_token();
    panics::set_thread_alarm({
        let panicked = panicked.clone();
        move || panicked.cancel()
    });
    panicked
}

/// Loads the first rules of the instance.
async fn load_rules(
    settings: &Settings,
    readiness: Readiness,
    regions: Option<&Regions>,
) -> Result<(Instance, Activator, FirstRules), StartError> {
    let activator = Activator::new(readiness.clone(), &settings.rules);
    let control = rule_sources::open_control(settings)?;
    if let Some(regions) = regions {
        regions.prepare(&control).await;
    }
    let first_rules = rule_sources::load_first(&settings.rules, &activator, &control).await?;
    let instance = Instance {
        readiness,
        rules: Arc::clone(&activator.rules),
        status: activator.status.clone(),
        fleet: FleetView::new(control.clone(), settings.admin.top_talkers, Arc::clone(&activator.rules)),
        control,
    };
    Ok((instance, activator, first_rules))
}
