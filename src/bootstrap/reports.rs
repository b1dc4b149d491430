//! Reports of the limiters beside their decisions, and the tasks that process them.

use std::{convert::Infallible, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
use tollgate_limiter::{BegunBans, Limiter, ReachedThresholds};

use super::{ban_list::BanLister, instance::Instance, threshold_events::ThresholdEvents};

/// Bans that began and thresholds that were reached. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct LimiterReports {
    begun_bans: BegunBans,
    thresholds: ReachedThresholds,
}

impl LimiterReports {
    /// Receives the reports of a limiter.
    pub(super) fn of(&self, limiter: Limiter) -> Limiter {
        limiter.with_begun_bans(self.begun_bans.clone()).with_reached_thresholds(self.thresholds.clone())
    }

    /// Adds bans to the list that operators see, and banned clients to the deny list.
    pub(super) fn list_bans(&self, instance: &Instance) -> AbortOnDropHandle<Infallible> {
        let Instance { control, rules, .. } = instance;
        let lister = BanLister::new(self.begun_bans.clone(), control.clone(), Arc::clone(rules));
        AbortOnDropHandle::new(tokio::spawn(lister.run()))
    }

    /// Raises events of reached thresholds.
    pub(super) fn raise_events(&self, instance: &Instance) -> AbortOnDropHandle<Infallible> {
        let events = ThresholdEvents::new(self.thresholds.clone(), instance.control.clone());
        AbortOnDropHandle::new(tokio::spawn(events.run()))
    }
}
