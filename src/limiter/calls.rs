//! From matched descriptors to what is asked of the store.

use std::sync::Arc;

use super::{Target, Targets};
use crate::{
    algorithm::Policy,
    descriptor::Descriptor,
    rules::{Domain, Limit, RecordId, Rule},
    store::key::{Ask, Call, Calls, CellKey},
};

/// What `descriptors` ask of their counters: one call for each hash tag.
pub(super) fn calls(domain: &Domain, descriptors: &[Descriptor<'_>], targets: &Targets<'_>) -> Calls {
    let mut calls = Calls::new();
    for (at, (descriptor, target)) in descriptors.iter().zip(targets).enumerate() {
        let (key, record, policy) = match target {
            Target::Nothing | Target::Unlimited(_) => continue,
            Target::Rule { rule, policy, .. } => {
                (cell_of(domain, rule, descriptor), rule.record_id(), *policy)
            }
            Target::Brought { rule, policy, .. } => {
                let (key, record) = cell_of_brought(domain, *rule, descriptor, policy);
                (key, record, *policy)
            }
        };
        let ask = Ask { descriptor: at, record, policy, hits: descriptor.hits };
        match calls.iter_mut().find(|call| call.tag() == key.tag()) {
            Some(call) => call.ask(key, ask),
            None => {
                let mut call = Call::new(key.clone());
                call.ask(key, ask);
                calls.push(call);
            }
        }
    }
    calls
}

/// The cell of the rule's counter for this descriptor.
pub(crate) fn cell_of(domain: &Domain, rule: &Rule, descriptor: &Descriptor<'_>) -> CellKey {
    let mut open = rule.open(&descriptor.entries).peekable();
    match open.peek() {
        None => CellKey::global(&domain.name, rule.record_id()),
        Some(_) => CellKey::open(&domain.name, open),
    }
}

/// The counter of a limit that the descriptor brought along.
///
/// As in the reference it is the rule's own counter where the window is the same, so that the usage is shared;
/// with another window it is one beside it. Where no rule matches, or one whose counter is shared by many
/// values, it belongs to the values of the descriptor.
fn cell_of_brought(
    domain: &Domain,
    rule: Option<&Arc<Rule>>,
    descriptor: &Descriptor<'_>,
    policy: &Policy,
) -> (CellKey, RecordId) {
    let algorithm = policy.algorithm();
    let seconds = descriptor.limit.map_or(0, |quota| quota.window.seconds());
    match rule {
        Some(rule) if !rule.shares_values(&descriptor.entries) => match rule.limit {
            Limit::Quota { quota, .. } if quota.window.seconds() == seconds => {
                (cell_of(domain, rule, descriptor), rule.record_id())
            }
            Limit::Quota { .. } | Limit::Unlimited => {
                let cell = cell_of(domain, rule, descriptor);
                (cell.brought_along(Some(rule.record_id()), algorithm, seconds), RecordId::alone(algorithm))
            }
        },
        Some(_) | None => {
            let cell = CellKey::open(&domain.name, descriptor.entries.iter().copied());
            (cell.brought_along(None, algorithm, seconds), RecordId::alone(algorithm))
        }
    }
}
