//! A connection to a control plane: names are resolved and files are read each time, so that what changed counts.

use std::{
    error::Error,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{task::spawn_blocking, time::timeout};
use tokio_util::io::InspectReader;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::ServiceExt as _;

use crate::{
    redact,
    settings::{XdsSettings, XdsTlsSettings},
};

/// How long it may take to have one, with all that belongs to it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a ping may go unanswered.
const PONG: Duration = Duration::from_secs(20);
/// The operating system asks after so long without a packet whether the other side is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// It asks again after so long without an answer. What is usual there would be more than a minute, nine times.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// It gives the other side up after so many questions.
const TCP_KEEPALIVE_RETRIES: u32 = 3;

/// Why there is no connection. Tells nothing of what is in a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// A file of TLS can't be used.
    #[error("{flag}: {path}: {reason}")]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// Where it is.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// TLS or the connection failed.
    #[error("{0}")]
    Transport(String),
    /// It took too long.
    #[error("no connection within {} s", PATIENCE.as_secs())]
    TooSlow,
    /// The process is about to end.
    #[error("the process stops")]
    Stopping,
}

/// What is wrong, and what was behind it.
pub(super) fn in_full(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = error.source();
    }
    text
}

/// A connection that was made, perhaps by nobody but the kernel of the other side.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    heard: Arc<AtomicBool>,
}

impl Connection {
    /// Whether anything ever came from the other side.
    pub(super) fn was_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}

/// Connects.
pub(super) async fn connect(settings: &XdsSettings) -> Result<Connection, ConnectError> {
    let transport = |error: tonic::transport::Error| ConnectError::Transport(in_full(&error));
    let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
    let mut endpoint = Endpoint::from(settings.server.clone())
        .user_agent(agent)
        .map_err(transport)?
        .connect_timeout(PATIENCE)
        .http2_keep_alive_interval(settings.keepalive)
        .keep_alive_timeout(PONG.min(settings.keepalive))
        .keep_alive_while_idle(true);
    if let Some(tls) = &settings.tls {
        let (tls, host) = (tls.clone(), settings.server.host().unwrap_or_default().to_owned());
        let config = spawn_blocking(move || config_of(&tls, &host)).await;
        endpoint = endpoint.tls_config(config.map_err(|_| ConnectError::Stopping)??).map_err(transport)?;
    }
    let heard = Arc::new(AtomicBool::new(false));
    let hears = Arc::clone(&heard);
    let tcp = tcp().map_response(move |stream| {
        let note = move |bytes: &[u8]| {
            if !bytes.is_empty() {
                hears.store(true, Ordering::Relaxed);
            }
        };
        TokioIo::new(InspectReader::new(stream.into_inner(), note))
    });
    match timeout(PATIENCE, endpoint.connect_with_connector(tcp)).await {
        Ok(connected) => Ok(Connection { channel: connected.map_err(transport)?, heard }),
        Err(_) => Err(ConnectError::TooSlow),
    }
}

/// What makes connections, below TLS.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(PATIENCE));
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_keepalive_interval(Some(TCP_KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
    tcp
}

/// The TLS of the files as they are now, on a thread that may wait.
fn config_of(settings: &XdsTlsSettings, host: &str) -> Result<ClientTlsConfig, ConnectError> {
    // An address of IPv6 has brackets in a URL.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = settings.server_name.as_deref().unwrap_or(host);
    let mut config = ClientTlsConfig::new().domain_name(name).timeout(PATIENCE);
    config = match &settings.authorities {
        None => config.with_webpki_roots(),
        Some(path) => config.ca_certificate(Certificate::from_pem(certificates("--xds-ca", path)?)),
    };
    if let Some((certificate, key)) = &settings.client {
        let chain = certificates("--xds-client-cert", certificate)?;
        config = config.identity(Identity::from_pem(chain, private_key("--xds-client-key", key)?));
    }
    Ok(config)
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    let bytes = read(flag, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found.is_ok_and(|found| !found.is_empty()) {
        true => Ok(bytes),
        false => Err(wrong(flag, path, &"expected certificates in PEM form")),
    }
}

fn private_key(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    let bytes = read(flag, path)?;
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(_) => Ok(bytes),
        Err(_) => Err(wrong(flag, path, &"expected a private key in PEM form, not encrypted")),
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    fs::read(path).map_err(|error| wrong(flag, path, &error))
}

fn wrong(flag: &'static str, path: &Path, reason: &impl ToString) -> ConnectError {
    ConnectError::File { flag, path: redact::path(path), reason: reason.to_string() }
}
