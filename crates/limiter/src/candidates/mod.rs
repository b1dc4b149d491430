//! Candidates beside rules: limits that are charged by the same requests, in counters of their own, and compared.
//!
//! A candidate is one check more in the call of its rule: its counter has the hash tag of the rule's, so that both are decided
//! in one step. It denies nothing, bans no client, and has no part in the answer. What the store does not decide is not
//! compared.

mod keys;

use tollgate_core::descriptor::Descriptor;
use tollgate_rules::Domain;
use tollgate_store::Decisions;

pub use self::keys::{DifferingKeys, KeysByOutcome, differing_keys, forget_keys};
pub use crate::candidate_check::Outcome;
use crate::{
    Match,
    candidate_check::compared,
    metrics::RuleCounters,
    verdict::{Limited, Status},
};

/// Compares the verdicts of candidates with those of their rules.
pub(super) fn compare(
    counters: &RuleCounters,
    domain: &Domain,
    descriptors: &[Descriptor<'_>],
    (matches, statuses): (&[Match<'_>], &[Status<'_>]),
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
        counters.compared(domain, rule, outcome, hits);
        if matches!(outcome, Outcome::RuleOnly | Outcome::CandidateOnly) {
            let entries = descriptor.entries.get(..*depth).unwrap_or_default();
            keys::record(domain, rule, entries, outcome, hits);
        }
    }
}

#[cfg(test)]
mod tests;
