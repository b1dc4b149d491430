//! Keys that a rule and its candidate decide differently, in bounded memory.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tollgate_core::descriptor::Entry;
use tollgate_rules::{Domain, Rule};

use super::Outcome;
use crate::talkers::{
    key,
    space_saving::{Memory, Summary},
};

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

/// Records a key that the rule and its candidate decided differently.
pub(super) fn record(domain: &Domain, rule: &Rule, entries: &[Entry<'_>], outcome: Outcome, hits: u64) {
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

fn heaviest(summary: &Summary) -> Vec<(String, u64)> {
    let mut keys: Vec<_> = summary.iter().map(|(key, known)| (key.to_owned(), known.weight)).collect();
    keys.sort_unstable_by(|(a, weight_of_a), (b, weight_of_b)| (weight_of_b, a).cmp(&(weight_of_a, b)));
    keys.truncate(MAX_REPORTED);
    keys
}
