//! The report: totals of all threads.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{LoadError, Run, admissions::AdmissionSummary, settings::LoadSettings, tally::Tally};

/// Reported quantiles of the latency, by name.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Settings of a run and its results.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) settings: LoadSettings,
    /// Length of the measurement.
    pub(super) measured: Duration,
    /// Measurements of all threads.
    pub(super) tally: Tally,
    /// Hits admitted to the keys.
    pub(super) keys: AdmissionSummary,
}

impl Report {
    pub(super) fn new(run: &Run, measured: Duration) -> Result<Self, LoadError> {
        let mut tally = Tally::new()?;
        for thread in &run.tallies {
            tally.add(&thread.lock());
        }
        let settings = run.settings.clone();
        let keys = run.admissions.summary();
        Ok(Self { settings, measured, tally, keys })
    }

    /// Verdicts per second.
    #[allow(clippy::float_arithmetic)] // For display only.
    pub(super) fn rate(&self) -> f64 {
        if self.measured.is_zero() {
            return 0.0;
        }
        (self.tally.answered() as f64 / self.measured.as_secs_f64() * 10.0).round() / 10.0
    }

    /// Quantiles of the latency and its maximum, in microseconds.
    pub(super) fn latencies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let latencies = &self.tally.latencies;
        let quantiles = QUANTILES.map(|(name, quantile)| (name, latencies.value_at_quantile(quantile)));
        quantiles.into_iter().chain([("max", latencies.max())])
    }

    /// The report as a JSON object.
    pub(super) fn json(&self) -> Value {
        let errors: Map<String, Value> =
            self.tally.errors.iter().map(|(code, (count, _))| (code.clone(), json!(count))).collect();
        let latencies: Map<String, Value> =
            self.latencies().map(|(name, micros)| (name.to_owned(), json!(micros))).collect();
        let keys = &self.keys;
        let mut admitted =
            json!({"total": keys.total, "least": keys.least, "most": keys.most, "most_key": keys.key});
        if let (Some(limit), Some(admitted)) = (self.settings.admitted_limit, admitted.as_object_mut()) {
            admitted.extend([
                ("limit".to_owned(), json!(limit)),
                ("keys_beyond".to_owned(), json!(keys.keys_beyond)),
                ("beyond".to_owned(), json!(keys.beyond)),
                ("denied_within".to_owned(), json!(keys.denied_within)),
                ("denied_early".to_owned(), json!(keys.denied_early)),
            ]);
        }
        json!({
            "seconds": self.measured.as_secs_f64(),
            "requests": self.tally.answered().saturating_add(self.tally.failed()),
            "rate": self.rate(),
            "ok": self.tally.ok,
            "over_limit": self.tally.over_limit,
            "errors": errors,
            "unsent": self.tally.unsent,
            "latency_us": latencies,
            "keys": {"count": self.settings.keys, "seen": keys.seen, "admitted": admitted},
        })
    }

    /// Reasons for exit code 1.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        let unanswered = (self.tally.answered() == 0).then(|| {
            let first = self.tally.errors.iter().next();
            let first = first.map(|(code, (_, message))| format!(": {code}: {message}"));
            format!("no request was answered{}", first.unwrap_or_default())
        });
        let keys = &self.keys;
        let beyond = self.settings.admitted_limit.filter(|_| keys.keys_beyond > 0).map(|limit| {
            format!(
                "{} keys were admitted more than {limit} hits, {} hits too many in all; the most, {}, key {}",
                keys.keys_beyond, keys.beyond, keys.most, keys.key
            )
        });
        unanswered.into_iter().chain(beyond)
    }
}
