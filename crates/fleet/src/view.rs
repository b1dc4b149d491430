//! Reports of the instances about their traffic, and the traffic of all as an instance sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, task::spawn_blocking, time::Instant};
use tollgate_control::{Control, ControlError, InstanceReport, MAX_REPORT_BYTES, ReportTopic, Totals};
use tollgate_core::clock::now_ms;
use tollgate_limiter::talkers::{self, DomainCounts, DomainTop, SpanCounts};

use super::history::{self, History, Intervals, MAX_SAMPLES};

/// Time for which reports are not read again, for any number of requests.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// Age above which a report is not part of a sum, in milliseconds: several report intervals.
pub const MAX_REPORT_AGE_MS: u64 = 10_000;

/// Latest intervals that may still change, because instances publish a little later.
const OPEN_INTERVALS: u64 = 2;

/// Intervals whose totals are read at once, which bounds the time that one read takes in Redis.
const READ_INTERVALS: u64 = 20;

/// Size of a report: less than the maximum, for names that need escapes.
const TARGET_BYTES: usize = MAX_REPORT_BYTES / 2;

/// Report of an instance, stored as JSON. A release ignores fields that it does not have, and lacks those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Heaviest keys by domain; `None` if they are not sampled.
    #[serde(default)]
    top: Option<Vec<DomainCounts>>,
}

impl Report {
    /// The report of this instance. Takes up to a millisecond for each domain.
    fn of_this_instance(is_sampling: bool) -> Self {
        Self { top: is_sampling.then(|| talkers::counts(TARGET_BYTES)) }
    }

    /// The report as JSON of at most [`MAX_REPORT_BYTES`]; without the lightest domains if they do not fit.
    pub(super) fn into_text(mut self) -> String {
        loop {
            // Maps with text keys and numbers always have a JSON form.
            let text = serde_json::to_string(&self).unwrap_or_default();
            match &mut self.top {
                Some(top) if text.len() > MAX_REPORT_BYTES && !top.is_empty() => top.truncate(top.len() / 2),
                _ => return text,
            }
        }
    }
}

tollgate_core::named! {
    /// Whether an instance is part of a sum.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ReportStatus {
        /// Part of the sum.
        Included = "included",
        /// Its last report is too old.
        Stale = "stale",
        /// No report, as of an older release.
        Missing = "missing",
        /// Does not sample top talkers.
        NotSampling = "not_sampling",
    }
}

/// An instance with a recent heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStatus {
    pub id: String,
    pub status: ReportStatus,
    /// Age of its last report, in milliseconds.
    pub age_ms: Option<u64>,
}

/// Reports of all instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReports {
    /// Every instance with a recent heartbeat.
    pub instances: Vec<InstanceStatus>,
    /// Counts of the included instances.
    counts: Vec<Vec<DomainCounts>>,
}

/// Reads the traffic of all instances; clones share a cache.
#[derive(Clone, Debug)]
pub struct FleetView(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    control: Control,
    is_sampling: bool,
    reports: Cached<FleetReports>,
    /// Totals of intervals that no longer change.
    totals: Mutex<BTreeMap<u64, Totals>>,
    /// Time by which the clock of the control store is ahead of this process' clock, in milliseconds.
    clock_ahead_ms: AtomicI64,
}

impl FleetView {
    pub fn new(control: Control, is_sampling: bool) -> Self {
        Self(Arc::new(Inner {
            control,
            is_sampling,
            reports: Cached::default(),
            totals: Mutex::default(),
            clock_ahead_ms: AtomicI64::default(),
        }))
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
            let stored = self.0.control.reports(ReportTopic::Traffic).await?;
            Ok(spawn_blocking(move || FleetReports::read(stored)).await?)
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
        let is_sampling = self.0.is_sampling;
        Ok(spawn_blocking(move || form(Report::of_this_instance(is_sampling))).await?)
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
pub struct Cached<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Cached<T> {
    /// Returns the value, which is read if the last one is too old.
    pub async fn get_or<E>(&self, read: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
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

impl FleetReports {
    fn of_one(id: String, report: Report) -> Self {
        let mut reports = Self::default();
        reports.add(id, 0, report);
        reports
    }

    /// Reads the reports of several instances. An unreadable one of another release counts as missing.
    fn read(stored: Vec<InstanceReport>) -> Self {
        let mut reports = Self::default();
        for InstanceReport { instance: id, report } in stored {
            let read = report.and_then(|(age_ms, text)| Some((age_ms, serde_json::from_str(&text).ok()?)));
            match read {
                Some((age_ms, report)) => reports.add(id, age_ms, report),
                None => {
                    let status = ReportStatus::Missing;
                    reports.instances.push(InstanceStatus { id, status, age_ms: None });
                }
            }
        }
        reports
    }

    fn add(&mut self, id: String, age_ms: u64, report: Report) {
        let status = match report.top {
            _ if age_ms > MAX_REPORT_AGE_MS => ReportStatus::Stale,
            None => ReportStatus::NotSampling,
            Some(counts) => {
                self.counts.push(counts);
                ReportStatus::Included
            }
        };
        self.instances.push(InstanceStatus { id, status, age_ms: Some(age_ms) });
    }

    /// Counts by domain, summed over the included instances.
    pub fn merged(&self, span: fn(&DomainCounts) -> &SpanCounts) -> BTreeMap<&str, SpanCounts> {
        talkers::merge(self.counts.iter().map(Vec::as_slice), span)
    }

    /// Returns the heaviest keys of every domain, or of one, over the last minute.
    pub fn top(&self, domain: Option<&str>, limit: usize) -> Vec<DomainTop> {
        let merged = self.merged(|counts| &counts.minute).into_iter();
        let wanted = merged.filter(|(name, _)| domain.is_none_or(|wanted| wanted == *name));
        wanted.map(|(name, counts)| counts.top(name, limit)).collect()
    }

    /// Number of instances with this status.
    pub fn count(&self, status: ReportStatus) -> usize {
        self.instances.iter().filter(|instance| instance.status == status).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(age_ms: u64, text: &str) -> Option<(u64, String)> {
        Some((age_ms, text.to_owned()))
    }

    #[test]
    fn instances_that_are_not_part_of_the_sum_are_named() {
        let counts = |hits: u64| {
            let keys = format!(r#"{{"f":0,"k":[["k=v",{hits},0]]}}"#);
            let none = r#"{"f":0,"k":[]}"#;
            let span = format!(r#"{{"h":{keys},"d":{none}}}"#);
            format!(r#"{{"top":[{{"n":"edge","m":{span},"r":{span}}}],"of a newer release":1}}"#)
        };
        let stored = [
            ("a", report(100, &counts(5))),
            ("b", report(MAX_REPORT_AGE_MS, &counts(7))),
            ("late", report(MAX_REPORT_AGE_MS + 1, &counts(100))),
            ("older", None),
            ("off", report(0, "{}")),
            ("broken", report(0, "[")),
        ];
        let stored = stored.map(|(id, report)| InstanceReport { instance: id.to_owned(), report });
        let reports = FleetReports::read(stored.into());
        let statuses: Vec<_> =
            reports.instances.iter().map(|instance| (&*instance.id, instance.status)).collect();
        let expected = [
            ("a", ReportStatus::Included),
            ("b", ReportStatus::Included),
            ("late", ReportStatus::Stale),
            ("older", ReportStatus::Missing),
            ("off", ReportStatus::NotSampling),
            ("broken", ReportStatus::Missing),
        ];
        assert_eq!(statuses, expected);
        let top = reports.top(None, 10);
        assert_eq!((top.len(), top[0].heaviest[0].hits), (1, 12));
        assert!(reports.top(Some("other"), 10).is_empty());
    }

    #[tokio::test]
    async fn without_a_shared_store_the_fleet_is_this_instance() {
        let control = Control::memory(tollgate_control::RulesSource::Directory);
        let view = FleetView::new(control.clone(), true);
        let reports = view.reports().await.expect("reports");
        assert_eq!(reports.instances.len(), 1);
        assert_eq!(reports.instances[0].id, control.instance());
        assert_eq!(reports.count(ReportStatus::Included), 1);
    }
}
