//! Opening and serving of the ports, with the routes of HTTP.

use std::{io, net::SocketAddr};

use axum::Router;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tollgate_admin::{AdminParts, ApiParts, JsonSource, Tokens};
use tollgate_metrics::Exporter;
use tollgate_serve::grpc::{listener::Listener, unary::UnaryService};
use tollgate_serve::http::{self, ConnectionLimits, DescriptorError, HttpPort, PublicParts};
use tollgate_serve::net::Port;
use tollgate_serve::net::tls::{Tls, TlsSettings};
use tollgate_store::StoreError;

use super::components::{Component, MIN_STOP_TIMEOUT};
use super::{Instance, StartError, stores::ServiceFactory};
use crate::settings::Settings;

/// Open ports that are not served yet: connections wait in the backlog.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) grpc: Listener,
    pub(super) grpc_tls: Option<Tls>,
    pub(super) http: HttpPorts,
    /// Tasks that reload certificates and tokens; aborted on drop.
    pub(super) reloads: JoinSet<()>,
}

/// Open ports of HTTP.
#[derive(Debug)]
pub(super) struct HttpPorts {
    public: HttpPort,
    metrics: Option<HttpPort>,
    admin: Option<(HttpPort, Option<Tokens>)>,
}

/// Reads the certificates of a port with TLS, and adds the task that reloads them.
fn load_tls(reloads: &mut JoinSet<()>, settings: Option<TlsSettings>) -> Result<Option<Tls>, StartError> {
    let Some(settings) = settings else { return Ok(None) };
    let (tls, reload) = Tls::load(settings)?;
    reloads.spawn(reload);
    Ok(Some(tls))
}

impl Ports {
    /// Reads the certificates and tokens, then opens the ports.
    pub(super) async fn open(settings: &Settings) -> Result<Self, StartError> {
        let mut reloads = JoinSet::new();
        let grpc_tls = load_tls(&mut reloads, settings.grpc.tls())?;
        let http_tls = load_tls(&mut reloads, settings.http.tls())?;
        let listen = &settings.grpc.listen;
        let grpc = Listener::bind(listen).await.map_err(|error| listen_error(Port::Grpc, listen, error))?;
        let public = http_port(Port::Http, settings.http.address, http_tls, settings).await?;
        let metrics = match &settings.http.metrics {
            Some(metrics) => Some(http_port(Port::Metrics, metrics.address, None, settings).await?),
            None => None,
        };
        let admin = match settings.admin.address {
            Some(address) => match open_admin(address, settings, &mut reloads).await {
                // Another instance on this machine has the default port, which was not requested explicitly.
                Err(StartError::Listen { error, .. })
                    if settings.admin.is_default() && error.kind() == io::ErrorKind::AddrInUse =>
                {
                    tracing::warn!(%address, "admin port in use; running without one");
                    None
                }
                opened => Some(opened?),
            },
            None => None,
        };
        Ok(Self { grpc, grpc_tls, http: HttpPorts { public, metrics, admin }, reloads })
    }
}

async fn open_admin(
    address: SocketAddr,
    settings: &Settings,
    reloads: &mut JoinSet<()>,
) -> Result<(HttpPort, Option<Tokens>), StartError> {
    let tokens = match &settings.admin.token_file {
        Some(path) => {
            let (tokens, reload) = Tokens::load(path.clone())?;
            reloads.spawn(reload);
            Some(tokens)
        }
        None => None,
    };
    let tls = load_tls(reloads, settings.admin.tls())?;
    Ok((http_port(Port::Admin, address, tls, settings).await?, tokens))
}

async fn http_port(
    port: Port,
    address: SocketAddr,
    tls: Option<Tls>,
    settings: &Settings,
) -> Result<HttpPort, StartError> {
    let limits = ConnectionLimits::new(settings.process.connections.handshake_timeout);
    let bound = HttpPort::bind(port, address, tls, limits).await;
    bound.map_err(|error| listen_error(port, &address, error))
}

fn listen_error(port: Port, address: &dyn ToString, error: io::Error) -> StartError {
    StartError::Listen { port, address: address.to_string(), error }
}

impl HttpPorts {
    /// The ports with their addresses.
    pub(super) fn addresses(&self) -> io::Result<Vec<(Port, SocketAddr)>> {
        let admin = self.admin.as_ref().map(|(port, _)| port);
        let open = [Some(&self.public), self.metrics.as_ref(), admin].into_iter().flatten();
        open.map(|open| Ok((open.port, open.address()?))).collect()
    }

    /// Serves the ports, with `rate_limit` behind `/json`, as soon as `all_started` is cancelled: who gets a response may
    /// rely on all components. Returns them with their names.
    pub(super) fn serve<T: UnaryService>(
        self,
        routes: Routes<'_>,
        rate_limit: T,
        all_started: &CancellationToken,
    ) -> Result<Vec<(&'static str, ServedPort)>, StartError> {
        let public = (self.public, routes.public(rate_limit)?);
        let metrics = self.metrics.zip(routes.metrics());
        let admin = self.admin.map(|(port, tokens)| routes.admin(tokens).map(|router| (port, router)));
        let serve = |(name, port): (_, Option<(HttpPort, Router)>)| {
            let ((port, router), all_started) = (port?, all_started.clone());
            let served = ServedPort::start(|stop| async move {
                all_started.cancelled().await;
                port.serve(router, stop).await;
            });
            Some((name, served))
        };
        let ports = [
            ("the HTTP port", Some(public)),
            ("the metrics port", metrics),
            ("the admin port", admin.transpose()?),
        ];
        Ok(ports.into_iter().filter_map(serve).collect())
    }
}

/// Task that serves a port until it is stopped.
pub(super) struct ServedPort {
    task: AbortOnDropHandle<()>,
    stop: DropGuard,
}

impl ServedPort {
    /// Starts the task on the current runtime; it ends when the token is cancelled.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(stop.clone()));
        Self { task: AbortOnDropHandle::new(task), stop: stop.drop_guard() }
    }
}

impl Component for ServedPort {
    fn failed(&mut self) -> BoxFuture<'_, ()> {
        // Only a panic ends it, which is logged.
        (&mut self.task).map(drop).boxed()
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, ()> {
        let Self { task, stop } = *self;
        drop(stop);
        let limit = deadline.max(Instant::now() + MIN_STOP_TIMEOUT);
        let stop = async move {
            if !task.is_finished() {
                // Past the limit, the task is aborted.
                let _ = timeout_at(limit, task).await;
            }
        };
        stop.boxed()
    }
}

/// Sources of the routes.
pub(super) struct Routes<'a> {
    pub(super) settings: &'a Settings,
    pub(super) instance: &'a Instance,
    /// Rendered by `/metrics`.
    pub(super) exporter: Option<Exporter>,
    pub(super) services: &'a ServiceFactory,
    /// The regions as the admin API shows them.
    pub(super) view: Option<JsonSource>,
}

impl Routes<'_> {
    /// Routes of the public port, with `rate_limit` behind `/json`.
    fn public<T: UnaryService>(&self, rate_limit: T) -> Result<Router, DescriptorError> {
        http::public_router(PublicParts {
            rate_limit,
            readiness: self.instance.readiness.clone(),
            exporter: self.exporter.clone(),
            max_body: self.settings.grpc.max_message_bytes,
        })
    }

    /// Routes of the metrics port, if there are settings of one.
    fn metrics(&self) -> Option<Router> {
        let path = &self.settings.http.metrics.as_ref()?.path;
        Some(http::metrics_router(path.clone(), self.exporter.clone()))
    }

    /// Routes of the admin port.
    fn admin(self, tokens: Option<Tokens>) -> Result<Router, StoreError> {
        let Self { settings, instance, exporter, services, view: regions } = self;
        let api = ApiParts {
            control: instance.control.clone(),
            status: instance.status.clone(),
            rules: instance.rules.clone(),
            options: settings.rules.options,
            directory: settings.rules.directory.clone(),
            readiness: instance.readiness.clone(),
            counters: services.open_counters()?,
            fleet: instance.fleet.clone(),
            store: services.stores.info(&settings.store),
            regions,
        };
        Ok(tollgate_admin::router(AdminParts {
            api,
            exporter,
            tokens,
            requires_client_certificate: settings.admin.requires_client_certificate(),
        }))
    }
}
