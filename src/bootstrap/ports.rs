//! Opening and serving of the ports, with the routes of HTTP.

use std::{future::pending, io, net::SocketAddr, time::Duration};

use axum::Router;
use tokio::{
    join, select,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_metrics::Exporter;

use super::{
    listener::Listener,
    running::{Instance, TaskViews},
    start::StartError,
    stores::AdminStore,
};
use crate::{
    grpc::service::UnaryService,
    http::{self, AdminParts, ApiParts, ConnectionLimits, DescriptorError, HttpPort, PublicParts, Tokens},
    net::tls::{Protocol, Tls},
    regions::Regions,
    service::RequestBounds,
    settings::{Port, Settings, TlsSettings},
};

/// Open ports that are not served yet: connections wait in the backlog.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) grpc: Listener,
    pub(super) grpc_tls: Option<Tls>,
    pub(super) http: HttpPort,
    pub(super) metrics: Option<HttpPort>,
    pub(super) admin: Option<(HttpPort, Option<Tokens>)>,
    pub(super) credentials: CredentialReloads,
}

/// Tasks that reload certificates and tokens; aborted on drop.
#[derive(Debug, Default)]
pub(super) struct CredentialReloads(JoinSet<()>);

impl CredentialReloads {
    fn spawn(&mut self, reload: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(reload);
    }

    fn tls(&mut self, settings: Option<&TlsSettings>, protocol: Protocol) -> Result<Option<Tls>, StartError> {
        let Some(settings) = settings else { return Ok(None) };
        let (tls, reload) = Tls::load(settings.clone(), protocol)?;
        self.spawn(reload);
        Ok(Some(tls))
    }

    /// Completes when a task ends, which only a panic causes.
    pub(super) async fn failed(&mut self) {
        match self.0.join_next().await {
            Some(_) => {}
            None => pending().await,
        }
    }
}

impl Ports {
    /// Reads the certificates and tokens, then opens the ports.
    pub(super) async fn open(settings: &Settings) -> Result<Self, StartError> {
        let mut credentials = CredentialReloads::default();
        let grpc_tls = credentials.tls(settings.grpc.tls().as_ref(), Protocol::Http2)?;
        let http_tls = credentials.tls(settings.http.tls().as_ref(), Protocol::Http1)?;
        let listen = &settings.grpc.listen;
        let grpc = Listener::bind(listen).await.map_err(|error| listen_error(Port::Grpc, listen, error))?;
        let http = http_port(Port::Http, settings.http.address, http_tls, settings).await?;
        let metrics = match &settings.http.metrics {
            Some(metrics) => Some(http_port(Port::Metrics, metrics.address, None, settings).await?),
            None => None,
        };
        let admin = match settings.admin.address {
            Some(address) => match open_admin(address, settings, &mut credentials).await {
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
        Ok(Self { grpc, grpc_tls, http, metrics, admin, credentials })
    }
}

async fn open_admin(
    address: SocketAddr,
    settings: &Settings,
    credentials: &mut CredentialReloads,
) -> Result<(HttpPort, Option<Tokens>), StartError> {
    let tokens = match &settings.admin.token_file {
        Some(path) => {
            let (tokens, reload) = Tokens::load(path.clone())?;
            credentials.spawn(reload);
            Some(tokens)
        }
        None => None,
    };
    let tls = credentials.tls(settings.admin.tls().as_ref(), Protocol::Http1)?;
    Ok((http_port(Port::Admin, address, tls, settings).await?, tokens))
}

async fn http_port(
    port: Port,
    address: SocketAddr,
    tls: Option<Tls>,
    settings: &Settings,
) -> Result<HttpPort, StartError> {
    let bound =
        HttpPort::bind(port, address, tls, ConnectionLimits::new(settings.process.handshake_timeout)).await;
    bound.map_err(|error| listen_error(port, &address, error))
}

fn listen_error(port: Port, address: &dyn ToString, error: io::Error) -> StartError {
    StartError::Listen { port, address: address.to_string(), error }
}

/// HTTP port that is being served.
#[derive(Debug)]
pub(super) struct ServedPort {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl ServedPort {
    /// Serves `router` on the current runtime.
    pub(super) fn serve(port: HttpPort, router: Router) -> io::Result<Self> {
        let address = port.address()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(port.serve(router, stop.clone()));
        Ok(Self { address, task, stop: stop.drop_guard() })
    }

    /// Completes when serving ends, which only a panic causes.
    pub(super) async fn failed(&mut self) {
        // The panic is logged.
        let _ = (&mut self.task).await;
    }

    /// Finishes the requests in flight, and aborts those that take longer than `limit`.
    pub(super) async fn stop(mut self, limit: Duration) {
        drop(self.stop);
        if !self.task.is_finished() && timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

/// HTTP ports that are being served.
#[derive(Debug)]
pub(super) struct ServedPorts {
    pub(super) http: ServedPort,
    pub(super) metrics: Option<ServedPort>,
    pub(super) admin: Option<ServedPort>,
}

impl ServedPorts {
    /// Serves the routers on the current runtime.
    pub(super) fn serve(
        http: (HttpPort, Router),
        metrics: Option<(HttpPort, Router)>,
        admin: Option<(HttpPort, Router)>,
    ) -> io::Result<Self> {
        let serve = |(port, router)| ServedPort::serve(port, router);
        Ok(Self {
            http: serve(http)?,
            metrics: metrics.map(serve).transpose()?,
            admin: admin.map(serve).transpose()?,
        })
    }

    /// Completes when serving of a port ends, which only a panic causes, and returns its name.
    pub(super) async fn failed(&mut self) -> &'static str {
        select! {
            () = self.http.failed() => "HTTP port",
            () = port_failed(&mut self.metrics) => "metrics port",
            () = port_failed(&mut self.admin) => "admin port",
        }
    }

    /// Finishes the requests in flight, and aborts those that take longer than `limit`.
    pub(super) async fn stop(self, limit: Duration) {
        join!(self.http.stop(limit), stop_port(self.metrics, limit), stop_port(self.admin, limit));
    }
}

async fn stop_port(port: Option<ServedPort>, limit: Duration) {
    if let Some(port) = port {
        port.stop(limit).await;
    }
}

async fn port_failed(port: &mut Option<ServedPort>) {
    match port {
        Some(port) => port.failed().await,
        None => pending().await,
    }
}

/// Sources of the routes.
pub(super) struct Routes<'a> {
    pub(super) settings: &'a Settings,
    pub(super) instance: &'a Instance,
    /// Rendered by `/metrics`.
    pub(super) exporter: Option<&'a Exporter>,
}

impl Routes<'_> {
    /// Routes of the public port, with `rate_limit` behind `/json`.
    pub(super) fn public<T: UnaryService>(&self, rate_limit: T) -> Result<Router, DescriptorError> {
        http::public_router(PublicParts {
            rate_limit,
            readiness: self.instance.readiness.clone(),
            exporter: self.exporter.cloned(),
            max_body: self.settings.grpc.max_message_bytes,
        })
    }

    /// Routes of the metrics port, if there are settings of one.
    pub(super) fn metrics(&self) -> Option<Router> {
        let path = &self.settings.http.metrics.as_ref()?.path;
        Some(http::metrics_router(path.clone(), self.exporter.cloned()))
    }

    /// Routes of the admin port.
    pub(super) fn admin(
        &self,
        tokens: Option<Tokens>,
        AdminStore { counters, facts }: AdminStore,
        TaskViews { fleet, rollouts }: TaskViews,
        regions: Option<Regions>,
    ) -> Router {
        let Self { settings, instance, exporter } = self;
        let api = ApiParts {
            control: instance.control.clone(),
            status: instance.status.clone(),
            rules: instance.rules.clone(),
            options: settings.rules.options,
            bounds: RequestBounds::default(),
            directory: settings.rules.directory.clone(),
            readiness: instance.readiness.clone(),
            counters,
            fleet,
            rollouts,
            store: facts,
            regions,
        };
        http::admin_router(AdminParts {
            api,
            exporter: exporter.cloned(),
            tokens,
            requires_client_certificate: settings.admin.requires_client_certificate(),
        })
    }
}
