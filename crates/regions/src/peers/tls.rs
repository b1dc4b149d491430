//! Mutual TLS between regions: the configuration of a client, and the names in the certificate of a caller.

use std::{path::Path, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tollgate_runtime::{bounded_file, redact};
use tollgate_serve::net::{TlsFile, TlsSettings, tls};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use webpki::EndEntityCert;

/// TLS of a client whose server has a certificate with this name, from the files of the port. Blocks.
pub(super) fn client_config(settings: &TlsSettings, name: String) -> Result<ClientTlsConfig, String> {
    let read = |file: TlsFile, path: &Path| {
        bounded_file::read(path)
            .map_err(|error| format!("{}: {}: {error}", settings.flag(file), redact::path(path)))
    };
    let certificate = read(TlsFile::Certificate, &settings.certificate)?;
    tls::client_presents("region", &certificate);
    let key = read(TlsFile::Key, &settings.key)?;
    let identity = Identity::from_pem(certificate, key);
    let mut config = ClientTlsConfig::new().domain_name(name).identity(identity);
    if let Some(clients) = &settings.clients {
        let authorities = read(TlsFile::Authorities, &clients.authorities)?;
        config = config.ca_certificate(Certificate::from_pem(authorities));
    }
    Ok(config)
}

/// Names of the certificate of a connection's client: DNS names and URIs.
#[derive(Clone, Debug)]
pub(super) struct PeerNames(Arc<[Box<str>]>);

impl PeerNames {
    /// The names of the client's certificate, which the handshake verified.
    pub(super) fn of(stream: &TlsStream<TcpStream>) -> Self {
        let (_, connection) = stream.get_ref();
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let Some(certificate) = certificate.and_then(|der| EndEntityCert::try_from(der).ok()) else {
            return Self(Arc::default());
        };
        let names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
        Self(names.map(Box::from).collect())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|known| **known == *name)
    }
}
