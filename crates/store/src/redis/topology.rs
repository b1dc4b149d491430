//! Topology of the store: one server, or a cluster.

use tokio::time::Instant;

use super::{
    address::Address,
    batch::{Batcher, Submission},
    cluster::Cluster,
    connection::{Connection, SendError},
};
use crate::request::{TagRequest, Verdicts};

/// The servers of a store.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One at a time: a standalone server, or the master that Sentinel names.
    Single(Batcher),
    /// The masters of a cluster.
    Cluster(Cluster),
}

impl Topology {
    /// Has the owner of the request's keys decide it. A request whose outcome is unknown is not sent again, nor any
    /// after the deadline.
    pub(super) async fn decide(&self, submission: &Submission<'_>) -> Result<Verdicts, SendError> {
        match self {
            Self::Single(server) => server.decide(*submission).await,
            Self::Cluster(cluster) => cluster.decide(submission).await,
        }
    }

    /// Decides a request from the cache of this worker, if that suffices.
    pub(super) fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts> {
        match self {
            Self::Single(server) => server.decide_from_cache(request, Instant::now()),
            Self::Cluster(cluster) => cluster.decide_from_cache(request),
        }
    }

    /// The connection to the owner of a slot.
    pub(super) async fn connection(&self, slot: u16) -> Result<Connection, SendError> {
        match self {
            Self::Single(server) => Ok(server.connection().clone()),
            Self::Cluster(cluster) => cluster.connection(slot).await,
        }
    }

    /// The node of a cluster that owns a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<Address> {
        match self {
            Self::Single(_) => None,
            Self::Cluster(cluster) => cluster.node_of(slot),
        }
    }

    /// Waits until the servers are connected (true), or no handle is left (false). The future is not a handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let (single, cluster) = match self {
            Self::Single(server) => (Some(server.connection().connected()), None),
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
