//! Factory of the services that answer calls: one for each worker, and one for HTTP.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tollgate_limiter::{ActiveRules, Modes, OwnShares};
use tollgate_store::{BackgroundQueue, StoreError};

use super::{reports::LimiterReports, stores::Stores};
use crate::{
    grpc::service::RateLimitAdapter,
    readiness::Readiness,
    service::{RequestBounds, ResponseOptions, Service},
    settings::Settings,
    tracing::Tracer,
};

/// Opens services that share the rules and, but for their store handles, their parts.
#[derive(Clone)]
pub(super) struct ServiceFactory {
    stores: Stores,
    readiness: Readiness,
    shares: OwnShares,
    reports: LimiterReports,
    tracer: Option<Tracer>,
    response: ResponseOptions,
    bounds: RequestBounds,
    modes: Modes,
    /// Whether a limiter shares reports of utilization: the first one, that of the HTTP port, which outlives the workers.
    is_shared: Arc<AtomicBool>,
}

impl ServiceFactory {
    /// Creates the factory of services that count in `stores` and enforce `shares` of limits; `readiness` waits for their
    /// store handles.
    pub(super) fn new(
        settings: &Settings,
        (stores, readiness): (Stores, Readiness),
        shares: OwnShares,
        reports: LimiterReports,
        tracer: Option<Tracer>,
    ) -> Self {
        let (response, bounds, modes) = (settings.response.clone(), settings.bounds, settings.modes);
        let is_shared = Arc::default();
        Self { stores, readiness, shares, reports, tracer, response, bounds, modes, is_shared }
    }

    /// Opens a service on the current runtime.
    pub(super) fn open(
        &self,
        rules: &Arc<ActiveRules>,
        background: BackgroundQueue,
    ) -> Result<RateLimitAdapter, StoreError> {
        let limiter = self.stores.limiter(Arc::clone(rules), self.modes, &self.readiness, background)?;
        let limiter = self.reports.of(limiter).with_shares(self.shares.clone());
        if !self.is_shared.swap(true, Ordering::Relaxed) {
            tokio::spawn(limiter.share_utilization());
        }
        Ok(RateLimitAdapter {
            service: Service::new(limiter, self.response.clone(), self.bounds),
            tracer: self.tracer.clone(),
        })
    }
}
