//! How to reach Redis.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, TlsCertificates, io::tcp::TcpSettings,
};

use crate::store::StoreError;

/// How to reach Redis. `Debug` shows no secret.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://[user:password@]host:port[/db]`, `rediss://…` for TLS, or `redis+unix:///path`.
    pub url: String,
    /// How long a decision may take.
    pub timeout: Duration,
    /// Goes before every key.
    pub key_prefix: String,
    /// PEM file of the authorities that may sign the server's certificate; the web's when absent.
    pub ca_certificate: Option<PathBuf>,
    /// PEM files of the certificate and key that this client shows.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("timeout", &self.timeout)
            .field("key_prefix", &self.key_prefix)
            .field("ca_certificate", &self.ca_certificate)
            .finish_non_exhaustive()
    }
}

impl RedisSettings {
    /// The client that these settings describe.
    pub(super) fn client(&self) -> Result<Client, StoreError> {
        // The client's own text may quote the URL, and so a password.
        let malformed =
            |error: ::redis::RedisError| StoreError::Refused(format!("settings: {}", error.category()));
        let read = |path: &Path| {
            fs::read(path).map_err(|error| StoreError::Refused(format!("{}: {error}", path.display())))
        };
        let client_tls = match &self.client_certificate {
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            None => None,
        };
        let root_cert = self.ca_certificate.as_deref().map(read).transpose()?;
        // A call must not wait for the answer to the one before it.
        let tcp = TcpSettings::default().set_nodelay(true);
        let server = self.url.as_str().into_connection_info().map_err(malformed)?.set_tcp_settings(tcp);
        // Files for TLS may be set for good, whether or not this server has it.
        let has_tls = matches!(server.addr(), ConnectionAddr::TcpTls { .. });
        match has_tls && (client_tls.is_some() || root_cert.is_some()) {
            true => Client::build_with_tls(server, TlsCertificates { client_tls, root_cert }),
            false => Client::open(server),
        }
        .map_err(malformed)
    }
}
