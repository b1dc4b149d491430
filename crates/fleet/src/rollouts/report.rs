//! Report of an instance about its rollouts: hits of enforced keys, and comparisons with the active candidates since each
//! was set.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tollgate_limiter::ActiveRules;
use tollgate_limiter::candidates::{DifferingKeys, differing_keys, forget_keys};
use tollgate_limiter::metrics::{SampledKey, candidate_totals, enforcement_totals};
use tollgate_rules::{candidate_text, limit_text};

/// Maximum number of rules in a report, of either kind.
const MAX_RULES: usize = 64;

/// Number of sampled keys of a rule that are never left out before whole rules are.
const MIN_SAMPLE: usize = 8;

/// Domain and path of a rule.
type RuleName = (Box<str>, Box<str>);

/// Texts of a limit and of its candidate.
type LimitTexts = (String, String);

/// Report of an instance, stored as JSON. A release ignores fields that it does not have, and lacks those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RolloutReport {
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
    const fn is_empty(&self) -> bool {
        self.enforcement.is_empty() && self.candidates.is_empty()
    }

    /// Leaves out keys, and then rules, until the report as JSON has at most this size, if it can.
    pub(crate) fn fit(&mut self, max_bytes: usize) {
        let mut keys = usize::MAX;
        while json_bytes(self) > max_bytes && !self.is_empty() {
            if keys > 0 || self.enforced_keys.iter().any(|(_, _, keys)| keys.len() > MIN_SAMPLE) {
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

/// Size of a value as JSON.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

/// Begin of each comparison, and the hits before it.
#[derive(Debug, Default)]
pub(crate) struct Comparisons(HashMap<RuleName, Begun>);

#[derive(Debug)]
struct Begun {
    /// Texts of the limits: with others, the comparison begins anew.
    texts: LimitTexts,
    since_ms: u64,
    before: [u64; 4],
}

impl Comparisons {
    /// The report of this instance at `now_ms`. Reads all rules.
    pub(crate) fn report(&mut self, rules: &ActiveRules, now_ms: u64) -> RolloutReport {
        let mut totals = enforcement_totals();
        // First those of operators, among them ramps, which are judged by them.
        let lists = rules.lists();
        totals.sort_by_key(|(domain, rule, _)| lists.share_of(domain, rule).is_none());
        totals.truncate(MAX_RULES);
        let (mut enforcement, mut enforced_keys) = (Vec::new(), Vec::new());
        for (domain, rule, total) in totals {
            let (domain, rule) = (domain.into_string(), rule.into_string());
            if lists.share_of(&domain, &rule).is_some() {
                enforced_keys.push((domain.clone(), rule.clone(), total.keys));
            }
            let counts = [total.enforced, total.denied, total.shadow, total.shadow_over];
            enforcement.push((domain, rule, counts));
        }
        RolloutReport { enforcement, candidates: self.candidates(rules, now_ms), enforced_keys }
    }

    fn candidates(&mut self, rules: &ActiveRules, now_ms: u64) -> Vec<CandidateReport> {
        let active = rules.active();
        let Some(active) = active.get() else { return Vec::new() };
        let found = active.rules.rules_of_domains().filter_map(|(domain, rule)| {
            let overridden = active.overridden.whole(rule, now_ms).map(|(_, overridden)| overridden);
            let rule = overridden.unwrap_or(rule);
            let candidate = rule.rollout.candidate.as_ref()?;
            let name: RuleName = ((*domain.name).into(), rule.path().into());
            Some((name, (limit_text(domain, rule), candidate_text(candidate))))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        found.truncate(MAX_RULES);
        // Comparisons that ended are forgotten.
        self.0.retain(|name, _| {
            let is_active = found.iter().any(|(active, _)| active == name);
            if !is_active {
                forget_keys(name);
            }
            is_active
        });
        if found.is_empty() {
            return Vec::new();
        }
        let totals: HashMap<RuleName, [u64; 4]> =
            candidate_totals().into_iter().map(|(domain, rule, counts)| ((domain, rule), counts)).collect();
        for (name, texts) in &found {
            let counts = totals.get(name).copied().unwrap_or_default();
            let begun = self.0.get(name).is_some_and(|begun| begun.texts == *texts);
            if !begun {
                forget_keys(name);
                let begun = Begun { texts: texts.clone(), since_ms: now_ms, before: counts };
                self.0.insert(name.clone(), begun);
            }
        }
        let keys = differing_keys();
        let report = |named: (RuleName, LimitTexts)| {
            let (name, (limit, candidate)) = named;
            let begun = self.0.get(&name)?;
            let mut hits = totals.get(&name).copied().unwrap_or_default();
            hits.iter_mut().zip(begun.before).for_each(|(hits, before)| *hits = hits.saturating_sub(before));
            let keys = keys.get(&name).cloned().unwrap_or_default();
            let (domain, rule) = (name.0.into_string(), name.1.into_string());
            Some(CandidateReport { domain, rule, limit, candidate, since_ms: begun.since_ms, hits, keys })
        };
        found.into_iter().filter_map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_control::MAX_REPORT_BYTES;

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
        let mut report = RolloutReport { enforcement, candidates, enforced_keys };
        report.fit(MAX_REPORT_BYTES / 2);
        assert!(json_bytes(&report) <= MAX_REPORT_BYTES / 2);
        assert_eq!((report.candidates.len(), report.enforcement.len()), (64, 100), "only keys are left out");
    }
}
