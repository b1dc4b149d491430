//! Target of a connection.

use std::{fmt, future::pending};

use ::redis::{Client, aio::MultiplexedConnection};

use super::{
    connect::{ConnectError, connect, preload_scripts},
    script::CommandKeys,
    sentinel::Master,
};

/// Target of a connection, resolved each time one is made.
pub(super) enum Target {
    /// One server.
    Server(Box<Client>),
    /// A node of a cluster.
    ClusterNode(Box<Client>),
    /// The server that Sentinel names at that time.
    Master(Box<Master>),
}

impl Target {
    /// Makes a connection.
    pub(super) async fn connect(&mut self) -> Result<MultiplexedConnection, ConnectError> {
        match self {
            Self::Server(client) => connect_to(client, &[CommandKeys::Any]).await,
            Self::ClusterNode(client) => {
                connect_to(client, &[CommandKeys::OneSlot, CommandKeys::AnySlotOfNode]).await
            }
            Self::Master(master) => master.connect().await,
        }
    }

    /// Returns another connection when the previous one, though it may work, leads to a former master.
    pub(super) async fn wait_for_failover(&mut self) -> MultiplexedConnection {
        match self {
            Self::Server(_) | Self::ClusterNode(_) => pending().await,
            Self::Master(master) => master.wait_for_failover().await,
        }
    }
}

/// Connects to a server, and loads the scripts of such commands.
async fn connect_to(client: &Client, scripts: &[CommandKeys]) -> Result<MultiplexedConnection, ConnectError> {
    let mut connection = connect(client).await?;
    preload_scripts(&mut connection, scripts).await?;
    Ok(connection)
}

/// Name of the server in logs.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(client) | Self::ClusterNode(client) => client.get_connection_info().addr().fmt(f),
            Self::Master(master) => master.fmt(f),
        }
    }
}
