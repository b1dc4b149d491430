//! Report of an instance about its rollouts.

use serde::{Deserialize, Serialize};
use tollgate_control::MAX_REPORT_BYTES;
use tollgate_limiter::{candidates::DifferingKeys, metrics::SampledKey};

/// Report of an instance, stored as JSON. A release ignores fields that it does not have, and lacks those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RolloutReport {
    /// Domain, rule, and hits since the start: of enforced keys, those denied, of other keys, those over the limit.
    #[serde(default)]
    pub(super) enforcement: Vec<(String, String, [u64; 4])>,
    /// Domain, rule, and sampled keys, of the rules whose share a switch sets.
    #[serde(default)]
    pub(super) enforced_keys: Vec<(String, String, Vec<SampledKey>)>,
    /// Comparisons with candidates.
    #[serde(default)]
    pub(super) candidates: Vec<CandidateReport>,
}

/// Comparison of one rule with its candidate on one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CandidateReport {
    pub(super) domain: String,
    pub(super) rule: String,
    /// The texts of both limits.
    pub(super) limit: String,
    pub(super) candidate: String,
    /// Begin of the comparison, in milliseconds since 1970.
    pub(super) since_ms: u64,
    /// Hits by outcome.
    pub(super) hits: [u64; 4],
    #[serde(default)]
    pub(super) keys: DifferingKeys,
}

impl RolloutReport {
    pub(super) const fn is_empty(&self) -> bool {
        self.enforcement.is_empty() && self.candidates.is_empty()
    }

    /// The report as JSON of at most [`MAX_REPORT_BYTES`], with fewer keys and fewer rules if they do not fit.
    pub(super) fn into_text(mut self) -> String {
        let mut keys = usize::MAX;
        loop {
            // Maps with text keys and numbers always have a JSON form.
            let text = serde_json::to_string(&self).unwrap_or_default();
            if text.len() <= MAX_REPORT_BYTES || self.is_empty() {
                return text;
            }
            if keys > 0 {
                keys = keys.min(10) / 2;
                for candidate in &mut self.candidates {
                    candidate.keys.truncate(keys);
                }
                // Those with the lowest hashes, which are a sample as well.
                for (_, _, keys) in &mut self.enforced_keys {
                    keys.truncate(keys.len() / 2);
                }
            } else {
                self.candidates.truncate(self.candidates.len() / 2);
                self.enforcement.truncate(self.enforcement.len() / 2);
                self.enforced_keys.truncate(self.enforced_keys.len() / 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_many_long_keys_fits() {
        let keys = |name: &str| (0..10).map(|at| (format!("{name}{at}{}", "x".repeat(250)), at)).collect();
        let candidate = |at: u32| CandidateReport {
            domain: "edge".to_owned(),
            rule: format!("rule{at}"),
            limit: "1 per second".to_owned(),
            candidate: "2 per second".to_owned(),
            since_ms: 1,
            hits: [1; 4],
            keys: DifferingKeys { rule_only: keys("a"), candidate_only: keys("b") },
        };
        let candidates = (0..64).map(candidate).collect();
        let enforcement = (0..100).map(|at| ("edge".to_owned(), format!("rule{at}"), [1; 4])).collect();
        let key = |key| SampledKey { key, seen_s: 1, denied_s: Some(1) };
        let sample = |at: u32| ("edge".to_owned(), format!("rule{at}"), (0..256).map(key).collect());
        let enforced_keys = (0..64).map(sample).collect();
        let report = RolloutReport { enforcement, candidates, enforced_keys };
        let text = report.into_text();
        assert!(text.len() <= MAX_REPORT_BYTES);
        let read: RolloutReport = serde_json::from_str(&text).expect("a report");
        assert_eq!((read.candidates.len(), read.enforcement.len()), (64, 100), "only keys are left out");
    }
}
