//! Settings of a connection to Redis.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates, io::tcp::TcpSettings,
};
use tollgate_runtime::{bounded_file, redact};

use super::{
    address::Address,
    batch::{Batcher, RequestOptions},
    cached_bans::CachedBans,
    cluster::Cluster,
    connect::ConnectTemplate,
    last_verdicts::LastVerdicts,
    reconnect,
    script::CommandKeys,
    sentinel::{Master, Sentinels},
    store_clock::StoreClock,
    subscriber::Subscription,
    target::Target,
    topology::Topology,
    url::{self, Login, RedisUrl, Sentinel},
};
use crate::{BackgroundQueue, StoreError};

/// Settings of a store in Redis. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
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

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("servers", &self.servers)
            .field("timeout", &self.timeout)
            .field("key_prefix", &self.key_prefix)
            .field("ca_certificate", &self.ca_certificate)
            .finish_non_exhaustive()
    }
}

impl RedisSettings {
    /// The options that all requests have in common.
    pub(super) fn request_options(
        &self,
        background: BackgroundQueue,
        last_verdicts: LastVerdicts,
    ) -> RequestOptions {
        RequestOptions {
            key_prefix: self.key_prefix.as_bytes().into(),
            command_keys: match self.servers {
                RedisUrl::Cluster(_) => CommandKeys::OneSlot,
                RedisUrl::Standalone(_) | RedisUrl::Sentinel(_) => CommandKeys::Any,
            },
            timeout: self.timeout,
            background,
            last_verdicts,
            cached_bans: CachedBans::default(),
            store_clock: StoreClock::default(),
            failure_lines: reconnect::failure_lines(),
            samples_servers: self.samples_servers,
        }
    }

    /// The servers of these settings, connected in the background by tasks on the current runtime.
    pub(super) fn open(&self, options: &RequestOptions) -> Result<Topology, StoreError> {
        let certificates = self.certificates()?;
        let template = |server: &Address, login, database, has_tls| {
            client(connection_info(server, login, database, has_tls), &certificates)
                .map(|client| ConnectTemplate::from_client(&client))
        };
        Ok(match &self.servers {
            RedisUrl::Standalone(url) => {
                let client = client(url.as_str().into_connection_info(), &certificates)?;
                Topology::Single(Batcher::open(Target::Server(Box::new(client)), options.clone()))
            }
            RedisUrl::Sentinel(sentinel) => {
                let Sentinel { sentinels, master, database, login, sentinel_login, has_tls } = &**sentinel;
                // The choice does not matter: each connection has an address of its own.
                let any = sentinels.first().ok_or_else(no_servers)?;
                let redis = template(any, login.as_ref(), *database, *has_tls)?;
                let sentinel = template(any, sentinel_login.as_ref(), 0, *has_tls)?;
                let master = Master::new(redis, Sentinels::new(master.clone(), sentinel, sentinels.clone()));
                Topology::Single(Batcher::open(Target::Master(Box::new(master)), options.clone()))
            }
            RedisUrl::Cluster(cluster) => {
                let url::Cluster { seeds, login, has_tls } = &**cluster;
                let template = template(seeds.first().ok_or_else(no_servers)?, login.as_ref(), 0, *has_tls)?;
                Topology::Cluster(Cluster::open(template, seeds.clone(), options.clone()))
            }
        })
    }

    /// A pub/sub subscription on these servers.
    pub(super) fn subscription(&self) -> Result<Subscription, StoreError> {
        let certificates = self.certificates()?;
        let template = |server: &Address, login, has_tls| {
            client(connection_info(server, login, 0, has_tls), &certificates)
                .map(|client| ConnectTemplate::from_client(&client))
        };
        Ok(match &self.servers {
            RedisUrl::Standalone(url) => Subscription::Standalone(Box::new(client(
                url.as_str().into_connection_info(),
                &certificates,
            )?)),
            RedisUrl::Sentinel(sentinel) => {
                let Sentinel { sentinels, master, login, sentinel_login, has_tls, .. } = &**sentinel;
                let any = sentinels.first().ok_or_else(no_servers)?;
                let redis = template(any, login.as_ref(), *has_tls)?;
                let sentinel = template(any, sentinel_login.as_ref(), *has_tls)?;
                Subscription::Master(Box::new((
                    redis,
                    Sentinels::new(master.clone(), sentinel, sentinels.clone()),
                )))
            }
            RedisUrl::Cluster(cluster) => {
                let url::Cluster { seeds, login, has_tls } = &**cluster;
                let any = seeds.first().ok_or_else(no_servers)?;
                Subscription::Cluster(Box::new(template(any, login.as_ref(), *has_tls)?), 0)
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
    let address = match has_tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
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
    match has_tls && (certificates.client_tls.is_some() || certificates.root_cert.is_some()) {
        true => Client::build_with_tls(server, certificates.clone()),
        false => Client::open(server),
    }
    .map_err(malformed)
}

// The client library's own text may quote the URL, and so a password.
#[allow(clippy::needless_pass_by_value)] // As `map_err` has it.
fn malformed(error: RedisError) -> StoreError {
    StoreError::Refused(format!("settings: {}", error.category()))
}

fn no_servers() -> StoreError {
    StoreError::Refused("settings: no servers; expected at least one".into())
}
