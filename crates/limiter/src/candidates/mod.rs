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
use tollgate_core::descriptor::Entry;
use tollgate_rules::{Domain, Rule};
use tollgate_store::request::Check;

pub use crate::metrics::Outcome;
use crate::metrics::RuleCounters;
use crate::talkers::{self, Memory, Summary};

/// Bit of the index of a check's limit that marks the check of a candidate: no request has this number of limits.
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

/// The mark of the check of a candidate, in the place of the index of its rule's limit, which is at `at`.
pub(super) const fn marked(at: usize) -> usize {
    at | MARK
}

/// Whether a check is of a candidate, and so of no limit's own counter.
pub(super) const fn is_candidate(check: &Check) -> bool {
    check.descriptor & MARK != 0
}

/// Counts decisions of a rule and its candidate on the same hits, and records a key that they decided differently.
pub(super) fn compare(
    counters: &RuleCounters,
    domain: &Domain,
    rule: &Rule,
    entries: &[Entry<'_>],
    outcome: Outcome,
    hits: u64,
) {
    if hits == 0 {
        return;
    }
    counters.rollouts.compared(domain, rule, outcome, hits);
    let differing = match outcome {
        Outcome::RuleOnly => 0,
        Outcome::CandidateOnly => 1,
        Outcome::Admitted | Outcome::Denied => return,
    };
    let name = ((*domain.name).into(), rule.path().into());
    let mut keys = KEYS.lock();
    if keys.len() >= MAX_RULES && !keys.contains_key(&name) {
        return;
    }
    if let Some(summary) = keys.entry(name).or_default().get_mut(differing) {
        summary.add(&talkers::text(entries), hits, Memory::Short);
    }
}

fn heaviest(summary: &Summary) -> Vec<(String, u64)> {
    let mut keys: Vec<_> = summary.iter().map(|(key, known)| (key.to_owned(), known.weight)).collect();
    keys.sort_unstable_by(|(a, weight_of_a), (b, weight_of_b)| (weight_of_b, a).cmp(&(weight_of_a, b)));
    keys.truncate(MAX_REPORTED);
    keys
}
