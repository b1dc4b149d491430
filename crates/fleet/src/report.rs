//! Reports of the instances, and those of all as one instance reads them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_control::{InstanceReport, MAX_REPORT_BYTES};
use tollgate_limiter::talkers::{self, DomainCounts, DomainTop, SpanCounts};

use super::rollouts::{RolloutReport, json_bytes};

/// Age above which a report is not part of a sum, in milliseconds: several report intervals.
const MAX_REPORT_AGE_MS: u64 = 10_000;

/// Size of the heaviest keys: half, the rest is for rollouts.
const TARGET_BYTES: usize = MAX_REPORT_BYTES / 2;

/// Report of an instance, stored as JSON. A release ignores fields that it does not have, and lacks those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Heaviest keys by domain; `None` if they are not sampled.
    #[serde(default)]
    top: Option<Vec<DomainCounts>>,
    #[serde(flatten)]
    rollouts: RolloutReport,
}

impl Report {
    /// The report of this instance. Takes up to a millisecond for each domain.
    pub(super) fn of_this_instance(is_sampling: bool, rollouts: RolloutReport) -> Self {
        Self { top: is_sampling.then(|| talkers::counts(TARGET_BYTES)), rollouts }
    }

    /// The report as JSON of at most [`MAX_REPORT_BYTES`]; without the lightest domains, and some of the rollouts, if they
    /// do not fit.
    pub(super) fn into_text(mut self) -> String {
        while let Some(top) = &mut self.top
            && json_bytes(top) > TARGET_BYTES
            && !top.is_empty()
        {
            top.truncate(top.len() / 2);
        }
        // A comma and the name.
        let rest = MAX_REPORT_BYTES - 16;
        self.rollouts.fit(rest.saturating_sub(json_bytes(&self.top)));
        // Maps with text keys and numbers always have a JSON form.
        serde_json::to_string(&self).unwrap_or_default()
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
    /// Rollouts of the instances with a recent report, by their id.
    rollouts: Vec<(String, RolloutReport)>,
}

impl FleetReports {
    pub(super) fn of_one(id: String, report: Report) -> Self {
        let mut reports = Self::default();
        reports.add(id, 0, report);
        reports
    }

    /// Reads the reports of several instances, at `store_ms` by the clock of the store. An unreadable one of another release
    /// counts as missing.
    pub(super) fn read(stored: Vec<InstanceReport>, store_ms: u64) -> Self {
        let mut reports = Self::default();
        for InstanceReport { instance: id, report } in stored {
            let read = report.and_then(|(at_ms, text)| Some((at_ms, serde_json::from_str(&text).ok()?)));
            match read {
                Some((at_ms, report)) => reports.add(id, store_ms.saturating_sub(at_ms), report),
                None => {
                    let status = ReportStatus::Missing;
                    reports.instances.push(InstanceStatus { id, status, age_ms: None });
                }
            }
        }
        reports
    }

    fn add(&mut self, id: String, age_ms: u64, report: Report) {
        if age_ms <= MAX_REPORT_AGE_MS {
            self.rollouts.push((id.clone(), report.rollouts));
        }
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

    /// Rollouts of the instances with a recent report, by their id.
    pub(super) fn rollouts(&self) -> &[(String, RolloutReport)] {
        &self.rollouts
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

    const NOW_MS: u64 = 1_000_000;

    fn report(age_ms: u64, text: &str) -> Option<(u64, String)> {
        Some((NOW_MS - age_ms, text.to_owned()))
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
        let reports = FleetReports::read(stored.into(), NOW_MS);
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
}
