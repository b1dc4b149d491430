//! Traffic and rollouts of all instances, as this instance reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::{collections::BTreeMap, time::Duration};

use tokio::{sync::Mutex, task::spawn_blocking, time::Instant};
use tollgate_control::{Control, ControlError, Totals};
use tollgate_core::clock::now_ms;
use tollgate_limiter::ActiveRules;

use super::history::{self, History, Intervals, MAX_SAMPLES};
use super::report::{FleetReports, Report};
use super::rollouts::{self, CandidateView, Comparisons, DemandView};

/// Time for which reports are not read again, for any number of requests.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// Latest intervals that may still change, because instances publish a little later.
const OPEN_INTERVALS: u64 = 2;

/// Intervals whose totals are read at once, which bounds the time that one read takes in Redis.
const READ_INTERVALS: u64 = 20;

/// Reads the traffic of all instances; clones share a cache.
#[derive(Clone, Debug)]
pub struct FleetView(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    control: Control,
    is_sampling: bool,
    rules: Arc<ActiveRules>,
    /// Comparisons with candidates on this instance.
    comparisons: parking_lot::Mutex<Comparisons>,
    demand: DemandView,
    reports: Cached<FleetReports>,
    /// Totals of intervals that no longer change.
    totals: Mutex<BTreeMap<u64, Totals>>,
    /// Time by which the clock of the control store is ahead of this process' clock, in milliseconds.
    clock_ahead_ms: AtomicI64,
}

impl FleetView {
    pub fn new(control: Control, is_sampling: bool, rules: Arc<ActiveRules>) -> Self {
        let (comparisons, demand, reports, totals, clock_ahead_ms) = Default::default();
        Self(Arc::new(Inner {
            control,
            is_sampling,
            rules,
            comparisons,
            demand,
            reports,
            totals,
            clock_ahead_ms,
        }))
    }

    /// Demand of this instance.
    pub fn demand(&self) -> &DemandView {
        &self.0.demand
    }

    pub(super) fn rules(&self) -> &Arc<ActiveRules> {
        &self.0.rules
    }

    /// Records the time of the control store, in milliseconds since 1970.
    pub(super) fn set_store_time(&self, store_ms: u64) {
        let ahead = i128::from(store_ms) - i128::from(now_ms());
        self.0.clock_ahead_ms.store(i64::try_from(ahead).unwrap_or_default(), Ordering::Relaxed);
    }

    /// Converts a time of this process to the clock of the control store.
    pub(super) fn store_time(&self, own_ms: u64) -> u64 {
        own_ms.saturating_add_signed(self.0.clock_ahead_ms.load(Ordering::Relaxed))
    }

    /// Returns the reports of all instances; without a shared store, of this one.
    pub async fn reports(&self) -> Result<Arc<FleetReports>, ControlError> {
        let read = async {
            if !self.0.control.is_shared() {
                return self.own_reports().await;
            }
            let stored = self.0.control.reports().await?;
            let store_ms = self.store_time(now_ms());
            Ok(spawn_blocking(move || FleetReports::read(stored, store_ms)).await?)
        };
        self.0.reports.get_or(Box::pin(read)).await
    }

    /// Returns the reports of this instance alone.
    pub async fn own_reports(&self) -> Result<FleetReports, ControlError> {
        let id = self.0.control.instance().to_owned();
        self.own_report(move |report| FleetReports::of_one(id, report)).await
    }

    /// The report of this instance, in some form.
    pub(super) async fn own_report<T: Send + 'static>(
        &self,
        form: impl FnOnce(Report) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        let inner = Arc::clone(&self.0);
        let report = move || {
            let rollouts = inner.comparisons.lock().report(&inner.rules, now_ms());
            form(Report::of_this_instance(inner.is_sampling, rollouts))
        };
        Ok(spawn_blocking(report).await?)
    }

    /// Comparisons of all instances with the candidates, by domain and rule.
    pub async fn candidates(&self) -> Result<Vec<CandidateView>, ControlError> {
        Ok(rollouts::merged(self.reports().await?.rollouts()))
    }

    /// Returns the samples of all instances; without a shared store, of this one.
    pub async fn history(&self) -> Result<History, ControlError> {
        if !self.0.control.is_shared() {
            return Ok(history::history());
        }
        let now = Intervals::at(self.store_time(now_ms()));
        let first = now.saturating_sub(MAX_SAMPLES as u64).saturating_sub(OPEN_INTERVALS);
        let mut totals = self.0.totals.lock().await;
        totals.retain(|interval, _| (first..now).contains(interval));
        let mut unread = totals.last_key_value().map_or(first, |(last, _)| last + 1);
        while unread < now {
            let end = (unread + READ_INTERVALS).min(now);
            let read = self.0.control.totals(unread..end).await?;
            totals.extend((unread..end).zip(read));
            unread = end;
        }
        // The latest interval is incomplete, and is not shown.
        let closed = now.saturating_sub(OPEN_INTERVALS);
        let samples = totals.range(first..closed + 1);
        let samples =
            samples.filter_map(|(interval, totals)| history::sample_of(*interval, totals)).collect();
        totals.split_off(&closed);
        Ok(History { interval_s: history::INTERVAL_S, samples })
    }
}

/// Value that is read at most once a second.
#[derive(Debug, Default)]
struct Cached<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Cached<T> {
    /// Returns the value, which is read if the last one is too old.
    async fn get_or<E>(&self, read: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        let mut cached = self.0.lock().await;
        if let Some((at, value)) = &*cached
            && at.elapsed() < CACHE_LIFETIME
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(read.await?);
        *cached = Some((Instant::now(), Arc::clone(&value)));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReportStatus;

    #[tokio::test]
    async fn without_a_shared_store_the_fleet_is_this_instance() {
        let control = Control::memory(tollgate_control::RulesSource::Directory);
        let view = FleetView::new(control.clone(), true, Arc::default());
        let reports = view.reports().await.expect("reports");
        assert_eq!(reports.instances.len(), 1);
        assert_eq!(reports.instances[0].id, control.instance());
        assert_eq!(reports.count(ReportStatus::Included), 1);
    }
}
