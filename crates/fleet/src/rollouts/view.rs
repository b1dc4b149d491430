//! Comparisons of all instances, for the API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_limiter::candidates::Outcome;

use super::report::{CandidateReport, RolloutReport};

/// Maximum number of keys that are shown, for each outcome.
const MAX_KEYS: usize = 10;

/// Comparison of a rule with its candidate, summed over the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateView {
    pub domain: String,
    pub rule: String,
    pub limit: String,
    pub candidate: String,
    /// Begin of the comparison on the instance that has compared longest, in milliseconds since 1970.
    pub since_ms: u64,
    pub hits: OutcomeHits,
    pub keys: KeysView,
    pub instances: Vec<InstanceView>,
}

/// Hits by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeHits {
    pub admitted: u64,
    pub rule_only: u64,
    pub candidate_only: u64,
    pub denied: u64,
}

/// Keys with the most hits that only one of both denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysView {
    pub rule_only: Vec<KeyView>,
    pub candidate_only: Vec<KeyView>,
}

/// A key and its hits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    pub key: String,
    pub hits: u64,
}

/// Hits of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceView {
    pub id: String,
    pub hits: OutcomeHits,
}

impl OutcomeHits {
    fn of(hits: [u64; 4]) -> Self {
        let of = |outcome: Outcome| hits.get(outcome as usize).copied().unwrap_or_default();
        Self {
            admitted: of(Outcome::Admitted),
            rule_only: of(Outcome::RuleOnly),
            candidate_only: of(Outcome::CandidateOnly),
            denied: of(Outcome::Denied),
        }
    }
}

/// Comparisons of instances, by the texts of both limits.
type ByLimits<'r> = BTreeMap<(&'r str, &'r str), Vec<(&'r str, &'r CandidateReport)>>;

/// Sums up the comparisons of the same limits; of several pairs of limits of a rule, while a change spreads, the one that
/// most instances compare.
pub(crate) fn merged(reports: &[(String, RolloutReport)]) -> Vec<CandidateView> {
    let mut by_rule: BTreeMap<(&str, &str), ByLimits<'_>> = BTreeMap::new();
    for (instance, report) in reports {
        for compared in &report.candidates {
            let limits = by_rule.entry((&compared.domain, &compared.rule)).or_default();
            let of_limits = limits.entry((&compared.limit, &compared.candidate)).or_default();
            of_limits.push((instance, compared));
        }
    }
    let most =
        by_rule.into_values().filter_map(|limits| limits.into_values().max_by_key(|compared| compared.len()));
    most.filter_map(|compared| sum(&compared)).collect()
}

fn sum(compared: &[(&str, &CandidateReport)]) -> Option<CandidateView> {
    let (_, first) = compared.first()?;
    let instances: Vec<InstanceView> = compared
        .iter()
        .map(|(id, report)| InstanceView { id: (*id).to_owned(), hits: OutcomeHits::of(report.hits) })
        .collect();
    let mut hits = [0_u64; 4];
    for (_, report) in compared {
        hits.iter_mut().zip(report.hits).for_each(|(sum, hits)| *sum = sum.saturating_add(hits));
    }
    let keys = |of: fn(&CandidateReport) -> &[(String, u64)]| {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (key, hits) in compared.iter().flat_map(|(_, report)| of(report)) {
            let sum = sums.entry(key).or_default();
            *sum = sum.saturating_add(*hits);
        }
        let mut keys: Vec<_> =
            sums.into_iter().map(|(key, hits)| KeyView { key: key.to_owned(), hits }).collect();
        keys.sort_by(|a, b| (b.hits, &a.key).cmp(&(a.hits, &b.key)));
        keys.truncate(MAX_KEYS);
        keys
    };
    Some(CandidateView {
        domain: first.domain.clone(),
        rule: first.rule.clone(),
        limit: first.limit.clone(),
        candidate: first.candidate.clone(),
        since_ms: compared.iter().map(|(_, report)| report.since_ms).min()?,
        hits: OutcomeHits::of(hits),
        keys: KeysView {
            rule_only: keys(|report| &report.keys.rule_only),
            candidate_only: keys(|report| &report.keys.candidate_only),
        },
        instances,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limiter::candidates::DifferingKeys;

    fn report(candidate: &str, hits: [u64; 4], keys: &[(&str, u64)]) -> RolloutReport {
        let keys = keys.iter().map(|(key, hits)| ((*key).to_owned(), *hits)).collect();
        let compared = CandidateReport {
            domain: "edge".to_owned(),
            rule: "api_key".to_owned(),
            limit: "10 per second".to_owned(),
            candidate: candidate.to_owned(),
            since_ms: hits[0],
            hits,
            keys: DifferingKeys { rule_only: Vec::new(), candidate_only: keys },
        };
        RolloutReport { candidates: vec![compared], ..RolloutReport::default() }
    }

    #[test]
    fn comparisons_of_the_same_limits_are_summed_and_keys_are_ranked() {
        let reports = vec![
            ("a".to_owned(), report("5", [7, 0, 2, 1], &[("k=x", 2)])),
            ("b".to_owned(), report("5", [9, 1, 4, 0], &[("k=y", 3), ("k=x", 2)])),
            ("c".to_owned(), report("6", [1_000, 0, 0, 0], &[])),
        ];
        let views = merged(&reports);
        assert_eq!(views.len(), 1);
        let view = &views[0];
        assert_eq!(view.hits, OutcomeHits { admitted: 16, rule_only: 1, candidate_only: 6, denied: 1 });
        assert_eq!((view.since_ms, view.instances.len(), &*view.candidate), (7, 2, "5"));
        let keys: Vec<_> = view.keys.candidate_only.iter().map(|key| (&*key.key, key.hits)).collect();
        assert_eq!(keys, [("k=x", 4), ("k=y", 3)]);
    }
}
