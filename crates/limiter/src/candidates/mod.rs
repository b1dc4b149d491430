//! Candidates beside rules: limits that are charged by the same requests, in counters of their own, and compared.
//!
//! A candidate is one check more in the call of its rule: its counter has the hash tag of the rule's, so that both are decided
//! in one step. It denies nothing, bans no client, and has no part in the answer. What the store does not decide is not
//! compared.

mod keys;

use tollgate_core::{
    SyncMode,
    algorithm::Charging,
    descriptor::{Descriptor, Entry, Hits},
};
use tollgate_rules::{Candidate, Domain, Rule};
use tollgate_store::{
    Decisions,
    request::{Check, Requests, Veto, push_check},
};

pub use self::keys::{DifferingKeys, KeysByOutcome, differing_keys, forget_keys};
use crate::{
    Match,
    metrics::RuleCounters,
    requests::cell_of_candidate,
    verdict::{Limited, Status},
};

/// Bit of a check's descriptor that marks the check of a candidate: no request has so many descriptors.
const MARK: usize = 1 << (usize::BITS - 1);

/// Decision of a rule and its candidate on the same hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both admit.
    Admitted,
    /// Only the rule denies.
    RuleOnly,
    /// Only the candidate denies.
    CandidateOnly,
    /// Both deny.
    Denied,
}

impl Outcome {
    /// Every outcome, in the order of counts.
    pub const ALL: [Self; 4] = [Self::Admitted, Self::RuleOnly, Self::CandidateOnly, Self::Denied];

    /// Name in the API and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::RuleOnly => "rule_only",
            Self::CandidateOnly => "candidate_only",
            Self::Denied => "denied",
        }
    }

    const fn of(rule_admits: bool, candidate_admits: bool) -> Self {
        match (rule_admits, candidate_admits) {
            (true, true) => Self::Admitted,
            (false, true) => Self::RuleOnly,
            (true, false) => Self::CandidateOnly,
            (false, false) => Self::Denied,
        }
    }
}

/// Whether a check is of a candidate, and so of no descriptor's own counter.
pub(super) const fn is_candidate(check: &Check) -> bool {
    check.descriptor & MARK != 0
}

/// Adds the check of a rule's candidate to the calls, for the descriptor at `at`. Not where requests are charged all or
/// none: what a candidate is charged would depend on the other limits.
pub(super) fn push(
    calls: &mut Requests,
    domain: &Domain,
    (rule, candidate): (&Rule, &Candidate),
    (at, entries): (usize, &[Entry<'_>]),
    hits: Hits,
) {
    if domain.charging == Charging::AllOrNone {
        return;
    }
    let hits = match hits {
        // A read charges neither.
        Hits::Peek | Hits::Release(_) | Hits::Acquire { .. } | Hits::RefundCharge { .. } => return,
        Hits::Charge(amount) | Hits::Overdraw(amount) if candidate.overdraft => Hits::Overdraw(amount),
        Hits::Charge(amount) | Hits::Overdraw(amount) => Hits::Charge(amount),
        Hits::Refund(amount) => Hits::Refund(amount),
    };
    let check = Check {
        descriptor: at | MARK,
        record: candidate.record,
        policy: candidate.policy,
        hits,
        veto: Veto::Never,
        sync: SyncMode::Strict,
        ban: None,
    };
    push_check(calls, domain.charging, cell_of_candidate(domain, rule, candidate, entries), check);
}

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
    for (marked, verdict) in verdicts.filter(|(descriptor, _)| descriptor & MARK != 0) {
        let at = marked & !MARK;
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
