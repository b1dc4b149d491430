//! Settings of the gRPC port.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    error::Problem,
    parsers::{address, count, duration, number, positive_duration},
    tls::{GrpcTlsFlags, TlsSettings},
};

/// gRPC port and its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Listen address.
    pub listen: GrpcListen,
    /// TLS of the port.
    pub tls: Option<TlsSettings>,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Age at which a connection is drained with GOAWAY.
    pub max_connection_age: Option<Duration>,
    /// Time for the calls of a connection to finish after GOAWAY.
    pub max_connection_age_grace: Option<Duration>,
    /// Time between two HTTP/2 pings.
    pub keepalive_interval: Option<Duration>,
    /// Timeout of the reply to a ping, and of a write that a client does not read.
    pub keepalive_timeout: Duration,
    /// Maximum number of calls in flight on a connection.
    pub max_streams: Option<u32>,
    /// Maximum size of a request message, in bytes.
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

impl fmt::Display for GrpcListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "gRPC")]
pub(super) struct GrpcFlags {
    /// Address of the gRPC service.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8081", value_parser = address)]
    #[arg(overrides_with = "grpc_unix_socket")]
    grpc_address: SocketAddr,
    /// Path of a unix socket to listen on instead of a TCP port.
    #[arg(long, value_name = "PATH")]
    grpc_unix_socket: Option<PathBuf>,
    #[command(flatten)]
    tls: GrpcTlsFlags,
    /// Maximum number of open gRPC connections; a further one takes the place of the longest idle one, or is closed.
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = count::<usize>)]
    max_connections: usize,
    /// Age at which a connection is drained with GOAWAY (± 10 %), so that clients rebalance to new instances. 0:
    /// unlimited.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    grpc_max_connection_age: Duration,
    /// Time for the calls of a connection to finish after GOAWAY, before it is closed. 0: unlimited.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    grpc_max_connection_age_grace: Duration,
    /// Time between two HTTP/2 pings, which detect lost clients. 0: no pings.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    grpc_keepalive_interval: Duration,
    /// Timeout of the reply to a ping, and of a write that a client does not read, after which the connection is
    /// closed.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = positive_duration)]
    grpc_keepalive_timeout: Duration,
    /// Maximum number of calls in flight on a connection; the client queues further calls. 0: unlimited.
    #[arg(long, value_name = "COUNT", default_value = "1024", value_parser = number::<u32>)]
    grpc_max_streams: u32,
    /// Maximum size of a request message or a /json body, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = count::<usize>)]
    max_message_bytes: usize,
}

impl GrpcFlags {
    pub(super) fn resolve(self) -> Result<GrpcSettings, Problem> {
        let unless_zero = |duration: Duration| (!duration.is_zero()).then_some(duration);
        Ok(GrpcSettings {
            listen: self.grpc_unix_socket.map_or(GrpcListen::Tcp(self.grpc_address), GrpcListen::Unix),
            tls: self.tls.resolve()?,
            max_connections: self.max_connections,
            max_connection_age: unless_zero(self.grpc_max_connection_age),
            max_connection_age_grace: unless_zero(self.grpc_max_connection_age_grace),
            keepalive_interval: unless_zero(self.grpc_keepalive_interval),
            keepalive_timeout: self.grpc_keepalive_timeout,
            max_streams: (self.grpc_max_streams > 0).then_some(self.grpc_max_streams),
            max_message_bytes: self.max_message_bytes,
        })
    }
}
