//! Construction of a running server from settings.

use std::{io, sync::Arc};

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tollgate_admin::TokenError;
use tollgate_control::JournalError;
use tollgate_fleet::{
    self as fleet, FleetView,
    rollouts::{self, RolloutView},
};
use tollgate_limiter::{ActiveRules, Observations, OwnShares};
use tollgate_metrics::Exporter;
use tollgate_regions::{self as regions, Lending, PeersError, PrimaryCalls, PrimaryRouter, Regions};
use tollgate_rules::{TableSize, config::LoadError};
use tollgate_runtime::panics::{self, CancelOnPanic};
use tollgate_serve::{
    grpc::{dispatch::ReflectionError, service::UnaryService},
    http::DescriptorError,
    net::{Port, tls::TlsError},
    readiness::Readiness,
};
use tollgate_store::{BackgroundQueue, StoreError, loans::ShareWatch};
use tollgate_telemetry::traces::TraceExporter;

use super::{
    activation::Activator,
    ports::{Ports, Routes, ServedPorts},
    reports,
    rule_sources::{self, FirstRules},
    running::{Instance, RegionTasks, Running},
    stores::{AdminStore, ServiceFactory, StoreLayer, Stores, report_memory},
    workers::{WorkerConfig, WorkerLost, start_workers},
};
use crate::settings::Settings;

/// Reason that a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rules are invalid; contains the whole report.
    #[error("no valid rules to start with:\n{0}")]
    Rules(#[from] LoadError),
    /// The store's settings are invalid.
    #[error("cannot open the store: {0}")]
    Store(#[from] StoreError),
    /// The file of the overrides is unusable.
    #[error(transparent)]
    OverridesFile(#[from] JournalError),
    /// A port cannot be opened.
    #[error("cannot listen on {address} (--{port}-address): {error}")]
    Listen {
        port: Port,
        /// Its configured address.
        address: String,
        #[source]
        error: io::Error,
    },
    /// The tokens of the admin port are unusable.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The region table is invalid.
    #[error("invalid region table (--regions): {0}")]
    Regions(String),
    /// The service between regions cannot start.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The TLS files of a port are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system refused a resource, such as a thread.
    #[error("operating system error: {0}")]
    System(#[source] io::Error),
    /// A worker ended before it was ready.
    #[error(transparent)]
    Worker(#[from] WorkerLost),
    /// The embedded message descriptors are broken.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// Tracing cannot be started.
    #[error("cannot export traces: {0}")]
    Traces(String),
    /// The embedded service descriptors are broken.
    #[error(transparent)]
    Reflection(#[from] ReflectionError),
}

/// Starts the server that `settings` describe, and returns when it is ready, or as ready as it can be without rules.
/// `/metrics` renders `exporter`.
///
/// The acceptor and the HTTP ports run on the current runtime.
///
/// # Errors
/// [`StartError`]; components started by then end by themselves.
pub(super) async fn start(mut settings: Settings, exporter: Option<Exporter>) -> Result<Running, StartError> {
    let shares = OwnShares::default();
    let (calls, queue) = PrimaryCalls::new();
    let regions = load_regions(&mut settings, &shares, &calls)?;
    let peers = settings.region.as_ref().and_then(|region| region.peers.clone());
    let in_front = regions
        .is_some()
        .then(|| -> StoreLayer { Arc::new(move |own| Arc::new(PrimaryRouter::new(own, calls.clone()))) });
    let stores = Stores::new(&settings, in_front);
    let memory_gauge = AbortOnDropHandle::new(tokio::spawn(report_memory(stores.memory.clone())));
    let tracing = settings
        .traces
        .endpoint
        .as_deref()
        .map(|url| TraceExporter::start(url, &settings.traces))
        .transpose()
        .map_err(StartError::Traces)?;
    // Each worker opens a store, and so does the HTTP port.
    let readiness = stores.readiness(settings.process.workers.get().saturating_add(1));
    let admin_store = settings.admin.address.map(|_| AdminStore::open(&stores, &settings, &shares));
    let admin_store = admin_store.transpose()?;
    let watch = peers.as_ref().map(|_| ShareWatch::default());
    let lending_store = watch.as_ref().map(|_| stores.of_region()).transpose()?;
    let replicas = stores.replicas().unwrap_or_default();
    let observations = Observations::default();
    let parts = StartParts { exporter, readiness: readiness.clone(), admin_store, regions: regions.clone() };
    let services = ServiceFactory {
        stores,
        readiness,
        shares: shares.clone().with_watch(watch.clone()),
        observations: observations.clone(),
        tracer: tracing.as_ref().map(|tracing| tracing.tracer.clone()),
        response: settings.response.clone(),
        modes: settings.modes(),
        is_shared: Arc::default(),
    };
    let open = move |rules: &Arc<ActiveRules>, background| services.open(rules, background);
    let mut running = start_with(settings, parts, open).await?;
    let instance = &running.instance;
    let [bans, events] = reports::start(observations, instance);
    running.tasks.extend([memory_gauge, bans, events]);
    let lending = lending_store.zip(watch).map(|(store, watch)| {
        let rules = Arc::clone(&running.instance.rules);
        Lending { rules, shares, store, watch, replicas, calls: queue }
    });
    if let Some(regions) = regions {
        running.regions = Some(RegionTasks::start(regions, peers.zip(lending), &running.instance).await?);
    }
    Ok(Running { tracing, ..running })
}

/// Reads the region table, if there is one, by which the rules are checked and the primary region is called.
fn load_regions(
    settings: &mut Settings,
    shares: &OwnShares,
    calls: &PrimaryCalls,
) -> Result<Option<Regions>, StartError> {
    let regions = settings.region.as_ref().map(|region| Regions::load(region, shares.clone()));
    let regions = regions.transpose().map_err(StartError::Regions)?;
    let regions = regions.map(|regions| regions.with_primary_calls(calls.clone()));
    settings.rules.options.regions = regions.as_ref().map_or(TableSize::NoTable, Regions::table_size);
    Ok(regions)
}

/// Parts of a server that are created before its rules are loaded.
#[derive(Debug, Default)]
pub(super) struct StartParts {
    /// Rendered by `/metrics`.
    pub(super) exporter: Option<Exporter>,
    pub(super) readiness: Readiness,
    /// Store of the admin API, if there is an admin port.
    pub(super) admin_store: Option<AdminStore>,
    pub(super) regions: Option<Regions>,
}

/// Starts a server whose calls are answered by the service that `open` creates, once for each worker and once for HTTP,
/// on the runtime that will use it.
pub(super) async fn start_with<T, O>(
    settings: Settings,
    parts: StartParts,
    open: O,
) -> Result<Running, StartError>
where
    T: UnaryService,
    O: Fn(&Arc<ActiveRules>, BackgroundQueue) -> Result<T, StoreError> + Clone + Send + 'static,
{
    // Before any task on which others depend runs on this thread.
    let panicked = panic_token();
    let StartParts { exporter, readiness, admin_store, regions } = parts;
    let (instance, activator, first_rules) = load_rules(&settings, readiness, regions.as_ref()).await?;
    let Ports { grpc, grpc_tls, http, metrics, admin, reloads } = Ports::open(&settings).await?;
    let grpc_address = grpc.address().map_err(StartError::System)?;
    let mut tasks = fleet::start(settings.webhook.clone(), &instance.control, &instance.fleet);
    tasks.extend(rollouts::start(&instance.control, &instance.rules, &instance.rollouts));
    let routes = Routes { settings: &settings, instance: &instance, exporter: exporter.as_ref() };
    // A background queue of its own: HTTP outlives the workers, so its pending refunds must not delay them.
    let http = (http, routes.public(open(&instance.rules, BackgroundQueue::default())?)?);
    let metrics = metrics.zip(routes.metrics());
    let admin =
        admin.zip(admin_store).map(|((port, tokens), store)| (port, routes.admin(tokens, store, regions)));
    let (config, mut worker_failures) = WorkerConfig::new(&settings, grpc_tls, &instance.readiness)?;
    let workers = start_workers(config, &mut worker_failures, &instance.rules, open).await?;
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
        regions: None,
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
    // Before the files of the directory could become the first version.
    control.set_writing_region(regions.and_then(Regions::writing).as_deref());
    let has_peers = settings.region.as_ref().is_some_and(|region| region.peers.is_some());
    if let Some(regions) = regions.filter(|_| has_peers) {
        regions::tables::settle(regions, &control).await;
    }
    let first_rules = rule_sources::load_first(&settings.rules, &activator, &control).await?;
    let instance = Instance {
        readiness,
        rules: Arc::clone(&activator.rules),
        status: activator.status.clone(),
        fleet: FleetView::new(control.clone(), settings.admin.top_talkers),
        rollouts: RolloutView::new(control.clone()),
        control,
    };
    Ok((instance, activator, first_rules))
}
