//! The regions of a server, a feature of the build: without it, this instance enforces its limits alone.

use tollgate_limiter::OwnShares;

use crate::settings::Settings;

#[cfg(feature = "regions")]
pub(super) use tollgate_regions::{PeersError, RegionServer, RunningRegions, ServerParts, metrics::METRICS};

#[cfg(not(feature = "regions"))]
pub(super) use self::absent::{METRICS, PeersError, RegionServer, RunningRegions, ServerParts};

/// Reads the region table, if there are settings of one.
#[cfg(feature = "regions")]
pub(super) fn load(settings: &Settings, shares: &OwnShares) -> Result<Option<RegionServer>, String> {
    settings.region.as_ref().map(|region| RegionServer::load(region, shares)).transpose()
}

#[cfg(not(feature = "regions"))]
pub(super) fn load(_: &Settings, _: &OwnShares) -> Result<Option<RegionServer>, String> {
    Ok(None)
}

/// Types of the feature, of which there are no values.
#[cfg(not(feature = "regions"))]
mod absent {
    use std::{convert::Infallible, net::SocketAddr, sync::Arc};

    use tollgate_control::{Control, RulesStatus};
    use tollgate_limiter::{ActiveRules, OwnShares, Replicas};
    use tollgate_metrics::Metric;
    use tollgate_rules::TableSize;
    use tollgate_store::{CounterStore, Store};

    pub(in crate::bootstrap) static METRICS: &[&dyn Metric] = &[];

    pub(in crate::bootstrap) type PeersError = Infallible;

    #[derive(Debug)]
    pub(in crate::bootstrap) enum RegionServer {}

    #[derive(Debug)]
    pub(in crate::bootstrap) enum RunningRegions {}

    #[allow(dead_code)] // Its fields are for the feature.
    pub(in crate::bootstrap) struct ServerParts {
        pub(in crate::bootstrap) control: Control,
        pub(in crate::bootstrap) status: RulesStatus,
        pub(in crate::bootstrap) rules: Arc<ActiveRules>,
        pub(in crate::bootstrap) store: Option<Store>,
        pub(in crate::bootstrap) replicas: Replicas,
    }

    impl RegionServer {
        pub(in crate::bootstrap) fn table_size(&self) -> TableSize {
            match *self {}
        }

        pub(in crate::bootstrap) fn shares(&self) -> OwnShares {
            match *self {}
        }

        pub(in crate::bootstrap) fn layer(&self) -> fn(Arc<dyn CounterStore>) -> Arc<dyn CounterStore> {
            match *self {}
        }

        pub(in crate::bootstrap) const fn needs_store(&self) -> bool {
            match *self {}
        }

        pub(in crate::bootstrap) fn view(&self) -> fn() {
            match *self {}
        }

        pub(in crate::bootstrap) async fn prepare(&self, _: &Control) {
            match *self {}
        }

        pub(in crate::bootstrap) async fn start(self, _: ServerParts) -> Result<RunningRegions, Infallible> {
            match self {}
        }
    }

    impl RunningRegions {
        pub(in crate::bootstrap) fn address(&self) -> Option<SocketAddr> {
            match *self {}
        }
    }
}
