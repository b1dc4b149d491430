//! What each descriptor of a request is up against.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::verdict::Status;
use tollgate_core::{
    algorithm::{Parameters, Policy},
    descriptor::{Descriptor, Entry, Hits},
    lease::LeaseId,
    quota::Quota,
};
use tollgate_rules::{Domain, Limit, Rule, SwitchMode, Switched};

/// What a descriptor is up against.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'r> {
    /// Nothing: no rule matches, or another one of the request replaces it.
    Nothing,
    /// A rule that lets everything pass.
    Unlimited(&'r Arc<Rule>),
    /// A rule that an operator has switched off; what comes along in its place is no quota, whatever the rule is.
    Off { rule: &'r Arc<Rule>, is_quota: bool },
    /// A list that denies what has such entries.
    Denied,
    /// A rule's counter, and whether it is only watched.
    Rule { rule: &'r Arc<Rule>, quota: Quota, policy: Policy, hits: Hits, depth: usize, is_watched: bool },
    /// A counter for the limit that the descriptor brought along, and the rule that would apply without it.
    Brought { rule: Option<&'r Arc<Rule>>, quota: Quota, policy: Policy, hits: Hits },
}

pub(super) type Targets<'r> = SmallVec<[Target<'r>; 2]>;

/// What `descriptors` are up against.
pub(super) fn targets<'r>(
    domain: &'r Domain,
    switched: &Switched,
    descriptors: &[Descriptor<'_>],
) -> Targets<'r> {
    let mut targets = descriptors.iter().map(|descriptor| target(domain, switched, descriptor)).collect();
    drop_replaced(&mut targets);
    targets
}

impl Target<'_> {
    /// What the descriptor's status is as long as no counter has spoken.
    pub(super) const fn status_without_counter<'s>(&self) -> Status<'s> {
        match self {
            Self::Unlimited(_) => Status::Unlimited,
            Self::Off { is_quota, .. } => Status::Off { is_quota: *is_quota },
            Self::Denied => Status::Denied,
            Self::Nothing | Self::Rule { .. } | Self::Brought { .. } => Status::NoLimit,
        }
    }

    /// What is asked of its counter, if it has one: of what gives a lease back, that is no charge.
    pub(super) const fn hits(&self) -> Option<Hits> {
        match self {
            Self::Rule { hits, .. } | Self::Brought { hits, .. } => Some(*hits),
            Self::Nothing | Self::Unlimited(_) | Self::Off { .. } | Self::Denied => None,
        }
    }

    /// Has it look at the places of a lease that it would give back.
    pub(super) const fn keep_places(&mut self) {
        if let Self::Rule { hits, .. } = self
            && matches!(hits, Hits::Release(_))
        {
            *hits = Hits::Peek;
        }
    }

    /// Whether it takes places that are held under a lease.
    pub(super) const fn takes_lease(&self) -> bool {
        match self {
            Self::Rule { policy, hits, .. } | Self::Brought { policy, hits, .. } => {
                policy.algorithm().holds_permits() && hits.charged() > 0
            }
            Self::Nothing | Self::Unlimited(_) | Self::Off { .. } | Self::Denied => false,
        }
    }
}

/// What `descriptor` is up against, before it is known what else the request matches.
fn target<'r>(domain: &'r Domain, switched: &Switched, descriptor: &Descriptor<'_>) -> Target<'r> {
    let (hits, entries) = (descriptor.hits, &*descriptor.entries);
    let rule = domain.root.rule(entries);
    if rule.is_none()
        && let Some(release) = release(domain, entries)
    {
        return release;
    }
    let mode = rule.and_then(|rule| switched.mode_of(rule));
    // What was charged before the rule was switched off is given back.
    if let (Some(rule), Some(SwitchMode::Off), false) = (rule, mode, hits.is_refund()) {
        return Target::Off { rule, is_quota: rule.quota_mode && descriptor.limit.is_none() };
    }
    if let Some(quota) = descriptor.limit {
        let policy = match rule.map(|rule| &rule.limit) {
            Some(Limit::Quota { policy, .. }) => policy.with_quota(quota),
            Some(Limit::Unlimited) | None => {
                Policy::nearest(domain.default_algorithm.without_rule(), quota, &Parameters::default())
            }
        };
        return Target::Brought { rule, quota, policy, hits };
    }
    match rule.map(|rule| (rule, &rule.limit)) {
        None => Target::Nothing,
        Some((rule, Limit::Unlimited)) => Target::Unlimited(rule),
        Some((rule, Limit::Quota { quota, policy })) => {
            let is_watched = rule.shadow_mode || mode.is_some();
            Target::Rule { rule, quota: *quota, policy: *policy, hits, depth: entries.len(), is_watched }
        }
    }
}

/// What the entries give back, if they are those of a concurrency limit and a lease. A name that is none gives
/// nothing back.
fn release<'r>(domain: &'r Domain, entries: &[Entry<'_>]) -> Option<Target<'r>> {
    let (rule, entries, lease) = domain.root.rule_of_lease(entries)?;
    let hits = LeaseId::parse(lease).map_or(Hits::Peek, Hits::Release);
    match rule.limit {
        Limit::Quota { quota, policy } => {
            // Nothing is denied who gives back.
            let is_watched = rule.shadow_mode;
            Some(Target::Rule { rule, quota, policy, hits, depth: entries.len(), is_watched })
        }
        Limit::Unlimited => None,
    }
}

/// Drops every rule whose name another rule of the request replaces, whatever replaces that one in turn.
fn drop_replaced(targets: &mut Targets<'_>) {
    let replaced: SmallVec<[&str; 4]> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Unlimited(rule) | Target::Off { rule, .. } | Target::Rule { rule, .. } => Some(*rule),
            Target::Nothing | Target::Denied | Target::Brought { .. } => None,
        })
        .flat_map(|rule| rule.replaces.iter().map(|name| &**name))
        .collect();
    if replaced.is_empty() {
        return;
    }
    for target in targets {
        if let Target::Rule { rule, .. } = target
            && replaced.contains(&&*rule.name)
        {
            *target = Target::Nothing;
        }
    }
}
