//! Tasks of the region table and of the service between regions.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
use tollgate_control::RulesCopier;

use super::drain::Running;
use crate::{
    regions::{Lending, Peers, PeersError, Regions},
    settings::PeerSettings,
};

/// Running tasks; aborted on drop.
#[derive(Debug)]
pub(super) struct RegionTasks {
    _table: AbortOnDropHandle<Option<Infallible>>,
    /// Copies the rules of the region that writes them.
    _copier: AbortOnDropHandle<Infallible>,
    peers: Option<Peers>,
}

impl RegionTasks {
    /// Follows the region table, and opens the service between regions if there are settings of one.
    pub(super) async fn start(
        regions: Regions,
        peers: Option<(PeerSettings, Lending)>,
        running: &Running,
    ) -> Result<Self, PeersError> {
        let (control, status) = (running.control().clone(), running.rules_status().clone());
        let copier = RulesCopier::new(control.clone(), status.clone(), Arc::new(regions.clone()));
        let copier = AbortOnDropHandle::new(tokio::spawn(copier.run()));
        let peers = match peers {
            Some((settings, lending)) => {
                Some(Peers::start(&settings, &regions, control, status, lending).await?)
            }
            None => None,
        };
        let table = AbortOnDropHandle::new(tokio::spawn(regions.follow()));
        Ok(Self { _table: table, _copier: copier, peers })
    }

    /// Address of the service between regions.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.peers.as_ref().map(Peers::address)
    }
}
