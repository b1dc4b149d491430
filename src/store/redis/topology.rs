//! How many servers there are.

use ::redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::{
    cluster::Cluster,
    connection::{Connection, SendError},
    script,
};

/// The servers of a store.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One at a time: a standalone server, or the master that Sentinel names.
    Single(Connection),
    /// The masters of a cluster.
    Cluster(Cluster),
}

impl Topology {
    /// Sends a call of the script, on keys of the slot, to the server that has them; loads the script where it is
    /// not known. A command whose outcome is unknown is not sent again, nor any after the deadline.
    pub(super) async fn evaluate(
        &self,
        slot: impl FnOnce() -> u16,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, SendError> {
        match self {
            Self::Single(connection) => {
                let answer = timeout_at(deadline, evaluate(connection, command)).await;
                answer.unwrap_or(Err(SendError::Late))
            }
            Self::Cluster(cluster) => cluster.evaluate(slot(), command, deadline).await,
        }
    }

    /// Waits until the servers were reached, or no handle is left. The wait is no handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let (single, cluster) = match self {
            Self::Single(connection) => (Some(connection.connected()), None),
            Self::Cluster(cluster) => (None, Some(cluster.connected())),
        };
        async move {
            match (single, cluster) {
                (Some(connected), _) => connected.await,
                (None, Some(connected)) => connected.await,
                (None, None) => false,
            }
        }
    }
}

async fn evaluate(connection: &Connection, command: &Cmd) -> Result<Value, SendError> {
    match connection.send(command).await {
        Err(error) if error.is_unknown_script() => {
            connection.send(&script::load()).await?;
            connection.send(command).await
        }
        answer => answer,
    }
}
