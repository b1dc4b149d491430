//! Matches descriptors with rules and limit overrides.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::algorithm::{Algorithm, Parameters, Policy};
use tollgate_core::descriptor::{Descriptor, Hits};
use tollgate_core::{lease::LeaseId, quota::Quota};
use tollgate_metrics::StripedCounter;
use tollgate_rules::{Domain, Limit, Rule, SwitchMode, Switched, UTILIZATION_KEY};
use tollgate_shedding::{Priority, Utilization};
use tollgate_store::request::Requests;

use crate::plan::{Changes, CounterMatch, Match, Plan, PlannedLimit, PlannedLimits, Signal};
use crate::shadow_mode::{is_shadow, side};

pub(crate) static MALFORMED_LEASES: StripedCounter = StripedCounter::new(
    "tollgate_malformed_leases_total",
    "Releases and settlements whose `lease` is not the name of a lease.",
)
.at_zero();

/// Matches `descriptors` with the rules of `domain`. The plan has no calls yet.
pub(super) fn plan<'r, 'd>(
    domain: &'r Domain,
    changes: Changes<'r, '_>,
    descriptors: &'d [Descriptor<'_>],
) -> Plan<'r, 'd> {
    let (limits, calls) = (PlannedLimits::with_capacity(descriptors.len()), Requests::new());
    let mut plan = Plan { domain, limits, listed: None, shed: None, calls };
    for descriptor in descriptors {
        let first = PlannedLimit::first(descriptor, match_descriptor(domain, changes, descriptor));
        plan.limits.push(first);
        // A limit override takes the place of all, also of one that is off.
        if descriptor.limit.is_none() && first.matched.is_of_several() {
            let extra = domain.root.limits(&descriptor.entries).skip(1).map(|rule| {
                let rule = changes.deciding(rule, &descriptor.entries);
                let matched = match_rule(domain, changes, descriptor, Some(rule));
                PlannedLimit { is_extra: true, matched, ..first }
            });
            plan.limits.extend(extra);
        }
    }
    drop_replaced(&mut plan.limits);
    plan
}

/// Matches one descriptor, regardless of the other descriptors of the request.
fn match_descriptor<'r>(
    domain: &'r Domain,
    changes: Changes<'r, '_>,
    descriptor: &Descriptor<'_>,
) -> Match<'r> {
    let entries = &*descriptor.entries;
    let rule = domain.root.rule(entries).map(|rule| of_window(domain, rule, descriptor));
    let rule = rule.map(|rule| changes.deciding(rule, entries));
    if rule.is_none()
        && let Some(matched) =
            release(domain, changes, descriptor).or_else(|| signal(domain, changes.switched, descriptor))
    {
        return matched;
    }
    match_rule(domain, changes, descriptor, rule)
}

/// Of several limits, the one in whose place a limit override decides: that of its window, else the first one.
fn of_window<'r>(domain: &'r Domain, first: &'r Arc<Rule>, descriptor: &Descriptor<'_>) -> &'r Arc<Rule> {
    let Some(stated) = descriptor.limit.filter(|_| first.part.is_some()) else { return first };
    let seconds = stated.window.seconds();
    let has_window = |rule: &&Arc<Rule>| matches!(rule.limit, Limit::Quota { quota, .. } if quota.window.seconds() == seconds);
    domain.root.limits(&descriptor.entries).find(has_window).unwrap_or(first)
}

/// Matches a descriptor with its rule.
fn match_rule<'r>(
    domain: &'r Domain,
    changes: Changes<'r, '_>,
    descriptor: &Descriptor<'_>,
    rule: Option<&'r Arc<Rule>>,
) -> Match<'r> {
    let (hits, entries, switched) = (descriptor.hits, &*descriptor.entries, changes.switched);
    let mode = rule.and_then(|rule| switched.mode_of(rule));
    let weights = rule.and_then(|rule| rule.weights.as_ref());
    let hits = weights.map_or(hits, |weights| weights.weigh(hits, entries));
    // Charges made before the rule was switched off are still refunded.
    if let (Some(rule), Some(SwitchMode::Off), false) = (rule, mode, hits.is_refund()) {
        return Match::Off { rule, is_quota: rule.quota_mode && descriptor.limit.is_none() };
    }
    let stated = descriptor.limit;
    if let Some(quota) = stated.filter(|quota| !rule.is_some_and(|rule| rule.ignores_override(quota.window)))
    {
        let quota = match rule.map(|rule| &rule.limit) {
            Some(Limit::Quota { quota: of_rule, .. }) => {
                Quota { window: quota.window.within(of_rule.window), ..quota }
            }
            Some(Limit::Unlimited) | None => quota,
        };
        let policy = match rule.and_then(|rule| rule.policy()) {
            Some(policy) => policy.with_quota(quota),
            None => Policy::nearest(domain.default_algorithm.without_rule(), quota, &Parameters::default()),
        };
        return Match::Override { rule, counter: CounterMatch { quota, policy, hits, share: None } };
    }
    match rule.map(|rule| (rule, &rule.limit)) {
        None => Match::None,
        Some((rule, Limit::Unlimited)) if rule.shedding.is_some() => {
            let signal = Signal::Request { priority: Priority::default(), is_shed: false };
            Match::Shedding { rule, signal, is_shadow: is_shadow(rule, mode, None) }
        }
        Some((rule, Limit::Unlimited)) => Match::Unlimited(rule),
        Some((rule, Limit::Quota { quota, policy })) => {
            let policy = rule.policy().unwrap_or(*policy);
            let counter = CounterMatch { quota: *quota, policy, hits, share: None };
            let side = side(domain, switched, rule, entries);
            Match::Rule { rule, counter, depth: entries.len(), is_shadow: is_shadow(rule, mode, side), side }
        }
    }
}

/// The report or the request with a priority that the entries are to a rule that sheds. Only they count, and no limit
/// override.
fn signal<'r>(domain: &'r Domain, switched: &Switched, descriptor: &Descriptor<'_>) -> Option<Match<'r>> {
    if !domain.sheds {
        return None;
    }
    let (rule, last) = domain.root.rule_of_signal(&descriptor.entries)?;
    let mode = switched.mode_of(rule);
    let signal = match last.key {
        UTILIZATION_KEY => Signal::Report(Utilization::parse(last.value, descriptor.hits.charged()).ok()),
        _ => Signal::Request { priority: Priority::of(last.value), is_shed: false },
    };
    Some(match (mode, signal) {
        (Some(SwitchMode::Off), Signal::Request { .. }) => Match::Off { rule, is_quota: false },
        _ => Match::Shedding { rule, signal, is_shadow: is_shadow(rule, mode, None) },
    })
}

/// The release or the settlement that the entries state, if they are those of a limit with leases and a lease. A malformed
/// name stands for a lease that the counter does not have.
fn release<'r>(
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

/// Drops each rule whose name another rule of the request replaces, even if that rule is replaced in turn.
fn drop_replaced(limits: &mut PlannedLimits<'_, '_>) {
    let replaced: SmallVec<[&str; 4]> = limits
        .iter()
        .filter_map(|limit| match limit.matched {
            Match::Unlimited(rule) | Match::Off { rule, .. } | Match::Rule { rule, .. } => Some(rule),
            Match::None | Match::Denied | Match::Shedding { .. } | Match::Override { .. } => None,
        })
        .flat_map(|rule| rule.replaces.iter().map(|name| &**name))
        .collect();
    if replaced.is_empty() {
        return;
    }
    for limit in limits {
        if let Match::Rule { rule, .. } = limit.matched
            && replaced.contains(&&*rule.name)
        {
            limit.matched = Match::None;
        }
    }
}
