//! The ports, from settings to sockets that listen.

use std::{future::pending, io, net::SocketAddr, time::Duration};

use axum::Router;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{listener::Listener, start::StartError};
use crate::{
    http::{ConnectionLimits, HttpPort, Tokens},
    net::tls::{Protocol, Tls},
    settings::{AdminSettings, Port, Settings, TlsSettings},
};

/// Ports that are open and not served yet: whoever connects waits.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) grpc: Listener,
    pub(super) grpc_tls: Option<Tls>,
    pub(super) http: HttpPort,
    pub(super) metrics: Option<HttpPort>,
    pub(super) admin: Option<(HttpPort, Option<Tokens>)>,
    pub(super) files: Files,
}

/// What follows the changes of certificates and tokens. Ends with this.
#[derive(Debug, Default)]
pub(super) struct Files(JoinSet<()>);

impl Files {
    fn follow(&mut self, following: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(following);
    }

    fn tls(&mut self, settings: Option<&TlsSettings>, protocol: Protocol) -> Result<Option<Tls>, StartError> {
        let Some(settings) = settings else { return Ok(None) };
        let (tls, following) = Tls::load(settings.clone(), protocol)?;
        self.follow(following);
        Ok(Some(tls))
    }

    /// Waits for one to end, which only a panic does.
    pub(super) async fn failed(&mut self) {
        match self.0.join_next().await {
            Some(_) => {}
            None => pending().await,
        }
    }
}

impl Ports {
    /// Reads what they need, then opens them.
    pub(super) async fn open(settings: &Settings) -> Result<Self, StartError> {
        let mut files = Files::default();
        let grpc_tls = files.tls(settings.grpc.tls.as_ref(), Protocol::Http2)?;
        let http_tls = files.tls(settings.http.tls.as_ref(), Protocol::Http1)?;
        let listen = &settings.grpc.listen;
        let grpc = Listener::bind(listen).await.map_err(|error| failed(Port::Grpc, listen, error))?;
        let http = http_port(Port::Http, settings.http.address, http_tls, settings).await?;
        let metrics = match &settings.metrics {
            Some(metrics) => Some(http_port(Port::Metrics, metrics.address, None, settings).await?),
            None => None,
        };
        let admin = match &settings.admin {
            Some(admin) => match open_admin(admin, settings, &mut files).await {
                // Another instance on this machine has the one that nobody asked for.
                Err(StartError::Listen { error, .. })
                    if admin.is_default() && error.kind() == io::ErrorKind::AddrInUse =>
                {
                    tracing::warn!("the admin port {} is in use: there is none here", admin.address);
                    None
                }
                opened => Some(opened?),
            },
            None => None,
        };
        Ok(Self { grpc, grpc_tls, http, metrics, admin, files })
    }
}

async fn open_admin(
    admin: &AdminSettings,
    settings: &Settings,
    files: &mut Files,
) -> Result<(HttpPort, Option<Tokens>), StartError> {
    let tokens = match &admin.token_file {
        Some(path) => {
            let (tokens, following) = Tokens::load(path.clone())?;
            files.follow(following);
            Some(tokens)
        }
        None => None,
    };
    let tls = files.tls(admin.tls.as_ref(), Protocol::Http1)?;
    Ok((http_port(Port::Admin, admin.address, tls, settings).await?, tokens))
}

async fn http_port(
    port: Port,
    address: SocketAddr,
    tls: Option<Tls>,
    settings: &Settings,
) -> Result<HttpPort, StartError> {
    let bound = HttpPort::bind(port, address, tls, ConnectionLimits::new(settings.process.handshake_timeout)).await;
    bound.map_err(|error| failed(port, &address, error))
}

fn failed(port: Port, address: &dyn ToString, error: io::Error) -> StartError {
    StartError::Listen { port, address: address.to_string(), error }
}

/// An HTTP port that is served.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Served {
    /// Serves `router` on the runtime that this is called on.
    pub(super) fn begin(port: HttpPort, router: Router) -> io::Result<Self> {
        let address = port.address()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(port.serve(router, stop.clone()));
        Ok(Self { address, task, stop: stop.drop_guard() })
    }

    /// Waits for its end, which nothing but a panic brings about.
    pub(super) async fn failed(&mut self) {
        // What it ended with is logged.
        let _ = (&mut self.task).await;
    }

    /// Finishes the requests that have begun, and cuts those that take longer than `limit`.
    pub(super) async fn stop(mut self, limit: Duration) {
        drop(self.stop);
        if !self.task.is_finished() && timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}
