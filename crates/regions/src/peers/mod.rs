//! Exchange of messages with the other regions, over a port of its own with mutual TLS.
//!
//! - [`client`]: a task for each other region, which connects and sends.
//! - [`service`]: answers other regions, on its port.
//! - [`tls`]: certificates of both.
//! - [`rules`]: copies of the rules that another region writes.
//!
//! Decisions wait for none of it, except those of rules with `scope: primary` or `on_share_exhausted: wait`.

mod client;
mod rules;
mod service;
mod tls;

use std::{collections::BTreeMap, convert::Infallible};

use tokio_util::task::AbortOnDropHandle;
use tollgate_rules::RegionEntry;
use tollgate_runtime::panics::CatchUnwind;

use self::client::PeerClient;
use crate::{PeerSettings, Regions};

pub(crate) use self::service::{RegionsService, serve};

/// Keeps a client for each other region of the active table.
pub(crate) async fn connect_to_all(settings: PeerSettings, regions: Regions) -> Infallible {
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
