//! Settings of a connection to Redis.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates, io::tcp::TcpSettings,
};
use tollgate_runtime::{bounded_file, redact};

use super::batch::{Batcher, RequestOptions};
use super::sentinel::{Master, Sentinels};
use super::targets::{Clients, Subscription, Target};
use super::url::{self, Address, Login, RedisUrl, Sentinel};
use super::{
    Topology, cluster::Cluster, connect::ConnectTemplate, connection, script::CommandKeys,
    store_clock::StoreClock,
};
use crate::{BackgroundQueue, StoreError, local::OutageCache};

/// Settings of a store in Redis. `Debug` shows no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// URL of the servers.
    pub servers: RedisUrl,
    /// Time limit of a decision.
    pub timeout: Duration,
    /// Prefix of every key.
    pub key_prefix: String,
    /// PEM file of the authorities that may sign the server's certificate; the public ones when absent.
    pub ca_certificate: Option<PathBuf>,
    /// PEM files of the certificate and key of this client.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Whether the servers' own figures are sampled for metrics, by `INFO` and `TIME`.
    pub samples_servers: bool,
}

impl RedisSettings {
    /// The options that all requests have in common.
    pub(super) fn request_options(&self, background: BackgroundQueue, outage: OutageCache) -> RequestOptions {
        RequestOptions {
            key_prefix: self.key_prefix.as_bytes().into(),
            command_keys: match self.servers {
                RedisUrl::Cluster(_) => CommandKeys::OneSlot,
                RedisUrl::Standalone(_) | RedisUrl::Sentinel(_) => CommandKeys::NoSlots,
            },
            timeout: self.timeout,
            background,
            outage,
            store_clock: StoreClock::default(),
            failure_lines: connection::failure_lines(),
            samples_servers: self.samples_servers,
        }
    }

    /// The servers of these settings, connected in the background by tasks on the current runtime.
    pub(super) fn open(&self, options: &RequestOptions) -> Result<Topology, StoreError> {
        let single = |target| Topology::Single(Batcher::open(target, options.clone()));
        Ok(match self.clients()? {
            Clients::Standalone(client) => single(Target::Server(client, &[CommandKeys::NoSlots])),
            Clients::Master(template, sentinels) => {
                single(Target::Master(Box::new(Master::new(*template, *sentinels))))
            }
            Clients::Cluster(template, seeds) => {
                Topology::Cluster(Cluster::open(*template, seeds, options.clone()))
            }
        })
    }

    /// A pub/sub subscription on these servers.
    pub(super) fn subscription(&self) -> Result<Subscription, StoreError> {
        Ok(Subscription::new(self.clients()?))
    }

    fn clients(&self) -> Result<Clients, StoreError> {
        let certificates = self.certificates()?;
        // The choice of the server does not matter: each connection has an address of its own.
        let template = |servers: &[Address], login: &Option<Login>, database, has_tls| {
            let server = servers
                .first()
                .ok_or_else(|| StoreError::Refused("settings: no servers; expected at least one".into()))?;
            let client = client(connection_info(server, login.as_ref(), database, has_tls), &certificates)?;
            Ok::<_, StoreError>(ConnectTemplate::from_client(&client))
        };
        Ok(match &self.servers {
            RedisUrl::Standalone(url) => {
                Clients::Standalone(Box::new(client(url.as_str().into_connection_info(), &certificates)?))
            }
            RedisUrl::Sentinel(sentinel) => {
                let Sentinel { sentinels, master, database, login, sentinel_login, has_tls } = &**sentinel;
                let redis = template(sentinels, login, *database, *has_tls)?;
                let sentinel = template(sentinels, sentinel_login, 0, *has_tls)?;
                let sentinels = Sentinels::new(master.clone(), sentinel, sentinels.clone());
                Clients::Master(Box::new(redis), Box::new(sentinels))
            }
            RedisUrl::Cluster(cluster) => {
                let url::Cluster { seeds, login, has_tls } = &**cluster;
                Clients::Cluster(Box::new(template(seeds, login, 0, *has_tls)?), seeds.clone())
            }
        })
    }

    fn certificates(&self) -> Result<TlsCertificates, StoreError> {
        let read = |path: &Path| {
            bounded_file::read(path)
                .map_err(|error| StoreError::Refused(format!("{}: {error}", redact::path(path))))
        };
        let client_tls = match &self.client_certificate {
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            None => None,
        };
        let root_cert = self.ca_certificate.as_deref().map(read).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

/// Connection settings of a server whose URL is not of the client library's form.
fn connection_info(
    server: &Address,
    login: Option<&Login>,
    database: i64,
    has_tls: bool,
) -> RedisResult<ConnectionInfo> {
    let (host, port) = (server.host.as_ref().to_owned(), server.port);
    let address = if has_tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let mut redis = RedisConnectionInfo::default().set_db(database);
    if let Some(Login { user, password }) = login {
        redis = redis.set_password(password);
        if !user.is_empty() {
            redis = redis.set_username(user);
        }
    }
    address.into_connection_info().map(|connection_info| connection_info.set_redis_settings(redis))
}

fn client(server: RedisResult<ConnectionInfo>, certificates: &TlsCertificates) -> Result<Client, StoreError> {
    // A request must not wait for the response to the one before it.
    let server = server.map_err(malformed)?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    // TLS files may be configured permanently, whether or not this server uses TLS.
    let has_tls = matches!(server.addr(), ConnectionAddr::TcpTls { .. });
    let client = if has_tls && (certificates.client_tls.is_some() || certificates.root_cert.is_some()) {
        Client::build_with_tls(server, certificates.clone())
    } else {
        Client::open(server)
    };
    client.map_err(malformed)
}

// The client library's own text may quote the URL, and so a password.
#[allow(clippy::needless_pass_by_value)] // As `map_err` has it.
fn malformed(error: RedisError) -> StoreError {
    StoreError::Refused(format!("settings: {}", error.category()))
}
