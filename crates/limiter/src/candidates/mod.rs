//! Candidates beside rules: limits that are charged by the same requests, in counters of their own, and compared.
//!
//! A candidate is one check more in the call of its rule: its counter has the hash tag of the rule's, so that both are decided
//! in one step. It denies nothing, bans no client, and has no part in the answer. What the store does not decide is not
//! compared.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tollgate_core::descriptor::{Descriptor, Entry};
use tollgate_rules::{Domain, Rule};
use tollgate_store::{Decisions, request::Check};

pub use crate::metrics::Outcome;
use crate::{
    Match,
    decision::{Limited, Status},
    metrics::RuleCounters,
    talkers::{
        key,
        sketches::{Memory, Summary},
    },
};

/// Bit of a check's descriptor that marks the check of a candidate: no request has this number of descriptors.
const MARK: usize = 1 << (usize::BITS - 1);

/// Maximum number of rules with keys of their own; those beyond have none until others are forgotten.
const MAX_RULES: usize = 64;

/// Maximum number of keys of one rule that are reported, for each outcome.
const MAX_REPORTED: usize = 10;

/// Domain and path of a rule.
type RuleName = (Box<str>, Box<str>);

/// The summaries of rules and candidates that differ. Differences are rare, or the candidate is no candidate.
static KEYS: Mutex<BTreeMap<RuleName, [Summary; 2]>> = Mutex::new(BTreeMap::new());

/// Heaviest keys that only one of both limits denied, each with an estimate of its hits that is never too low, heaviest
/// first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingKeys {
    /// Denied by the rule only.
    pub rule_only: Vec<(String, u64)>,
    /// Denied by the candidate only.
    pub candidate_only: Vec<(String, u64)>,
}

/// Keys of each rule, by domain and path.
pub type KeysByOutcome = BTreeMap<(Box<str>, Box<str>), DifferingKeys>;

impl DifferingKeys {
    /// Keeps the heaviest keys only, at most `limit` for each outcome.
    pub fn truncate(&mut self, limit: usize) {
        self.rule_only.truncate(limit);
        self.candidate_only.truncate(limit);
    }
}

/// Forgets the keys of a rule, whose comparison ends or begins anew.
pub fn forget_keys(name: &(Box<str>, Box<str>)) {
    KEYS.lock().remove(name);
}

/// The heaviest keys that rules and their candidates decided differently since they were last forgotten.
pub fn differing_keys() -> KeysByOutcome {
    let keys = KEYS.lock();
    let differing = |[rule_only, candidate_only]: &[Summary; 2]| DifferingKeys {
        rule_only: heaviest(rule_only),
        candidate_only: heaviest(candidate_only),
    };
    keys.iter().map(|(name, summaries)| (name.clone(), differing(summaries))).collect()
}

/// The mark of the candidate's check for the descriptor at `at`.
pub(super) const fn marked(at: usize) -> usize {
    at | MARK
}

/// The descriptor whose rule is compared, if the check's descriptor is marked.
pub(super) const fn compared(descriptor: usize) -> Option<usize> {
    match descriptor & MARK {
        0 => None,
        _ => Some(descriptor & !MARK),
    }
}

/// Whether a check is of a candidate, and so of no descriptor's own counter.
pub(super) const fn is_candidate(check: &Check) -> bool {
    compared(check.descriptor).is_some()
}

/// Compares the verdicts of candidates with those of their rules.
pub(super) fn compare(
    counters: &RuleCounters,
    domain: &Domain,
    descriptors: &[Descriptor<'_>],
    matches: &[Match<'_>],
    statuses: &[Status<'_>],
    decisions: &Decisions,
) {
    // Usually there are none.
    let verdicts = decisions.iter().filter_map(|decision| decision.as_ref().ok()).flatten();
    let compared = verdicts.filter_map(|(descriptor, verdict)| Some((compared(*descriptor)?, verdict)));
    for (at, verdict) in compared {
        let (Some(Match::Rule { rule, counter, depth, .. }), Some(descriptor)) =
            (matches.get(at), descriptors.get(at))
        else {
            continue;
        };
        let Some(Status::Limited(Limited { verdict: of_rule, .. })) = statuses.get(at) else { continue };
        let hits = counter.hits.charged();
        if hits == 0 {
            continue;
        }
        let outcome = Outcome::of(of_rule.admitted, verdict.admitted);
        counters.rollouts.compared(domain, rule, outcome, hits);
        if matches!(outcome, Outcome::RuleOnly | Outcome::CandidateOnly) {
            let entries = descriptor.entries.get(..*depth).unwrap_or_default();
            record_key(domain, rule, entries, outcome, hits);
        }
    }
}

/// Records a key that the rule and its candidate decided differently.
fn record_key(domain: &Domain, rule: &Rule, entries: &[Entry<'_>], outcome: Outcome, hits: u64) {
    let mut text = Vec::new();
    key::push(&mut text, 0, entries);
    let Ok(text) = str::from_utf8(&text) else { return };
    let name = ((*domain.name).into(), rule.path().into());
    let mut keys = KEYS.lock();
    if keys.len() >= MAX_RULES && !keys.contains_key(&name) {
        return;
    }
    let [rule_only, candidate_only] = keys.entry(name).or_default();
    let summary = if outcome == Outcome::RuleOnly { rule_only } else { candidate_only };
    summary.add(text, hits, Memory::Short);
}

fn heaviest(summary: &Summary) -> Vec<(String, u64)> {
    let mut keys: Vec<_> = summary.iter().map(|(key, known)| (key.to_owned(), known.weight)).collect();
    keys.sort_unstable_by(|(a, weight_of_a), (b, weight_of_b)| (weight_of_b, a).cmp(&(weight_of_a, b)));
    keys.truncate(MAX_REPORTED);
    keys
}
