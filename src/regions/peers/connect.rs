//! Connection to a region. Resolves names and reads files each time, so that changes take effect.

use std::{path::Path, time::Duration};

use hyper_util::client::legacy::connect::HttpConnector;
use tokio::{task::spawn_blocking, time::timeout};
use tollgate_rules::RegionEntry;
use tollgate_runtime::{bounded_file, error_text::with_sources, redact};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::{
    net::tls::TlsClient,
    settings::{TlsFile, TlsSettings},
};

/// Time limit for name resolution, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without a message before an HTTP/2 ping, and limit for its reply.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the address of `entry`, whose certificate must have its name.
///
/// # Errors
/// The reason, without contents of files.
pub(super) async fn connect(entry: &RegionEntry, settings: &TlsSettings) -> Result<Channel, String> {
    let (settings, name) = (settings.clone(), entry.certificate_name.to_string());
    let tls = spawn_blocking(move || tls_config(&settings, name)).await;
    let tls = tls.map_err(|_| "shutting down".to_owned())??;
    let endpoint = Endpoint::from_shared(entry.address.to_string()).map_err(|error| with_sources(&error))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .tls_config(tls)
        .map_err(|error| with_sources(&error))?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    match timeout(CONNECT_TIMEOUT, endpoint.connect_with_connector(tcp)).await {
        Ok(connected) => connected.map_err(|error| with_sources(&error)),
        Err(_) => Err(format!("connect timed out after {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

/// TLS of a client, from the files of the port. Blocks.
fn tls_config(settings: &TlsSettings, name: String) -> Result<ClientTlsConfig, String> {
    let read = |file: TlsFile, path: &Path| {
        bounded_file::read(path)
            .map_err(|error| format!("{}: {}: {error}", settings.flag(file), redact::path(path)))
    };
    let certificate = read(TlsFile::Certificate, &settings.certificate)?;
    TlsClient::Region.presents(&certificate);
    let key = read(TlsFile::Key, &settings.key)?;
    let mut config = ClientTlsConfig::new()
        .domain_name(name)
        .timeout(CONNECT_TIMEOUT)
        .identity(Identity::from_pem(certificate, key));
    if let Some(clients) = &settings.clients {
        let authorities = read(TlsFile::Authorities, &clients.authorities)?;
        config = config.ca_certificate(Certificate::from_pem(authorities));
    }
    Ok(config)
}
