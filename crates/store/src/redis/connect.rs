//! How the servers of one installation are spoken to, whichever of them.

use std::time::Duration;

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
    aio::MultiplexedConnection,
};
use tokio::time::timeout;

use super::{address::Address, script};

/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Login, database and TLS, which all servers have in common.
#[derive(Clone)]
pub(super) struct ConnectTemplate {
    /// The way to some server; the others differ in the address.
    pattern: ConnectionInfo,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("no sentinel answers; the last error: {0}")]
    NoSentinel(String),
    #[error("the sentinels know no master named {0}")]
    UnknownMaster(String),
    #[error("{0}, which Sentinel names, is not a master")]
    NotMaster(Address),
    #[error("{0}, which Sentinel names, was replaced before")]
    FormerMaster(Address),
}

impl ConnectTemplate {
    pub(super) fn from_client(client: &Client) -> Self {
        Self { pattern: client.get_connection_info().clone() }
    }

    /// The client for one server.
    pub(super) fn client(&self, address: &Address) -> RedisResult<Client> {
        let (host, port) = (address.host.as_ref().to_owned(), address.port);
        let address = match self.pattern.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(self.pattern.clone().set_addr(address))
    }

    /// A new connection to one server.
    pub(super) async fn connect(&self, address: &Address) -> RedisResult<MultiplexedConnection> {
        connect(&self.client(address)?).await
    }
}

/// A new connection.
pub(super) async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    // The wait for an answer is bounded by the caller.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Has a server know the script before the first call of it, so that not all calls meet `NOSCRIPT` at once on a server
/// that is new. One that refuses may know it already; else the first call gets the reason.
pub(super) async fn preload_script(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    // An error that the server answers is a value here.
    match timeout(CONNECT_TIMEOUT, connection.send_packed_command(&script::load())).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Err((ErrorKind::Io, "no answer to SCRIPT LOAD").into()),
    }
}
