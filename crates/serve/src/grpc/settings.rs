//! Settings of the gRPC port and its connections.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use tollgate_flags::{KeyPair, address, count, duration, key_pair, name};

use crate::net::{Port, TlsSettings};

/// Time between two HTTP/2 pings: a firewall forgets an idle connection after minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of the reply to a ping, and of a write that a client does not read: the default of gRPC servers.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of a request message, in bytes. No proxy sends one of a tenth of that.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Age of a connection, which may be unlimited. An alias, since clap reads an `Option` as a flag that may be left out.
type MaxAge = Option<Duration>;

/// gRPC port and its connections.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "gRPC")]
pub struct GrpcSettings {
    /// Address of the gRPC service, or unix:PATH for a unix socket instead of a TCP port.
    #[arg(id = "grpc-address", long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "0.0.0.0:8081")]
    #[arg(value_parser = grpc_listen)]
    pub listen: GrpcListen,
    /// PEM files of the certificate chain of the gRPC port and of its key; enables TLS. Reloaded when they change, like all
    /// TLS files of ports.
    #[arg(id = "grpc-tls", long, value_name = "CERT,KEY", value_parser = key_pair)]
    pair: Option<KeyPair>,
    /// PEM file of the CAs of client certificates, which are then required.
    #[arg(id = "grpc-tls-client-ca", long, value_name = "FILE", requires = "grpc-tls")]
    client_ca: Option<PathBuf>,
    /// Accepted names of client certificates, such as SPIFFE ids, compared exactly with the DNS and URI names of the
    /// certificate.
    #[arg(id = "grpc-tls-client-san", long, value_name = "NAME,…", value_delimiter = ',', value_parser = name)]
    #[arg(requires = "grpc-tls-client-ca")]
    client_names: Vec<String>,
    /// Maximum number of open gRPC connections; a further one takes the place of the longest idle one, or is closed.
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = count::<usize>)]
    pub max_connections: usize,
    /// Age at which a connection is drained with GOAWAY (± 10 %), so that clients rebalance to new instances. 0:
    /// unlimited.
    #[arg(id = "grpc-max-connection-age", long, value_name = "DURATION", default_value = "24h")]
    #[arg(value_parser = unless_zero)]
    pub max_connection_age: MaxAge,
    /// Time for the calls of a connection to finish after GOAWAY, before it is closed. 0: unlimited.
    #[arg(id = "grpc-max-connection-age-grace", long, value_name = "DURATION", default_value = "1h")]
    #[arg(value_parser = unless_zero)]
    pub max_connection_age_grace: MaxAge,
    /// Time between two HTTP/2 pings.
    #[arg(skip = Some(KEEPALIVE_INTERVAL))]
    pub keepalive_interval: Option<Duration>,
    /// Timeout of the reply to a ping, and of a write that a client does not read.
    #[arg(skip = KEEPALIVE_TIMEOUT)]
    pub keepalive_timeout: Duration,
    /// Maximum size of a request message, in bytes.
    #[arg(skip = MAX_MESSAGE_BYTES)]
    pub max_message_bytes: usize,
}

/// Listen address of the gRPC port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcListen {
    /// TCP address; port 0 selects a free port.
    Tcp(SocketAddr),
    /// Path of a unix socket.
    Unix(PathBuf),
}

impl GrpcSettings {
    /// TLS of the port.
    pub fn tls(&self) -> Option<TlsSettings> {
        TlsSettings::of_flags(Port::Grpc, self.pair.as_ref(), self.client_ca.as_ref(), &self.client_names)
    }
}

impl fmt::Display for GrpcListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn grpc_listen(text: &str) -> Result<GrpcListen, String> {
    match text.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(GrpcListen::Unix(path.into())),
        _ => address(text).map(GrpcListen::Tcp).map_err(|error| format!("{error}, or unix:PATH")),
    }
}

fn unless_zero(text: &str) -> Result<Option<Duration>, String> {
    duration(text).map(|duration| (!duration.is_zero()).then_some(duration))
}
