//! A Redis Cluster: a table of its slots, and one connection for each master in use.
//!
//! The table has two sources: the reply of a node to `CLUSTER SLOTS`, which a task queries (`refresh`), and the
//! redirections of commands (`redirect`). Where they disagree, the next command is redirected again.

mod discovery;
mod redirect;
mod refresh;
mod slots;
mod table;

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use self::table::SlotTable;
use super::{address::Address, batch::RequestOptions, connect::ConnectTemplate, connection::SendError};

/// A handle on a cluster; clones share its table and connections, which end with the last of them.
#[derive(Clone)]
pub(super) struct Cluster {
    shared: Arc<SharedCluster>,
    phase: watch::Receiver<DiscoveryPhase>,
    /// Notifies the task that the table may be outdated. The task ends with the last sender.
    refresh_trigger: Arc<watch::Sender<()>>,
}

/// State shared by the handles and the task.
struct SharedCluster {
    template: ConnectTemplate,
    options: RequestOptions,
    seeds: Vec<Address>,
    table: Mutex<SlotTable>,
}

/// Progress of the discovery of the cluster.
enum DiscoveryPhase {
    /// The slots are being read for the first time: requests wait.
    Pending,
    /// The slots could not be read so far, for this reason: requests fail at once.
    Failed(String),
    /// The slots are known.
    Discovered,
    /// The slots are known, and one of their owners is connected.
    Reached,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}

impl Cluster {
    /// Discovers the cluster of the `seeds`, in the background.
    pub(super) fn open(template: ConnectTemplate, seeds: Vec<Address>, options: RequestOptions) -> Self {
        let table = Mutex::new(SlotTable::new(template.clone(), options.clone()));
        let shared = Arc::new(SharedCluster { template, options, seeds, table });
        let (report, phase) = watch::channel(DiscoveryPhase::Pending);
        let (refresh_trigger, refreshes) = watch::channel(());
        tokio::spawn(refresh::run(Arc::clone(&shared), refreshes, report));
        Self { shared, phase, refresh_trigger: Arc::new(refresh_trigger) }
    }

    /// Waits until the slots are known and one of their owners is connected (true), or no handle is left (false). The
    /// future is not a handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut phase = self.phase.clone();
        async move { phase.wait_for(|phase| matches!(phase, DiscoveryPhase::Reached)).await.is_ok() }
    }

    /// Addresses of nodes, connected ones first.
    pub(super) fn nodes(&self) -> Vec<Address> {
        let table = self.shared.table.lock();
        let mut nodes: Vec<_> = table.reachable().into_iter().map(|route| route.node).collect();
        fastrand::shuffle(&mut nodes);
        nodes.extend(table.addresses());
        nodes.extend(self.shared.seeds.iter().cloned());
        nodes
    }

    /// The node that owns a slot, if it is known.
    pub(super) fn node_of(&self, slot: u16) -> Option<Address> {
        self.shared.table.lock().owner(slot).map(|route| route.node)
    }

    fn has_slots(&self) -> bool {
        matches!(&*self.phase.borrow(), DiscoveryPhase::Discovered | DiscoveryPhase::Reached)
    }

    async fn wait_for_slots(&self) -> Result<(), SendError> {
        let mut phase = self.phase.clone();
        let outcome = phase.wait_for(|phase| !matches!(phase, DiscoveryPhase::Pending)).await;
        match outcome.as_deref() {
            Ok(DiscoveryPhase::Discovered | DiscoveryPhase::Reached) => Ok(()),
            Ok(DiscoveryPhase::Failed(reason)) => Err(SendError::NotConnected(reason.clone())),
            Ok(DiscoveryPhase::Pending) | Err(_) => Err(SendError::NotConnected("shutting down".into())),
        }
    }

    /// Triggers a refresh of the slots.
    fn refresh(&self) {
        self.refresh_trigger.send_replace(());
    }
}
