//! The regions of a server, a feature of the build: without it, this instance enforces its limits alone.

#[cfg(not(feature = "regions"))]
use std::convert::Infallible as RegionServer;
use std::net::SocketAddr;

use tokio::task::JoinSet;
use tollgate_admin::JsonSource;
use tollgate_control::Control;
use tollgate_limiter::{OwnShares, Replicas};
#[cfg(feature = "regions")]
use tollgate_regions::{RegionServer, ServerParts};
use tollgate_rules::TableSize;
use tollgate_store::Store;

use super::{Instance, stores::StoreLayer};
use crate::settings::Settings;

/// Parts of a server that depend on its regions.
pub(super) struct Regions {
    /// Size of the region table, for the validation of rules.
    pub(super) table_size: TableSize,
    /// Shares of this region, as a limiter enforces them.
    pub(super) shares: OwnShares,
    /// Whether the server needs a store for loans between regions.
    pub(super) needs_store: bool,
    /// Puts the calls to the primary region in front of a store.
    pub(super) layer: StoreLayer,
    /// The regions as operators see them.
    pub(super) view: JsonSource,
    server: RegionServer,
}

/// Tasks of the regions, and the address of the service between regions, if it is open.
pub(super) type RunningRegions = (JoinSet<()>, Option<SocketAddr>);

#[cfg(feature = "regions")]
impl Regions {
    /// Reads the region table, if there are settings of one.
    pub(super) fn load(settings: &Settings, shares: &OwnShares) -> Result<Option<Self>, String> {
        let Some(settings) = &settings.region else { return Ok(None) };
        let server = RegionServer::load(settings, shares)
            .map_err(|error| format!("invalid region table (--regions): {error}"))?;
        Ok(Some(Self {
            table_size: server.table_size(),
            shares: server.shares(),
            needs_store: server.needs_store(),
            layer: std::sync::Arc::new(server.layer()),
            view: JsonSource::new(server.view()),
            server,
        }))
    }

    /// Prepares the control store, before the files of a directory could become the first version.
    pub(super) async fn prepare(&self, control: &Control) {
        self.server.prepare(control).await;
    }

    /// Starts the tasks of the regions, with the store for loans if it is needed.
    pub(super) async fn start(
        self,
        instance: &Instance,
        store: Option<Store>,
        replicas: Replicas,
    ) -> Result<RunningRegions, String> {
        let Instance { control, status, rules, .. } = instance;
        let (control, status, rules) = (control.clone(), status.clone(), std::sync::Arc::clone(rules));
        self.server.start(ServerParts { control, status, rules, store, replicas }).await
    }
}

#[cfg(not(feature = "regions"))]
impl Regions {
    pub(super) fn load(_: &Settings, _: &OwnShares) -> Result<Option<Self>, String> {
        Ok(None)
    }

    pub(super) async fn prepare(&self, _: &Control) {
        match self.server {}
    }

    pub(super) async fn start(
        self,
        _: &Instance,
        _: Option<Store>,
        _: Replicas,
    ) -> Result<RunningRegions, String> {
        match self.server {}
    }
}
