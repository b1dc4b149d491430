//! Exchange of messages with the other regions, over a port of its own with mutual TLS.
//!
//! - [`client`]: a task for each other region, which connects and sends.
//! - [`service`]: answers other regions, on its port.
//! - [`rules`]: copies of the rules that another region writes.
//!
//! Decisions wait for none of it, except those of rules with `scope: primary` or `on_share_exhausted: wait`.

mod client;
mod rules;
mod service;

use std::{collections::BTreeMap, convert::Infallible, io, net::SocketAddr, sync::Arc};

use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tollgate_control::{Control, RulesStatus};
use tollgate_limiter::{ActiveRules, OwnShares, Replicas};
use tollgate_rules::RegionEntry;
use tollgate_runtime::panics::CatchUnwind;
use tollgate_serve::net::{
    accept,
    tls::{Tls, TlsError},
};
use tollgate_store::{Store, loans::ShareWatch};

use self::{client::PeerClient, service::RegionsService};
use super::{
    Regions,
    loans::{Borrower, Lender},
    primary::{PrimaryQueue, PrimaryServer, send_all},
    tables,
};
use crate::PeerSettings;

/// Reason why the service between regions does not start.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The TLS files are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The port cannot be opened.
    #[error("cannot listen on {address} (--region-address): {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        error: io::Error,
    },
}

/// Parts of the process that loans between regions and calls to the primary region use.
#[derive(Debug)]
pub(crate) struct Lending {
    /// The active rules.
    pub rules: Arc<ActiveRules>,
    /// Own shares.
    pub shares: OwnShares,
    /// Store of the counters.
    pub store: Store,
    /// Demand of the counters, and shortages.
    pub watch: ShareWatch,
    /// Instances of the own region.
    pub replicas: Replicas,
    /// Calls to the primary region.
    pub calls: PrimaryQueue,
}

/// Tasks that exchange messages with the other regions; aborted on drop.
#[derive(Debug)]
pub(crate) struct Peers {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Peers {
    /// Opens the port and starts the tasks on this runtime.
    ///
    /// # Errors
    /// [`PeersError`] if the TLS files are unusable, or the port cannot be opened.
    pub(crate) async fn start(
        settings: &PeerSettings,
        regions: &Regions,
        control: Control,
        status: RulesStatus,
        lending: Lending,
    ) -> Result<Self, PeersError> {
        let (tls, reload) = Tls::load(settings.tls.clone())?;
        let listen = |error| PeersError::Listen { address: settings.address, error };
        let listener = accept::listen(settings.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(reload);
        let Lending { rules, shares, store, watch, replicas, calls } = lending;
        let primary = PrimaryServer::new(regions.clone(), Arc::clone(&rules), store.clone());
        let borrower = Borrower::new(regions.clone(), store, watch, replicas, shares.awaited().clone());
        let lender = Lender::new(rules, shares, borrower.clone());
        let service = RegionsService { regions: regions.clone(), control: control.clone(), lender, primary };
        tasks.spawn(service::serve(listener, tls, service));
        tasks.spawn(async move { match borrower.run().await {} });
        let sender = send_all(calls, regions.clone());
        tasks.spawn(async move { match sender.await {} });
        let tables = tables::watch(regions.clone(), control, status);
        tasks.spawn(async move { match tables.await {} });
        let clients = connect_to_all(settings.clone(), regions.clone());
        tasks.spawn(async move { match clients.await {} });
        Ok(Self { address, _tasks: tasks })
    }

    /// Address of the port, with the port that was assigned.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Keeps a client for each other region of the active table.
async fn connect_to_all(settings: PeerSettings, regions: Regions) -> Infallible {
    let mut clients = BTreeMap::<Box<str>, (RegionEntry, AbortOnDropHandle<_>)>::new();
    let mut changes = regions.changes();
    loop {
        let entries = regions.others();
        clients.retain(|_, (entry, _)| {
            entries.iter().any(|known| {
                (&known.name, &known.address, &known.certificate_name)
                    == (&entry.name, &entry.address, &entry.certificate_name)
            })
        });
        for entry in entries {
            clients.entry(entry.name.clone()).or_insert_with(|| {
                let client = PeerClient::new(entry.clone(), settings.tls.clone(), regions.clone());
                (entry, AbortOnDropHandle::new(tokio::spawn(CatchUnwind::new(client.run()))))
            });
        }
        // The sender is in `regions`.
        let _ = changes.changed().await;
    }
}
