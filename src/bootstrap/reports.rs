//! Reports of the limiters beside their decisions, and the tasks that process them.

use std::{convert::Infallible, sync::Arc};

use tokio_util::task::AbortOnDropHandle;
use tollgate_limiter::{BegunBans, Limiter, ReachedThresholds, abuse::AbuseCollector};

use super::{ban_list::BanLister, instance::Instance, threshold_events::ThresholdEvents};
use crate::abuse;

/// Abusive keys, bans that began and thresholds that were reached. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct LimiterReports {
    abuse: AbuseCollector,
    begun_bans: BegunBans,
    thresholds: ReachedThresholds,
}

impl LimiterReports {
    /// Receives the reports of a limiter.
    pub(super) fn of(&self, limiter: Limiter) -> Limiter {
        let limiter = limiter.with_begun_bans(self.begun_bans.clone()).with_observer(self.abuse.observer());
        limiter.with_reached_thresholds(self.thresholds.clone())
    }

    /// Detects abuse.
    pub(super) fn detect_abuse(&self, instance: &Instance) -> AbortOnDropHandle<Infallible> {
        let Instance { control, rules, .. } = instance;
        let detection = abuse::run(control.clone(), Arc::clone(rules), self.abuse.clone());
        AbortOnDropHandle::new(tokio::spawn(detection))
    }

    /// Adds bans to the list that operators see.
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
