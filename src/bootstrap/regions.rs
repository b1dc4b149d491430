//! The regions of a server, a feature of the build: without it, this instance enforces its limits alone.

use std::net::SocketAddr;

use tokio::task::JoinSet;
use tollgate_admin::JsonSource;
use tollgate_control::Control;
use tollgate_limiter::OwnShares;
#[cfg(feature = "regions")]
use tollgate_regions::{RegionServer, ServerParts};
use tollgate_rules::TableSize;

use super::stores::{StoreLayer, Stores};
use super::{Instance, StartError};
use crate::settings::Settings;

/// Parts of a server that depend on its regions, if it has any.
pub(super) struct Regions {
    /// Shares of this region, as a limiter enforces them.
    pub(super) shares: OwnShares,
    /// Puts the calls to the primary region in front of a store.
    pub(super) layer: Option<StoreLayer>,
    /// The regions as operators see them.
    pub(super) view: Option<JsonSource>,
    #[cfg(feature = "regions")]
    server: Option<RegionServer>,
}

/// Tasks of the regions, and the address of the service between regions, if it is open.
pub(super) type RunningRegions = (JoinSet<()>, Option<SocketAddr>);

impl Regions {
    /// An instance that enforces its limits alone.
    fn none(settings: &mut Settings) -> Self {
        settings.rules.options.regions = TableSize::NoTable;
        Self {
            shares: OwnShares::default(),
            layer: None,
            view: None,
            #[cfg(feature = "regions")]
            server: None,
        }
    }
}

#[cfg(feature = "regions")]
impl Regions {
    /// Reads the region table, if there are settings of one. Rules will be validated with its size.
    pub(super) fn load(settings: &mut Settings) -> Result<Self, String> {
        let Some(region) = &settings.region else { return Ok(Self::none(settings)) };
        let server = RegionServer::load(region, &OwnShares::default())
            .map_err(|error| format!("invalid region table (--regions): {error}"))?;
        settings.rules.options.regions = server.table_size();
        Ok(Self {
            shares: server.shares(),
            layer: Some(std::sync::Arc::new(server.layer())),
            view: Some(JsonSource::new(server.view())),
            server: Some(server),
        })
    }

    /// Prepares the control store, before the files of a directory could become the first version.
    pub(super) async fn prepare(&self, control: &Control) {
        if let Some(server) = &self.server {
            server.prepare(control).await;
        }
    }

    /// Starts the tasks of the regions.
    pub(super) async fn start(
        self,
        instance: &Instance,
        stores: &Stores,
    ) -> Result<RunningRegions, StartError> {
        let Some(server) = self.server else { return Ok(RunningRegions::default()) };
        let parts = ServerParts {
            control: instance.control.clone(),
            status: instance.status.clone(),
            rules: std::sync::Arc::clone(&instance.rules),
            store: server.needs_store().then(|| stores.of_region()).transpose()?,
            replicas: stores.replicas().unwrap_or_default(),
        };
        Ok(server.start(parts).await?)
    }
}

#[cfg(not(feature = "regions"))]
impl Regions {
    pub(super) fn load(settings: &mut Settings) -> Result<Self, String> {
        Ok(Self::none(settings))
    }

    pub(super) async fn prepare(&self, _: &Control) {}

    pub(super) async fn start(self, _: &Instance, _: &Stores) -> Result<RunningRegions, StartError> {
        Ok(RunningRegions::default())
    }
}
