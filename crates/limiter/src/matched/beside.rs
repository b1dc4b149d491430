//! Matches of descriptors with several limits.

use tollgate_core::descriptor::Descriptor;
use tollgate_rules::Domain;

use super::{Changes, Match, Matches, match_rule};
use crate::several::Beside;

/// Adds the matches of the limits beside the first ones.
pub(super) fn expand<'r>(
    domain: &'r Domain,
    changes: Changes<'r, '_>,
    descriptors: &[Descriptor<'_>],
    matches: &mut Matches<'r>,
) -> Beside {
    let mut beside = Beside::default();
    for (at, descriptor) in descriptors.iter().enumerate() {
        // A limit override takes the place of all, also of one that is off.
        if descriptor.limit.is_some() || !matches.get(at).is_some_and(Match::is_of_several) {
            continue;
        }
        for rule in domain.root.beside(&descriptor.entries) {
            let rule = changes.deciding(rule, &descriptor.entries);
            matches.push(match_rule(domain, changes, descriptor, Some(rule)));
            beside.push(at);
        }
    }
    beside
}
