//! A Redis Cluster: a table of its slots, and one connection for each master that is used.
//!
//! The table has two sources: the answer of a node to `CLUSTER SLOTS`, which a task (`refresh`) asks for, and the
//! redirections that commands meet (`redirect`). Where they disagree, the next command is redirected again.

mod discovery;
mod send;
mod redirect;
mod refresh;
mod slots;
mod table;

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use self::table::Table;
use super::{address::Address, batch::Terms, connect::ConnectTemplate, connection::SendError};

/// A handle on a cluster; clones share its table and connections, which end with the last of them.
#[derive(Clone)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
    /// Tells the task that the table may be wrong. That nobody is left to do so ends the task.
    wanted: Arc<watch::Sender<()>>,
}

/// What the handles share with the task.
struct Shared {
    access: ConnectTemplate,
    terms: Terms,
    seeds: Vec<Address>,
    table: Mutex<Table>,
}

/// How far the acquaintance with the cluster has come.
enum Phase {
    /// The slots are being read for the first time: calls wait for it.
    Unread,
    /// They could not be read so far, for this reason: calls fail at once.
    Failing(String),
    /// They are known.
    Read,
    /// And one of their owners was reached.
    Reached,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}

impl Cluster {
    /// Gets to know the cluster that `seeds` belong to, in the background.
    pub(super) fn open(access: ConnectTemplate, seeds: Vec<Address>, terms: Terms) -> Self {
        let table = Mutex::new(Table::new(access.clone(), terms.clone()));
        let shared = Arc::new(Shared { access, terms, seeds, table });
        let (report, phase) = watch::channel(Phase::Unread);
        let (wanted, wants) = watch::channel(());
        tokio::spawn(refresh::keep_current(Arc::clone(&shared), wants, report));
        Self { shared, phase, wanted: Arc::new(wanted) }
    }

    /// Waits until the slots are known and one of their owners was reached, or no handle is left. The wait is no
    /// handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut phase = self.phase.clone();
        async move { phase.wait_for(|phase| matches!(phase, Phase::Reached)).await.is_ok() }
    }

    /// Nodes by their addresses, those to which there is a connection first.
    pub(super) fn nodes(&self) -> Vec<Address> {
        let table = self.shared.table.lock();
        let mut nodes: Vec<_> = table.reachable().into_iter().map(|route| route.node).collect();
        fastrand::shuffle(&mut nodes);
        nodes.extend(table.addresses());
        nodes.extend(self.shared.seeds.iter().cloned());
        nodes
    }

    fn knows_slots(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Read | Phase::Reached)
    }

    async fn wait_for_slots(&self) -> Result<(), SendError> {
        let mut phase = self.phase.clone();
        let settled = phase.wait_for(|phase| !matches!(phase, Phase::Unread)).await;
        match settled.as_deref() {
            Ok(Phase::Read | Phase::Reached) => Ok(()),
            Ok(Phase::Failing(reason)) => Err(SendError::NotConnected(reason.clone())),
            Ok(Phase::Unread) | Err(_) => Err(SendError::NotConnected("closing".into())),
        }
    }

    /// Has the slots read again soon.
    fn refresh(&self) {
        self.wanted.send_replace(());
    }
}
