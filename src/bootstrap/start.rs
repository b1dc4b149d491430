//! From settings to a running server.

use std::{io, sync::Arc};

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    activation::Reloader,
    drain::Running,
    memory_gauge,
    ports::{Ports, Served},
    rule_sources,
    stores::{Backing, Stores},
    workers::{WorkerLost, plan, start_workers},
};
use crate::{
    config::LoadError,
    control::FileError,
    grpc::{dispatch::ReflectionError, service::Rls},
    http::{self, AdminParts, ApiParts, DescriptorError, TokenError},
    metrics::Exporter,
    net::tls::TlsError,
    panics::{self, CancelOnPanic},
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService,
    readiness::Readiness,
    rules::Snapshot,
    service::Service,
    settings::{AdminSettings, Port, Settings},
    store::{Later, StoreError},
    telemetry::{TracesError, Tracing},
};

/// A server that is not running yet.
#[derive(Debug)]
pub struct Server;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rules are not valid; the text is the whole report.
    #[error("there are no valid rules to start with:\n{0}")]
    Rules(#[from] LoadError),
    /// The store's settings make no sense.
    #[error("the store cannot be opened: {0}")]
    Store(#[from] StoreError),
    /// The file of the versions cannot be used.
    #[error(transparent)]
    RulesFile(#[from] FileError),
    /// A port cannot be had.
    #[error("cannot listen on {address} (--{port}-address): {error}")]
    Listen {
        /// Which one.
        port: Port,
        /// Where it should be.
        address: String,
        /// What the operating system says.
        #[source]
        error: io::Error,
    },
    /// There is no token for the admin port.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The files of a port's TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system refused a thread, or the like.
    #[error("the operating system refused: {0}")]
    System(#[source] io::Error),
    /// A worker ended before it was ready.
    #[error(transparent)]
    Worker(#[from] WorkerLost),
    /// The services' descriptions are broken.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// There can be no traces.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The services' descriptions are broken.
    #[error(transparent)]
    Reflection(#[from] ReflectionError),
}

impl Server {
    /// Starts everything that `settings` ask for, and returns when it is ready, or as ready as it can be
    /// without rules. `/metrics` shows what `exporter` has.
    ///
    /// The acceptor and the HTTP port run on the runtime that this is called on.
    ///
    /// # Errors
    /// [`StartError`]; whatever was started by then ends by itself.
    pub async fn start(settings: Settings, exporter: Option<Exporter>) -> Result<Running, StartError> {
        let later = Later::default();
        let stores = Stores::new(&settings);
        let occupancy = AbortOnDropHandle::new(tokio::spawn(memory_gauge::report(stores.memory().clone())));
        let tracing = settings.traces.as_ref().map(Tracing::start).transpose()?;
        let traces = tracing.as_ref().map(|tracing| tracing.traces().clone());
        let (answers, bounds, modes) = (settings.answers.clone(), settings.bounds, settings.modes);
        // The HTTP port uses one too.
        let readiness = stores.readiness(settings.process.workers.get().saturating_add(1));
        let reached = readiness.clone();
        let backing = match &settings.admin {
            Some(_) => Some(Backing::open(&stores, &settings)?),
            None => None,
        };
        let open = move |rules: &Arc<Snapshot>, later| {
            let limiter = stores.limiter(Arc::clone(rules), modes, &reached, later)?;
            Ok(Rls { service: Service::new(limiter, answers.clone(), bounds), traces: traces.clone() })
        };
        let running = start_with(settings, exporter, readiness, later, backing, open).await?;
        Ok(Running { occupancy: Some(occupancy), tracing, ..running })
    }
}

/// Starts a server whose calls are answered by what `open` makes, once for each worker and once for HTTP, on
/// the runtime that will use it.
pub(super) async fn start_with<T, O>(
    settings: Settings,
    exporter: Option<Exporter>,
    readiness: Readiness,
    later: Later,
    backing: Option<Backing>,
    open: O,
) -> Result<Running, StartError>
where
    T: RateLimitService,
    O: Fn(&Arc<Snapshot>, Later) -> Result<T, StoreError> + Clone + Send + 'static,
{
    // Before anything runs on this thread that others rely on.
    let panicked = panics::process_token().child_token();
    panics::set_thread_alarm({
        let panicked = panicked.clone();
        move || panicked.cancel()
    });
    let reloader = Reloader::new(readiness.clone(), &settings.rules);
    let control = rule_sources::control(&settings)?;
    let origin = rule_sources::begin(&settings.rules, &reloader, &control).await?;
    let (rules, status) = (Arc::clone(&reloader.rules), reloader.status.clone());

    let ports = Ports::open(&settings).await?;
    let grpc_address = ports.grpc.address().map_err(StartError::System)?;
    let router = http::public_router(http::PublicParts {
        // Workers that end don't wait for what HTTP leaves to be given back: it goes on after them.
        rate_limit: open(&rules, Later::default())?,
        readiness: readiness.clone(),
        exporter: exporter.clone(),
        max_body: settings.grpc.max_message_bytes,
    })?;
    let metrics = ports.metrics.zip(settings.metrics.as_ref()).map(|(port, metrics)| {
        let router = http::metrics_router(metrics.path.clone(), exporter.clone());
        (port, router)
    });
    let admin = ports.admin.zip(backing).map(|((port, tokens), Backing { counters, store })| {
        let api = ApiParts {
            control: control.clone(),
            status: status.clone(),
            rules: Arc::clone(&rules),
            options: settings.rules.options,
            directory: settings.rules.directory.clone(),
            readiness: readiness.clone(),
            counters,
            store,
        };
        let requires_client_certificate = settings.admin.as_ref().is_some_and(AdminSettings::knows_clients);
        (port, http::admin_router(AdminParts { api, exporter, tokens, requires_client_certificate }))
    });
    let plan = plan(&settings, ports.grpc_tls, &readiness, later)?;
    let (workers, alarms) = start_workers(settings.process.workers, plan, &rules, open).await?;
    let source = origin
        .follow(&settings.rules, reloader, CancelOnPanic(panicked.clone()))
        .map_err(StartError::System)?;

    let stop_accepting = CancellationToken::new();
    let accepting = ports.grpc.run(workers, settings.grpc.max_connections, stop_accepting.clone());
    let acceptor = tokio::spawn(accepting);
    let begin = |(port, router)| Served::begin(port, router).map_err(StartError::System);
    Ok(Running {
        grpc_address,
        readiness,
        rules,
        control,
        status,
        source,
        acceptor,
        stop_accepting: stop_accepting.drop_guard(),
        alarms,
        panicked,
        http: begin((ports.http, router))?,
        metrics: metrics.map(begin).transpose()?,
        admin: admin.map(begin).transpose()?,
        files: ports.files,
        process: settings.process,
        occupancy: None,
        tracing: None,
    })
}
