//! The regions of a server, a feature of the build: without it, this instance enforces its limits alone.

use tollgate_admin::JsonSource;
use tollgate_limiter::OwnShares;
#[cfg(feature = "regions")]
pub(super) use tollgate_regions::{RegionServer, RunningRegions, ServerParts, metrics::METRICS};
use tollgate_rules::TableSize;

#[cfg(not(feature = "regions"))]
pub(super) use self::absent::{METRICS, RegionServer, RunningRegions, ServerParts};
use super::stores::StoreLayer;
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
    pub(super) server: RegionServer,
}

/// Reads the region table, if there are settings of one.
#[cfg(feature = "regions")]
pub(super) fn load(settings: &Settings, shares: &OwnShares) -> Result<Option<Regions>, String> {
    let Some(settings) = &settings.region else { return Ok(None) };
    let server = RegionServer::load(settings, shares)
        .map_err(|error| format!("invalid region table (--regions): {error}"))?;
    Ok(Some(Regions {
        table_size: server.table_size(),
        shares: server.shares(),
        needs_store: server.needs_store(),
        layer: std::sync::Arc::new(server.layer()),
        view: JsonSource::new(server.view()),
        server,
    }))
}

#[cfg(not(feature = "regions"))]
pub(super) fn load(_: &Settings, _: &OwnShares) -> Result<Option<Regions>, String> {
    Ok(None)
}

/// Types of the feature; without it there is no server of regions.
#[cfg(not(feature = "regions"))]
mod absent {
    use std::{net::SocketAddr, sync::Arc};

    use tollgate_control::{Control, RulesStatus};
    use tollgate_limiter::{ActiveRules, Replicas};
    use tollgate_metrics::Metric;
    use tollgate_store::Store;

    pub(in crate::bootstrap) static METRICS: &[&dyn Metric] = &[];

    #[derive(Debug)]
    pub(in crate::bootstrap) enum RegionServer {}

    #[derive(Debug)]
    pub(in crate::bootstrap) struct RunningRegions {
        pub(in crate::bootstrap) address: Option<SocketAddr>,
    }

    #[allow(dead_code)] // Its fields are for the feature.
    pub(in crate::bootstrap) struct ServerParts {
        pub(in crate::bootstrap) control: Control,
        pub(in crate::bootstrap) status: RulesStatus,
        pub(in crate::bootstrap) rules: Arc<ActiveRules>,
        pub(in crate::bootstrap) store: Option<Store>,
        pub(in crate::bootstrap) replicas: Replicas,
    }

    impl RegionServer {
        pub(in crate::bootstrap) async fn prepare(&self, _: &Control) {
            match *self {}
        }

        pub(in crate::bootstrap) async fn start(self, _: ServerParts) -> Result<RunningRegions, String> {
            match self {}
        }
    }
}
