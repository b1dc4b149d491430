//! Checks of candidates, beside those of their rules.

use tollgate_core::{
    algorithm::Charging,
    descriptor::{Descriptor, Entry, Hits},
};
use tollgate_rules::{Candidate, Domain, Rule};
use tollgate_store::{
    key::CellKey,
    request::{Check, Requests, push_check},
};

use super::shared_cell;
use crate::{Match, candidate_check::marked};

/// Adds the check of the candidate of a matched rule to the calls, if it has one, for the descriptor at `at`.
pub(in crate::requests) fn push_of(
    calls: &mut Requests,
    charged: (&Domain, Charging),
    matched: &Match<'_>,
    (at, descriptor): (usize, &Descriptor<'_>),
    hits: Hits,
) {
    if let Match::Rule { rule, depth, .. } = matched
        && let Some(candidate) = &rule.rollout.candidate
    {
        let entries = descriptor.entries.get(..*depth).unwrap_or_default();
        push(calls, charged, (rule, candidate), (at, entries), hits);
    }
}

/// Adds the check of a rule's candidate to the calls, for the descriptor at `at`. Not where requests are charged all or
/// none: what a candidate is charged would depend on the other limits.
fn push(
    calls: &mut Requests,
    (domain, charging): (&Domain, Charging),
    (rule, candidate): (&Rule, &Candidate),
    (at, entries): (usize, &[Entry<'_>]),
    hits: Hits,
) {
    if charging == Charging::AllOrNone {
        return;
    }
    let hits = match hits {
        // A read charges neither.
        Hits::Peek
        | Hits::Release(_)
        | Hits::Settle { .. }
        | Hits::Acquire { .. }
        | Hits::RefundCharge { .. } => return,
        Hits::Charge(amount) | Hits::Overdraw(amount) if candidate.overdraft => Hits::Overdraw(amount),
        Hits::Charge(amount) | Hits::Overdraw(amount) => Hits::Charge(amount),
        Hits::Refund(amount) => Hits::Refund(amount),
    };
    let check = Check { descriptor: marked(at), ..Check::own(candidate.record, candidate.policy, hits) };
    push_check(calls, charging, cell_of(domain, rule, candidate, entries), check);
}

/// The cell of the counter of a rule's candidate for these entries, which has the hash tag of the rule's.
fn cell_of(domain: &Domain, rule: &Rule, candidate: &Candidate, entries: &[Entry<'_>]) -> CellKey {
    let shared = shared_cell(domain, rule, entries);
    match candidate.policy.algorithm().has_own_key() {
        true => shared.dedicated(candidate.record),
        false => shared,
    }
}
