//! From settings to a running server.

use std::{io, sync::Arc};

use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    balance::Balancer,
    dispatch::{ReflectionError, side_services},
    health::Readiness,
    io::Accepted,
    listen::Listener,
    occupancy,
    reload::Reloader,
    rls::Rls,
    running::Running,
    stores::Stores,
    worker::{self, Plan, WorkerLost},
};
use crate::{
    config::{LoadError, Watcher},
    http::{self, DescriptorsBroken},
    metrics::Exporter,
    proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService,
    rules::Snapshot,
    service::Service,
    settings::{RulesSettings, Settings},
    store::{Later, StoreError},
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
    /// A port cannot be had.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, #[source] io::Error),
    /// The operating system refused a thread, or the like.
    #[error("the operating system refused: {0}")]
    System(#[source] io::Error),
    /// A worker ended before it was ready.
    #[error(transparent)]
    Worker(#[from] WorkerLost),
    /// The services' descriptions are broken.
    #[error(transparent)]
    Descriptors(#[from] DescriptorsBroken),
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
        let occupancy = AbortOnDropHandle::new(tokio::spawn(occupancy::report(stores.memory().clone())));
        let (answers, bounds, modes) = (settings.answers.clone(), settings.bounds, settings.modes);
        // The HTTP port uses one too.
        let readiness = stores.readiness(settings.workers.get().saturating_add(1));
        let reached = readiness.clone();
        let open = move |rules: &Arc<Snapshot>, later| {
            let limiter = stores.limiter(Arc::clone(rules), modes, &reached, later)?;
            Ok(Rls(Service::new(limiter, answers.clone(), bounds)))
        };
        let running = start_with(settings, exporter, readiness, later, open).await?;
        Ok(Running { occupancy: Some(occupancy), ..running })
    }
}

/// Starts a server whose calls are answered by what `open` makes, once for each worker and once for HTTP, on
/// the runtime that will use it.
pub(super) async fn start_with<T, O>(
    settings: Settings,
    exporter: Option<Exporter>,
    readiness: Readiness,
    later: Later,
    open: O,
) -> Result<Running, StartError>
where
    T: RateLimitService,
    O: Fn(&Arc<Snapshot>, Later) -> Result<T, StoreError> + Clone + Send + 'static,
{
    let reloader = Reloader::new(readiness.clone(), &settings.rules);
    let seen = reloader.load_first(&settings.rules)?;
    let rules = Arc::clone(&reloader.rules);

    let (listener, http_listener) = bind(&settings).await?;
    let grpc_address = listener.address().map_err(StartError::System)?;
    let http_address = http_listener.local_addr().map_err(StartError::System)?;
    let router = http::router(http::Parts {
        // Workers that end don't wait for what HTTP leaves to be given back: it goes on after them.
        rate_limit: open(&rules, Later::default())?,
        readiness: readiness.clone(),
        rules: Arc::clone(&rules),
        exporter,
        max_body: settings.grpc.max_message_bytes,
    })?;
    let (workers, alarms) = start_workers(&settings, &readiness, &rules, later, open).await?;
    let RulesSettings { directory, options, .. } = &settings.rules;
    let watcher = Watcher::spawn(directory, *options, Some(seen), move |version| reloader.take(version));
    let watcher = watcher.map_err(StartError::System)?;

    let stop_accepting = CancellationToken::new();
    let acceptor = tokio::spawn(listener.run(workers, stop_accepting.clone()));
    let stop_http = CancellationToken::new();
    let served = axum::serve(http_listener, router);
    let http = tokio::spawn(served.with_graceful_shutdown(stop_http.clone().cancelled_owned()).into_future());
    Ok(Running {
        grpc_address,
        http_address,
        readiness,
        rules,
        watcher,
        acceptor,
        stop_accepting: stop_accepting.drop_guard(),
        alarms,
        http,
        stop_http: stop_http.drop_guard(),
        drain_timeout: settings.drain_timeout,
        occupancy: None,
    })
}

/// Opens the ports; whoever connects before the workers are ready waits.
async fn bind(settings: &Settings) -> Result<(Listener, TcpListener), StartError> {
    let failed = |address: &dyn ToString, error| StartError::Listen(address.to_string(), error);
    let (grpc, http) = (&settings.grpc.listen, settings.http_address);
    let listener = Listener::bind(grpc).await.map_err(|error| failed(grpc, error))?;
    let http_listener = TcpListener::bind(http).await.map_err(|error| failed(&http, error))?;
    Ok((listener, http_listener))
}

/// Starts the workers and waits until each is ready.
async fn start_workers<T, O>(
    settings: &Settings,
    readiness: &Readiness,
    rules: &Arc<Snapshot>,
    later: Later,
    open: O,
) -> Result<(Balancer<Accepted>, UnboundedReceiver<WorkerLost>), StartError>
where
    T: RateLimitService,
    O: Fn(&Arc<Snapshot>, Later) -> Result<T, StoreError> + Clone + Send + 'static,
{
    let (raise, mut alarms) = unbounded_channel();
    let plan = Plan {
        grpc: settings.grpc.clone(),
        drain_timeout: settings.drain_timeout,
        side_services: side_services(readiness.clone())?,
        later,
        alarms: raise,
    };
    let mut balancer = Balancer::new();
    let mut starting = Vec::with_capacity(settings.workers.get());
    for worker in 0..settings.workers.get() {
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
