//! Construction of a running server from settings.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tollgate_control::{FileError, JournalError};
use tollgate_limiter::{ActiveRules, BegunBans, OwnShares, ReachedThresholds, abuse::AbuseCollector};
use tollgate_metrics::Exporter;
use tollgate_rules::{TableSize, config::LoadError};
use tollgate_runtime::panics::{self, CancelOnPanic};
use tollgate_store::{BackgroundQueue, StoreError, loans::ShareWatch, primary::PrimaryCalls};

use super::{
    activation::Activator,
    ban_list::BanLister,
    drain::Running,
    memory_gauge,
    ports::{Ports, ServedPort},
    regions::RegionTasks,
    rule_sources,
    stores::{AdminStore, Stores},
    threshold_events::ThresholdEvents,
    workers::{WorkerLost, start_workers, worker_config},
};
use crate::{
    abuse,
    anomalies::{AnomalyStatus, AnomalyWatch},
    fleet::{FleetTasks, FleetView},
    grpc::{
        dispatch::ReflectionError,
        service::{RateLimitAdapter, UnaryService},
    },
    http::{self, AdminParts, ApiParts, DescriptorError, TokenError},
    net::tls::TlsError,
    readiness::Readiness,
    regions::{self, Lending, PeersError, RegionTableError, Regions},
    rollouts::RolloutTasks,
    service::Service,
    settings::{AdminSettings, Port, Settings},
    tracing::{TraceExporter, TracingError},
};

/// Entry point: starts a server.
#[derive(Debug)]
pub struct Server;

/// Reason that a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rules are invalid; contains the whole report.
    #[error("no valid rules to start with:\n{0}")]
    Rules(#[from] LoadError),
    /// The store's settings are invalid.
    #[error("cannot open the store: {0}")]
    Store(#[from] StoreError),
    /// The file of the rule versions is unusable.
    #[error(transparent)]
    RulesFile(#[from] FileError),
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
    #[error(transparent)]
    Regions(#[from] RegionTableError),
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
    #[error(transparent)]
    Traces(#[from] TracingError),
    /// The embedded service descriptors are broken.
    #[error(transparent)]
    Reflection(#[from] ReflectionError),
}

impl Server {
    /// Starts the server that `settings` describe, and returns when it is ready, or as ready as it can be without rules.
    /// `/metrics` renders `exporter`.
    ///
    /// The acceptor and the HTTP ports run on the current runtime.
    ///
    /// # Errors
    /// [`StartError`]; components started by then end by themselves.
    pub async fn start(mut settings: Settings, exporter: Option<Exporter>) -> Result<Running, StartError> {
        let shares = OwnShares::default();
        let regions =
            settings.region.as_ref().map(|region| Regions::load(region, shares.clone())).transpose()?;
        let (calls, queue) = PrimaryCalls::new();
        let regions = regions.map(|regions| regions.with_primary_calls(calls.clone()));
        settings.rules.options.regions = regions.as_ref().map_or(TableSize::NoTable, Regions::table_size);
        let peers = settings.region.as_ref().and_then(|region| region.peers.clone());
        let background = BackgroundQueue::default();
        let stores = Stores::new(&settings, regions.as_ref().map(|_| calls));
        let memory_gauge =
            AbortOnDropHandle::new(tokio::spawn(memory_gauge::report(stores.memory().clone())));
        let tracing = settings.traces.as_ref().map(TraceExporter::start).transpose()?;
        let tracer = tracing.as_ref().map(|tracing| tracing.tracer().clone());
        let (response_options, bounds, modes) = (settings.response.clone(), settings.bounds, settings.modes);
        // Each worker opens a store, and so does the HTTP port.
        let readiness = stores.readiness(settings.process.workers.get().saturating_add(1));
        let store_readiness = readiness.clone();
        let admin_store = match &settings.admin {
            Some(_) => Some(AdminStore::open(&stores, &settings, &shares)?),
            None => None,
        };
        // By the first limiter, that of the HTTP port, which outlives the workers.
        let is_shared = Arc::new(AtomicBool::new(false));
        let collector = AbuseCollector::default();
        let begun_bans = BegunBans::default();
        let (observers, bans) = (collector.clone(), begun_bans.clone());
        let thresholds = ReachedThresholds::default();
        let reached = thresholds.clone();
        let watch = peers.as_ref().map(|_| ShareWatch::default());
        let lending =
            watch.clone().map(|watch| stores.background().map(|store| (store, watch))).transpose()?;
        let (own_shares, replicas, counted) = (shares.clone(), stores.replicas(), stores.replicas());
        let open = move |rules: &Arc<ActiveRules>, background| {
            let limiter = stores.limiter(Arc::clone(rules), modes, &store_readiness, background)?;
            let limiter = limiter.with_begun_bans(bans.clone()).with_observer(observers.observer());
            let limiter = limiter.with_reached_thresholds(reached.clone());
            let limiter = limiter.with_shares(shares.clone().with_watch(watch.clone()));
            if !is_shared.swap(true, Ordering::Relaxed) {
                tokio::spawn(limiter.share_utilization());
            }
            Ok(RateLimitAdapter {
                service: Service::new(limiter, response_options.clone(), bounds),
                tracer: tracer.clone(),
            })
        };
        let running =
            start_with(settings, exporter, readiness, background, admin_store, regions.clone(), open).await?;
        let detection = abuse::run(running.control.clone(), Arc::clone(&running.rules), collector);
        let abuse = Some(AbortOnDropHandle::new(tokio::spawn(detection)));
        running.rollouts.count_instances(counted);
        let lister = BanLister::new(begun_bans, running.control.clone(), Arc::clone(&running.rules));
        let ban_list = AbortOnDropHandle::new(tokio::spawn(lister.run()));
        let events = ThresholdEvents::new(thresholds, running.control.clone());
        let threshold_events = Some(AbortOnDropHandle::new(tokio::spawn(events.run())));
        let (memory_gauge, ban_list) = (Some(memory_gauge), Some(ban_list));
        let regions = match (regions, peers) {
            (Some(regions), peers) => {
                let lending = lending.map(|(store, watch)| Lending {
                    rules: Arc::clone(&running.rules),
                    shares: own_shares,
                    store,
                    watch,
                    replicas,
                    calls: queue,
                });
                Some(RegionTasks::start(regions, peers.zip(lending), &running).await?)
            }
            (None, _) => None,
        };
        Ok(Running { memory_gauge, ban_list, threshold_events, abuse, regions, tracing, ..running })
    }
}

/// Starts a server whose calls are answered by the service that `open` creates, once for each worker and once for HTTP,
/// on the runtime that will use it.
pub(super) async fn start_with<T, O>(
    settings: Settings,
    exporter: Option<Exporter>,
    readiness: Readiness,
    background: BackgroundQueue,
    admin_store: Option<AdminStore>,
    regions: Option<Regions>,
    open: O,
) -> Result<Running, StartError>
where
    T: UnaryService,
    O: Fn(&Arc<ActiveRules>, BackgroundQueue) -> Result<T, StoreError> + Clone + Send + 'static,
{
    // Before any task on which others depend runs on this thread.
    let panicked = panics::process_token().child_token();
    panics::set_thread_alarm({
        let panicked = panicked.clone();
        move || panicked.cancel()
    });
    let activator = Activator::new(readiness.clone(), &settings.rules);
    let control = rule_sources::open_control(&settings)?;
    // Before the files of the directory could become the first version.
    control.set_writing_region(regions.as_ref().and_then(Regions::writing).as_deref());
    let has_peers = settings.region.as_ref().is_some_and(|region| region.peers.is_some());
    if let Some(regions) = regions.as_ref().filter(|_| has_peers) {
        regions::tables::settle(regions, &control).await;
    }
    let first_rules = rule_sources::load_first(&settings.rules, &activator, &control).await?;
    let (rules, status) = (Arc::clone(&activator.rules), activator.status.clone());

    let anomalies = AnomalyStatus::default();
    let ports = Ports::open(&settings).await?;
    let view = FleetView::new(control.clone(), settings.top_talkers);
    let (rollouts, rollout_view) = RolloutTasks::start(&control, &rules);
    let fleet = FleetTasks::start(&settings.fleet, &control, &view, settings.top_talkers);
    let grpc_address = ports.grpc.address().map_err(StartError::System)?;
    let router = http::public_router(http::PublicParts {
        // A background queue of its own: HTTP outlives the workers, so its pending refunds must not delay them.
        rate_limit: open(&rules, BackgroundQueue::default())?,
        readiness: readiness.clone(),
        exporter: exporter.clone(),
        max_body: settings.grpc.max_message_bytes,
    })?;
    let metrics = ports.metrics.zip(settings.metrics.as_ref()).map(|(port, metrics)| {
        let router = http::metrics_router(metrics.path.clone(), exporter.clone());
        (port, router)
    });
    let admin = ports.admin.zip(admin_store).map(|((port, tokens), AdminStore { counters, facts })| {
        let api = ApiParts {
            control: control.clone(),
            status: status.clone(),
            rules: Arc::clone(&rules),
            options: settings.rules.options,
            directory: settings.rules.directory.clone(),
            readiness: readiness.clone(),
            anomalies: (settings.anomalies, anomalies.clone()),
            counters,
            fleet: view,
            rollouts: rollout_view,
            store: facts,
            regions,
        };
        let requires_client_certificate =
            settings.admin.as_ref().is_some_and(AdminSettings::requires_client_certificate);
        (port, http::admin_router(AdminParts { api, exporter, tokens, requires_client_certificate }))
    });
    let anomaly_watch =
        settings.anomalies.map(|sensitivity| AnomalyWatch::start(sensitivity, &control, &rules, &anomalies));
    let config = worker_config(&settings, ports.grpc_tls, &readiness, background)?;
    let (workers, failures) = start_workers(settings.process.workers, config, &rules, open).await?;
    let rule_sources = first_rules
        .follow(&settings.rules, activator, CancelOnPanic(panicked.clone()))
        .map_err(StartError::System)?;

    let stop_accepting = CancellationToken::new();
    let accepting = ports.grpc.run(workers, settings.grpc.max_connections, stop_accepting.clone());
    let acceptor = tokio::spawn(accepting);
    let serve = |(port, router)| ServedPort::serve(port, router).map_err(StartError::System);
    Ok(Running {
        grpc_address,
        readiness,
        rules,
        control,
        status,
        rule_sources,
        acceptor,
        stop_accepting: stop_accepting.drop_guard(),
        worker_failures: failures,
        panicked,
        http: serve((ports.http, router))?,
        metrics: metrics.map(serve).transpose()?,
        admin: admin.map(serve).transpose()?,
        credentials: ports.credentials,
        process: settings.process,
        fleet,
        anomaly_watch,
        rollouts,
        memory_gauge: None,
        abuse: None,
        ban_list: None,
        threshold_events: None,
        regions: None,
        tracing: None,
    })
}
