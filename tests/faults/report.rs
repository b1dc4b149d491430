//! A row of the report: a fault, the requirements, the measurements.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use super::{
    harness::Times,
    profile::Profile,
    samples::{Samples, millis},
};

#[derive(Clone, Debug)]
struct Check {
    required: String,
    measured: String,
    is_met: bool,
}

/// Findings of one scenario.
#[derive(Clone, Debug)]
pub(super) struct ReportRow {
    fault: String,
    profile: Profile,
    checks: Vec<Check>,
    notes: Vec<String>,
}

impl ReportRow {
    pub(super) fn new(fault: impl Display, profile: &Profile) -> Self {
        Self { fault: fault.to_string(), profile: *profile, checks: Vec::new(), notes: Vec::new() }
    }

    /// A requirement on any machine.
    pub(super) fn must(&mut self, required: &str, measured: impl Display, is_met: bool) {
        self.checks.push(Check { required: required.into(), measured: measured.to_string(), is_met });
    }

    /// A requirement that depends on time, and is not checked on a shared machine.
    pub(super) fn timed(&mut self, required: &str, measured: impl Display, is_met: bool) {
        self.must(required, measured, is_met || !self.profile.is_timed());
    }

    /// An additional measurement.
    pub(super) fn note(&mut self, text: impl Display) {
        self.notes.push(text.to_string());
    }

    /// No request has an error, nor comes too late.
    pub(super) fn no_errors(&mut self, samples: &Samples) {
        let errors = samples.errors();
        let measured =
            format!("{} of {} {}", errors.values().sum::<usize>(), samples.len(), error_counts(&errors));
        self.must("errors 0", measured.trim(), errors.is_empty() && samples.len() > 0);
    }

    /// Everything is as before the fault, soon after it was healed.
    pub(super) fn normal_within(&mut self, samples: &Samples, times: Times, limit: Duration, since: &str) {
        let before = samples.between(Duration::ZERO, times.fault);
        let normal = samples.normal_after(times.healed, &before, self.profile.normal_p99);
        let measured = normal.map_or("never".to_owned(), |after| format!("after {}", millis(after)));
        let required = format!("normal < {} s after {since}", limit.as_secs());
        self.timed(&required, measured, normal.is_some_and(|after| after < limit));
        if !self.profile.is_timed() {
            return;
        }
        let odd = before.count(|sample| !sample.is_normal());
        self.note(format!("before: p99 {}, {odd} of {} not by Redis", millis(before.p99()), before.len()));
    }

    pub(super) fn is_met(&self) -> bool {
        self.checks.iter().all(|check| check.is_met)
    }

    /// Fails the test if it is not met.
    pub(super) fn judge(&self) {
        println!("{self}");
        assert!(self.is_met(), "{self}");
    }
}

fn error_counts(errors: &std::collections::BTreeMap<String, usize>) -> String {
    if errors.is_empty() { String::new() } else { format!("{errors:?}") }
}

/// As a row of a table in Markdown.
impl Display for ReportRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |part: fn(&Check) -> &str| self.checks.iter().map(part).collect::<Vec<_>>().join("; ");
        let missed = self.checks.iter().filter(|check| !check.is_met).map(|check| &*check.required);
        let missed: Vec<_> = missed.collect();
        let verdict =
            if missed.is_empty() { "met".to_owned() } else { format!("**missed**: {}", missed.join("; ")) };
        let mut measured = joined(|check| &check.measured);
        if !self.notes.is_empty() {
            measured = format!("{measured} ({})", self.notes.join("; "));
        }
        write!(f, "| {} | {} | {measured} | {verdict} |", self.fault, joined(|check| &check.required))
    }
}
