//! The part of a server that enforces limits together with other regions, from its start to its end.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use tokio::task::JoinSet;
use tollgate_control::{Control, RulesCopier, RulesStatus};
use tollgate_limiter::{ActiveRules, OwnShares, Replicas};
use tollgate_rules::TableSize;
use tollgate_serve::net::{accept, tls::Tls};
use tollgate_store::{CounterStore, Store, loans::ShareWatch};

use crate::loans::{Borrower, Lender};
use crate::peers::{RegionsService, connect_to_all, serve};
use crate::primary::{PrimaryCalls, PrimaryQueue, PrimaryRouter, PrimaryServer, send_all};
use crate::{RegionSettings, Regions, RegionsView, settings::PeerSettings, tables};

/// The regions of a server that starts.
#[derive(Debug)]
pub struct RegionServer {
    regions: Regions,
    queue: PrimaryQueue,
    /// The service between regions, with the demand of counters, if this instance has part in it.
    peers: Option<(PeerSettings, ShareWatch)>,
}

/// Parts of the server that its regions use.
#[derive(Debug)]
pub struct ServerParts {
    /// Rule versions and their copies.
    pub control: Control,
    /// Source and version of the active rules.
    pub status: RulesStatus,
    /// The active rules.
    pub rules: Arc<ActiveRules>,
    /// Counters of this region, if [`RegionServer::needs_store`].
    pub store: Option<Store>,
    /// Instances of this region.
    pub replicas: Replicas,
}

impl RegionServer {
    /// Reads the region table. Shares of this region are kept in `shares`.
    ///
    /// # Errors
    /// Every problem of the table.
    pub fn load(settings: &RegionSettings, shares: &OwnShares) -> Result<Self, String> {
        let (calls, queue) = PrimaryCalls::new();
        let regions = Regions::load(settings, shares.clone(), calls)?;
        let peers = settings.peers.clone().map(|peers| (peers, ShareWatch::default()));
        Ok(Self { regions, queue, peers })
    }

    /// Size of the table, for the validation of rules.
    pub fn table_size(&self) -> TableSize {
        self.regions.table_size()
    }

    /// Shares of this region, as a limiter enforces them.
    pub fn shares(&self) -> OwnShares {
        let mut shares = self.regions.shares.clone();
        shares.watch = self.peers.as_ref().map(|(_, watch)| watch.clone());
        shares
    }

    /// Puts the calls to the primary region in front of a store.
    pub fn layer(&self) -> impl Fn(Arc<dyn CounterStore>) -> Arc<dyn CounterStore> + Send + Sync + use<> {
        let calls = self.regions.calls.clone();
        move |own| Arc::new(PrimaryRouter::new(own, calls.clone()))
    }

    /// Whether the server needs a store for loans between regions.
    pub const fn needs_store(&self) -> bool {
        self.peers.is_some()
    }

    /// The regions as operators see them, as of each call.
    pub fn view(&self) -> impl Fn() -> RegionsView + Send + Sync + use<> {
        let regions = self.regions.clone();
        move || regions.view()
    }

    /// Prepares the control store, before the files of a directory could become the first version.
    pub async fn prepare(&self, control: &Control) {
        control.set_writing_region(self.regions.writing().as_deref());
        if self.peers.is_some() {
            tables::settle(&self.regions, control).await;
        }
    }

    /// Follows the region table, copies the rules of the region that writes them, and opens the service between regions if
    /// there are settings of one. Returns the tasks, and the address of the service.
    ///
    /// # Errors
    /// When that service cannot start: its TLS files are unusable, or its port cannot be opened.
    pub async fn start(self, parts: ServerParts) -> Result<(JoinSet<()>, Option<SocketAddr>), String> {
        let ServerParts { control, status, rules, store, replicas } = parts;
        let Self { regions, queue, peers } = self;
        let (mut address, mut tasks) = (None, JoinSet::new());
        let copier = RulesCopier::new(control.clone(), status.clone(), Arc::new(regions.clone()));
        tasks.spawn(endless(copier.run()));
        if let Some(((settings, watch), store)) = peers.zip(store) {
            let (tls, reload) = Tls::load(settings.tls.clone()).map_err(|error| error.to_string())?;
            let at = settings.address;
            let failed = |error| format!("cannot listen on {at} (--region-address): {error}");
            let listener = accept::listen(at).await.map_err(failed)?;
            address = Some(listener.local_addr().map_err(failed)?);
            tasks.spawn(reload);
            let primary = PrimaryServer::new(regions.clone(), Arc::clone(&rules), store.clone());
            let borrower = Borrower::new(regions.clone(), store, watch, replicas);
            let lender = Lender::new(rules, borrower.clone());
            let service =
                RegionsService { regions: regions.clone(), control: control.clone(), lender, primary };
            tasks.spawn(serve(listener, tls, service));
            tasks.spawn(endless(borrower.run()));
            tasks.spawn(endless(send_all(queue, regions.clone())));
            tasks.spawn(endless(tables::watch(regions.clone(), control, status)));
            tasks.spawn(endless(connect_to_all(settings, regions.clone())));
        }
        tasks.spawn(regions.follow());
        Ok((tasks, address))
    }
}

/// Runs a task that never completes.
async fn endless(task: impl Future<Output = Infallible>) {
    match task.await {}
}
