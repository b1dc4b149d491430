//! The gRPC side.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    error::Problem,
    parsers::{address, count, duration, positive_duration},
    tls::{GrpcTlsFlags, TlsSettings},
};

/// How gRPC connections are accepted and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Where to listen.
    pub listen: GrpcListen,
    /// TLS, if clients have to speak it.
    pub tls: Option<TlsSettings>,
    /// Connections open at once.
    pub max_connections: usize,
    /// How old a connection gets before its client is asked to open another one.
    pub max_connection_age: Option<Duration>,
    /// How long the calls of a connection that grew too old may take to finish.
    pub max_connection_age_grace: Option<Duration>,
    /// How often a connection is probed.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to a probe may take, and how long a client may take nothing of what it is sent.
    pub keepalive_timeout: Duration,
    /// Calls in flight on one connection; the client holds the others back.
    pub max_streams: Option<u32>,
    /// Bytes of a request's message.
    pub max_message_bytes: usize,
}

/// Where gRPC listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcListen {
    /// On a TCP port; port 0 picks a free one.
    Tcp(SocketAddr),
    /// On a unix socket.
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
    /// Listen on this unix socket instead of a TCP port.
    #[arg(long, value_name = "PATH")]
    grpc_unix_socket: Option<PathBuf>,
    #[command(flatten)]
    tls: GrpcTlsFlags,
    /// Connections of gRPC open at once; one that comes beyond them is closed.
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = count)]
    max_connections: usize,
    /// Age at which a connection's client is asked to open another one (± 10 %), so that clients spread over
    /// new instances. 0: never.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    grpc_max_connection_age: Duration,
    /// How long such a connection's calls may take to finish before it is closed. 0: for ever.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    grpc_max_connection_age_grace: Duration,
    /// How often a connection is probed, so that clients that vanished are noticed. 0: never.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    grpc_keepalive_interval: Duration,
    /// How long the answer to a probe may take, and how long a client may take nothing of what it is sent, before the
    /// connection is closed.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = positive_duration)]
    grpc_keepalive_timeout: Duration,
    /// Calls in flight on one connection; its client holds the others back. 0: any number.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    grpc_max_streams: u32,
    /// Size of the largest request message, in bytes; also of a body for /json.
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = count)]
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
