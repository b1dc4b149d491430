//! Where a connection leads.

use std::{fmt, future::pending};

use ::redis::{Client, RedisError, aio::MultiplexedConnection};

use super::{
    address::Address,
    connect::{connect, preload_script},
    sentinel::Master,
};

/// Where a connection leads, each time it is made.
pub(super) enum Target {
    /// To one server.
    Fixed(Box<Client>),
    /// To the server that Sentinel names at that time.
    Master(Box<Master>),
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
    NoMaster(Address),
    #[error("{0}, which Sentinel names, was replaced before")]
    Former(Address),
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

    /// Ends with another connection when the one that was made, though it may work, leads to the wrong server.
    pub(super) async fn moved(&mut self) -> MultiplexedConnection {
        match self {
            Self::Fixed(_) => pending().await,
            Self::Master(master) => master.moved().await,
        }
    }
}

/// The server, for people.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(client) => client.get_connection_info().addr().fmt(f),
            Self::Master(master) => master.fmt(f),
        }
    }
}
