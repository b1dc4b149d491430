//! Releases of permits, and settlements of what was reserved.

use tollgate_core::{
    algorithm::Algorithm,
    descriptor::{Descriptor, Hits},
    lease::LeaseId,
};
use tollgate_metrics::StripedCounter;
use tollgate_rules::{Domain, Limit};

use super::{Changes, Match};
use crate::counter_match::CounterMatch;

pub(crate) static MALFORMED_LEASES: StripedCounter = StripedCounter::new(
    "tollgate_malformed_leases_total",
    "Releases and settlements whose `lease` is not the name of a lease.",
)
.at_zero();

/// The release or the settlement that the entries state, if they are those of a limit with leases and a lease. A malformed
/// name stands for a lease that the counter does not have.
pub(super) fn release<'r>(
    domain: &'r Domain,
    changes: Changes<'r, '_>,
    descriptor: &Descriptor<'_>,
) -> Option<Match<'r>> {
    let (rule, entries, lease) = domain.root.rule_of_lease(&descriptor.entries)?;
    let rule = changes.deciding(rule, entries);
    // As those that were reserved.
    let used = rule
        .weights
        .as_ref()
        .map_or(descriptor.hits, |weights| weights.weigh(descriptor.hits, entries))
        .charged();
    match rule.limit {
        Limit::Quota { quota, policy } => {
            // What was used counts: each time, without a name to remember.
            let lease = LeaseId::parse(lease).unwrap_or_else(|_| {
                MALFORMED_LEASES.increment(0);
                LeaseId::random()
            });
            let hits = match policy.algorithm() {
                Algorithm::Budget => Hits::Settle { lease, used },
                _ => Hits::Release(lease),
            };
            let counter = CounterMatch { quota, policy, hits, share: None };
            // A release is never denied, so switches do not matter.
            let (depth, is_shadow) = (entries.len(), rule.shadow_mode);
            Some(Match::Rule { rule, counter, depth, is_shadow, side: None })
        }
        Limit::Unlimited => None,
    }
}
