//! Opening and serving of the ports, with the routes of HTTP.

use std::{io, net::SocketAddr, time::Duration};

use axum::Router;
use futures_util::future::{join_all, select_all};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_admin::{AdminParts, ApiParts, JsonSource, Tokens};
use tollgate_metrics::Exporter;
use tollgate_serve::grpc::{listener::Listener, unary::UnaryService};
use tollgate_serve::http::{self, ConnectionLimits, DescriptorError, HttpPort, PublicParts};
use tollgate_serve::net::Port;
use tollgate_serve::net::tls::{Tls, TlsSettings};

use super::{Instance, StartError, stores::AdminStore};
use crate::settings::Settings;

/// Open ports that are not served yet: connections wait in the backlog.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) grpc: Listener,
    pub(super) grpc_tls: Option<Tls>,
    pub(super) http: HttpPort,
    pub(super) metrics: Option<HttpPort>,
    pub(super) admin: Option<(HttpPort, Option<Tokens>)>,
    /// Tasks that reload certificates and tokens; aborted on drop.
    pub(super) reloads: JoinSet<()>,
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
        let http = http_port(Port::Http, settings.http.address, http_tls, settings).await?;
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
        Ok(Self { grpc, grpc_tls, http, metrics, admin, reloads })
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

/// HTTP ports that are being served; the public one is the first.
#[derive(Debug)]
pub(super) struct ServedPorts(Vec<ServedPort>);

#[derive(Debug)]
struct ServedPort {
    port: Port,
    address: SocketAddr,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl ServedPorts {
    /// Serves each port with its routes on the current runtime.
    pub(super) fn serve(ports: impl IntoIterator<Item = (HttpPort, Router)>) -> io::Result<Self> {
        let serve = |(port, router): (HttpPort, Router)| {
            let (name, address, stop) = (port.port, port.address()?, CancellationToken::new());
            let task = tokio::spawn(port.serve(router, stop.clone()));
            Ok(ServedPort { port: name, address, task, stop: stop.drop_guard() })
        };
        ports.into_iter().map(serve).collect::<io::Result<_>>().map(Self)
    }

    /// Address of a port, if it is open.
    pub(super) fn address(&self, port: Port) -> Option<SocketAddr> {
        self.0.iter().find(|served| served.port == port).map(|served| served.address)
    }

    /// Completes when serving of a port ends, which only a panic causes, and returns its name.
    pub(super) async fn failed(&mut self) -> &'static str {
        // The panic is logged.
        let (_, at, _) = select_all(self.0.iter_mut().map(|served| &mut served.task)).await;
        match self.0.get(at).map(|served| served.port) {
            Some(Port::Metrics) => "metrics port",
            Some(Port::Admin) => "admin port",
            _ => "HTTP port",
        }
    }

    /// Finishes the requests in flight, and aborts those that take longer than `limit`.
    pub(super) async fn stop(self, limit: Duration) {
        let stop = async |ServedPort { mut task, stop, .. }: ServedPort| {
            drop(stop);
            if !task.is_finished() && timeout(limit, &mut task).await.is_err() {
                task.abort();
            }
        };
        join_all(self.0.into_iter().map(stop)).await;
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
        regions: Option<JsonSource>,
    ) -> Router {
        let Self { settings, instance, exporter } = self;
        let api = ApiParts {
            control: instance.control.clone(),
            status: instance.status.clone(),
            rules: instance.rules.clone(),
            options: settings.rules.options,
            directory: settings.rules.directory.clone(),
            readiness: instance.readiness.clone(),
            counters,
            fleet: instance.fleet.clone(),
            store: facts,
            regions,
        };
        tollgate_admin::router(AdminParts {
            api,
            exporter: exporter.cloned(),
            tokens,
            requires_client_certificate: settings.admin.requires_client_certificate(),
        })
    }
}
