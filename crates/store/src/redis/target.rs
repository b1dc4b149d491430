//! Target of a connection.

use std::{fmt, future::pending};

use ::redis::{Client, aio::MultiplexedConnection};

use super::{
    connect::{ConnectError, connect, preload_script},
    sentinel::Master,
};

/// Target of a connection, resolved each time one is made.
pub(super) enum Target {
    /// One server.
    Fixed(Box<Client>),
    /// The server that Sentinel names at that time.
    Master(Box<Master>),
}

impl Target {
    /// Makes a connection.
    pub(super) async fn connect(&mut self) -> Result<MultiplexedConnection, ConnectError> {
        match self {
            Self::Fixed(client) => {
                let mut connection = connect(client).await?;
                preload_script(&mut connection).await?;
                Ok(connection)
            }
            Self::Master(master) => master.connect().await,
        }
    }

    /// Returns another connection when the previous one, though it may work, leads to a former master.
    pub(super) async fn wait_for_failover(&mut self) -> MultiplexedConnection {
        match self {
            Self::Fixed(_) => pending().await,
            Self::Master(master) => master.wait_for_failover().await,
        }
    }
}

/// Name of the server in logs.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(client) => client.get_connection_info().addr().fmt(f),
            Self::Master(master) => master.fmt(f),
        }
    }
}
