//! From matched descriptors to what is asked of the store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Modes, Target, Targets};
use tollgate_core::{
    RecordId, SyncMode,
    algorithm::{Algorithm, Policy},
    descriptor::{Descriptor, Entry, Hits},
    lease::LeaseId,
    quota::Quota,
};
use tollgate_rules::{Domain, Limit, Rule};
use tollgate_store::{
    key::CellKey,
    request::{Check, Requests, push_check},
};

/// What `descriptors` ask of their counters: one call for each hash tag. Places are taken under `lease`.
pub(super) fn calls(
    domain: &Domain,
    descriptors: &[Descriptor<'_>],
    targets: &Targets<'_>,
    lease: Option<LeaseId>,
    modes: Modes,
) -> Requests {
    let mut calls = Requests::new();
    for (at, (descriptor, target)) in descriptors.iter().zip(targets).enumerate() {
        let (key, record, policy, hits, rule) = match target {
            Target::Nothing | Target::Unlimited(_) | Target::Off { .. } | Target::Denied => continue,
            Target::Rule { rule, policy, hits, depth, is_watched, .. } => {
                let entries = descriptor.entries.get(..*depth).unwrap_or_default();
                (cell_of(domain, rule, entries), rule.record_id(), *policy, *hits, Some((*rule, *is_watched)))
            }
            Target::Brought { rule, quota, policy, hits } => {
                let (key, record) = cell_of_brought(domain, *rule, &descriptor.entries, *quota, policy);
                (key, record, *policy, *hits, None)
            }
        };
        let hits = under_lease(hits, &policy, lease);
        // A quota denies together with others, a watched limit never.
        let is_enforced = !modes.shadow && !modes.quota;
        let vetoes = is_enforced && rule.is_none_or(|(rule, is_watched)| !is_watched && !rule.quota_mode);
        // What a request brings along is its own matter, not the rule's.
        let sync = rule.map_or(SyncMode::Strict, |(rule, _)| domain.sync_of(rule));
        push_check(
            &mut calls,
            domain.charging,
            key,
            Check { descriptor: at, record, policy, hits, vetoes, sync },
        );
    }
    calls
}

/// A charge of a concurrency limit is one under the lease.
fn under_lease(hits: Hits, policy: &Policy, lease: Option<LeaseId>) -> Hits {
    match (hits, lease) {
        (Hits::Charge(amount), Some(lease)) if policy.algorithm().holds_permits() => {
            Hits::Acquire { amount, lease }
        }
        (hits, _) => hits,
    }
}

/// The cell of the rule's counter for these entries.
pub fn cell_of(domain: &Domain, rule: &Rule, entries: &[Entry<'_>]) -> CellKey {
    let shared = shared_cell(domain, rule, entries);
    match rule.algorithm().is_some_and(Algorithm::has_own_key) {
        true => shared.dedicated(rule.record_id()),
        false => shared,
    }
}

/// The cell of all counters that have the rule's open values of these entries.
fn shared_cell(domain: &Domain, rule: &Rule, entries: &[Entry<'_>]) -> CellKey {
    let tag = tag_of(domain, rule);
    let mut open = rule.open(entries).peekable();
    if tag.is_empty() {
        return match open.peek() {
            None => CellKey::global(&domain.name, rule.record_id()),
            Some(_) => CellKey::open(&domain.name, open.map(|(_, entry)| entry)),
        };
    }
    let mut beyond = open.filter(|(at, _)| !tag.contains(at)).map(|(_, entry)| entry).peekable();
    let cell = CellKey::open(&domain.name, tag.iter().filter_map(|at| entries.get(*at).copied()));
    match beyond.peek() {
        None => cell,
        Some(_) => cell.with_entries(beyond),
    }
}

/// The positions of the entries that the domain makes its hash tags of, in its order: a matter of the rule alone, so
/// that the same values in other places have other names.
fn tag_of(domain: &Domain, rule: &Rule) -> SmallVec<[usize; 4]> {
    let position = |key: &str| rule.segments.iter().position(|segment| segment.distinguishes(key));
    domain.hash_tag.iter().filter_map(|key| position(key)).collect()
}

/// The counter of a limit that the descriptor brought along.
///
/// As in the reference it is the rule's own counter where the window is the same, so that the usage is shared;
/// with another window it is one beside it. Where no rule matches, or one whose counter is shared by many
/// values, it belongs to the values of the descriptor. Places are always the rule's own: what gives them back need
/// not bring the limit along.
fn cell_of_brought(
    domain: &Domain,
    rule: Option<&Arc<Rule>>,
    entries: &[Entry<'_>],
    quota: Quota,
    policy: &Policy,
) -> (CellKey, RecordId) {
    let algorithm = policy.algorithm();
    let seconds = quota.window.seconds();
    match rule {
        Some(rule) if algorithm.holds_permits() => (cell_of(domain, rule, entries), rule.record_id()),
        Some(rule) if !rule.shares_values(entries) => match &rule.limit {
            Limit::Quota { quota, .. } if quota.window.seconds() == seconds => {
                (cell_of(domain, rule, entries), rule.record_id())
            }
            Limit::Quota { .. } | Limit::Unlimited => {
                let cell = shared_cell(domain, rule, entries);
                (cell.limit_override(Some(rule.record_id()), algorithm, seconds), RecordId::alone(algorithm))
            }
        },
        Some(_) | None => {
            let cell = CellKey::open(&domain.name, entries.iter().copied());
            (cell.limit_override(None, algorithm, seconds), RecordId::alone(algorithm))
        }
    }
}

#[cfg(test)]
mod tests;
