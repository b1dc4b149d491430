//! Connects to a control plane. Resolves names and reads files each time, so that changes take effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{path::Path, time::Duration};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{task::spawn_blocking, time::timeout};
use tokio_util::io::InspectReader;
use tollgate_flags::KeyPair;
use tollgate_runtime::bounded_file;
use tollgate_runtime::redact::{self, with_sources};
use tollgate_serve::net::tls;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::ServiceExt as _;

use crate::XdsSettings;

/// Time limit for name resolution, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the reply to an HTTP/2 ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Time without a packet before the first TCP keepalive probe.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// Time between TCP keepalive probes. The Linux default of 75 s, nine times, would detect a dead peer after 11 minutes.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered TCP keepalive probes that end a connection.
const TCP_KEEPALIVE_RETRIES: u32 = 3;

/// An established connection. Possibly only the kernel of the other side has accepted it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    has_received: Arc<AtomicBool>,
}

impl Connection {
    /// Whether any byte was received.
    pub(super) fn has_received(&self) -> bool {
        self.has_received.load(Ordering::Relaxed)
    }
}

/// Connects, or returns the reason why not, which reveals no content of files.
pub(super) async fn connect(server: &Uri, settings: &XdsSettings) -> Result<Connection, String> {
    let transport = |error: tonic::transport::Error| with_sources(&error);
    let agent = concat!("tollgate", "/", env!("CARGO_PKG_VERSION"));
    let mut endpoint = Endpoint::from(server.clone())
        .user_agent(agent)
        .map_err(transport)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(settings.keepalive)
        .keep_alive_timeout(PING_TIMEOUT.min(settings.keepalive))
        .keep_alive_while_idle(true);
    if settings.has_tls() {
        let (tls, host) = (settings.clone(), server.host().unwrap_or_default().to_owned());
        let config = spawn_blocking(move || tls_config(&tls, &host)).await;
        endpoint = endpoint.tls_config(config.map_err(|_| "shutting down")??).map_err(transport)?;
    }
    let has_received = Arc::new(AtomicBool::new(false));
    let received = Arc::clone(&has_received);
    let tcp = tcp().map_response(move |stream| {
        let inspect = move |bytes: &[u8]| {
            if !bytes.is_empty() {
                received.store(true, Ordering::Relaxed);
            }
        };
        TokioIo::new(InspectReader::new(stream.into_inner(), inspect))
    });
    match timeout(CONNECT_TIMEOUT, endpoint.connect_with_connector(tcp)).await {
        Ok(connected) => Ok(Connection { channel: connected.map_err(transport)?, has_received }),
        Err(_) => Err(format!("connect timed out after {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

/// Connector below TLS.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_keepalive_interval(Some(TCP_KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
    tcp
}

/// TLS configuration from the current files. Blocks.
fn tls_config(settings: &XdsSettings, host: &str) -> Result<ClientTlsConfig, String> {
    // A URL has an IPv6 address in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = settings.server_name.as_deref().unwrap_or(host);
    let mut config = ClientTlsConfig::new().domain_name(name).timeout(CONNECT_TIMEOUT);
    config = match &settings.authorities {
        None => config.with_webpki_roots(),
        Some(path) => config.ca_certificate(Certificate::from_pem(certificates("--xds-ca", path)?)),
    };
    if let Some(KeyPair { certificate, key }) = &settings.client {
        let chain = certificates("--xds-client-cert", certificate)?;
        tls::client_presents("xds", &chain);
        config = config.identity(Identity::from_pem(chain, private_key("--xds-client-cert", key)?));
    }
    Ok(config)
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    pem(flag, path, "expected certificates in PEM form", |bytes| {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
        found.is_ok_and(|found| !found.is_empty())
    })
}

fn private_key(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    let is_key = |bytes: &[u8]| PrivateKeyDer::from_pem_slice(bytes).is_ok();
    pem(flag, path, "expected a private key in PEM form, not encrypted", is_key)
}

/// The content of a file that a flag names, if it is usable.
fn pem(
    flag: &str,
    path: &Path,
    expected: &str,
    is_usable: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, String> {
    let read = bounded_file::read(path).map_err(|error| error.to_string());
    let usable = read.and_then(|bytes| if is_usable(&bytes) { Ok(bytes) } else { Err(expected.to_owned()) });
    usable.map_err(|reason| format!("{flag}: {}: {reason}", redact::path(path)))
}
