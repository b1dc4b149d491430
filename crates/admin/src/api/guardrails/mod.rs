//! Guardrails: refuse rules that would deny all traffic of a domain, or remove a domain with traffic or all rules,
//! unless the request sets `force`; likewise entries of the deny list that together would deny more than a share of the
//! traffic, or one that would deny all requests with its keys, and overrides that would deny all requests of a rule that
//! admits some.
//!
//! Only deterioration is reported: the proposed rules are compared with the current ones.

use std::collections::HashMap;

use tokio::task::spawn_blocking;
use tollgate_core::descriptor::{Entries, Entry};
use tollgate_limiter::talkers::{self, DomainTop, Talker};
use tollgate_rules::{ALL_NAMES, Domain, Limit, List, Listing, Overridden, Rule, RuleOverrides, Rules};

use super::response::{ApiError, Violation, ViolationCode};
use super::{Api, limits};

/// Number of top-talker keys of each domain that are examined.
const KEYS_PER_DOMAIN: usize = 100;

/// Maximum number of violations of a response.
pub(super) const MAX_VIOLATIONS: usize = 100;

/// Traffic of the last minute.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Domains with traffic on any instance.
    pub(super) domains: Vec<String>,
    /// Top talkers of this instance.
    pub(super) talkers: Vec<DomainTop>,
}

impl Traffic {
    /// Traffic of all instances, as far as their heartbeats report it.
    pub(super) async fn of_all_instances(api: &Api) -> Result<Self, ApiError> {
        let instances = limits::read(api.parts.control.instances()).await?;
        let Self { mut domains, talkers } = Self::of_this_instance().await?;
        domains.extend(instances.into_iter().flat_map(|instance| instance.active_domains));
        domains.sort_unstable();
        domains.dedup();
        Ok(Self { domains, talkers })
    }

    /// Traffic of this process.
    pub(super) async fn of_this_instance() -> Result<Self, ApiError> {
        let sample = || {
            let counts = talkers::counts(usize::MAX).into_iter();
            let talkers = counts.map(|counts| counts.minute.top(&counts.domain, KEYS_PER_DOMAIN)).collect();
            Self { domains: talkers::active_domains(), talkers }
        };
        spawn_blocking(sample).await.map_err(|_| ApiError::Internal)
    }
}

/// The guardrails that replacing `current` by `next` would violate, sorted by domain.
pub(super) fn violations(current: Option<&Rules>, next: &Rules, traffic: &Traffic) -> Vec<Violation> {
    let before = |name: &str| current.and_then(|rules| rules.domain(name));
    let talkers = |name: &str| traffic.talkers.iter().find(|top| top.domain == name);
    let denies = next.domains().filter_map(|domain| {
        let why = |domain: &Domain| {
            denies_by_itself(domain).or_else(|| denies_top_traffic(domain, talkers(&domain.name)?))
        };
        let message = why(domain).filter(|_| before(&domain.name).and_then(why).is_none())?;
        Some(Violation::new(ViolationCode::DeniesAll, &domain.name, message))
    });
    let is_dropped = |name: &&String| before(name).is_some() && next.domain(name).is_none();
    let drops = traffic.domains.iter().filter(is_dropped).map(|name| {
        let message = "the domain had traffic within the last minute and would have no rules";
        Violation::new(ViolationCode::DropsDomain, name, message)
    });
    let is_empty = |rules: &Rules| rules.rule_count() == 0;
    let mut violations: Vec<Violation> = match current.filter(|current| !is_empty(current) && is_empty(next))
    {
        Some(current) => all_rules_removed(current).collect(),
        None => denies.chain(drops).collect(),
    };
    violations.sort_by(|a, b| a.domain.cmp(&b.domain));
    violations.truncate(MAX_VIOLATIONS);
    violations
}

/// Violations of removing all rules, with or without traffic.
fn all_rules_removed(current: &Rules) -> impl Iterator<Item = Violation> {
    let limited = current.domains().filter(|domain| domain.root.rules().next().is_some());
    let message = "no rule would remain in any domain";
    limited.map(move |domain| Violation::new(ViolationCode::DropsDomain, &domain.name, message))
}

/// Whether every limit of the domain is zero: it has at least one rule, none in shadow mode and none unlimited.
fn denies_by_itself(domain: &Domain) -> Option<&'static str> {
    let mut rules = domain.root.rules().peekable();
    rules.peek()?;
    rules.all(|rule| is_zero(rule) && !rule.shadow_mode).then_some("every limit of the domain is zero")
}

/// Whether most traffic would meet a limit of zero: all sampled keys of one descriptor shape, and no other shape has more
/// hits. A request often has several descriptors, and one of them suffices to deny it.
fn denies_top_traffic(domain: &Domain, top: &DomainTop) -> Option<&'static str> {
    let mut shapes: HashMap<Vec<&str>, (u64, bool)> = HashMap::new();
    for talker in &top.heaviest {
        let entries = entries(talker);
        let is_denied = domain.root.limits(&entries).any(|rule| is_denying(rule));
        let shape = entries.iter().map(|entry| entry.key).collect();
        let (hits, are_denied) = shapes.entry(shape).or_insert((0, true));
        *hits = hits.saturating_add(talker.hits);
        *are_denied &= is_denied;
    }
    let most = shapes.values().map(|(hits, _)| *hits).max()?;
    let is_denied = shapes.values().any(|(hits, are_denied)| *are_denied && *hits == most);
    is_denied.then_some("the top traffic of the last minute would meet limits of zero")
}

/// Whether a rule denies every request that it matches.
fn is_denying(rule: &Rule) -> bool {
    is_zero(rule) && !rule.shadow_mode && !rule.quota_mode
}

fn is_zero(rule: &Rule) -> bool {
    match rule.limit {
        Limit::Unlimited => false,
        Limit::Quota { quota, policy } => quota.limit == 0 || policy.limit() == 0,
    }
}

/// The descriptor of a top talker; empty if it is truncated, because its match is unknown then.
fn entries(talker: &Talker) -> Entries<'_> {
    let known = talker.descriptor.iter().flatten();
    known.map(|entry| Entry { key: &entry.key, value: &entry.value }).collect()
}

/// Share of a domain's requests that the entries of a change may deny, in thousandths.
const MAX_DENIED_PER_MILLE: u64 = 50;

/// The guardrails that adding these entries would violate, with the traffic of the last minute on this instance: a domain's
/// requests that any of them would deny are counted together. Takes some milliseconds for each domain.
pub(super) fn violations_of_entries(listings: Vec<Listing>) -> impl Iterator<Item = Violation> {
    let denying = listings.into_iter().filter(|listing| listing.list == List::Deny);
    let (unselective, selective): (Vec<_>, Vec<_>) = denying.partition(Listing::is_unselective);
    let unselective = unselective.into_iter().map(|listing| {
        let message = "the entry would deny all requests with its keys, whatever their values are";
        Violation::new(ViolationCode::DeniesAll, listing.domain().unwrap_or(ALL_NAMES), message)
    });
    let shares = talkers::shares_of(selective).into_iter();
    let exceeding = shares.filter(|share| share.per_mille() > MAX_DENIED_PER_MILLE).map(|share| {
        let [denied, most] = [share.per_mille(), MAX_DENIED_PER_MILLE].map(percent);
        let message = format!(
            "{denied} % of the requests of the last minute would be denied; expected at most {most} %"
        );
        Violation::new(ViolationCode::DeniesTraffic, &share.domain, message)
    });
    unselective.chain(exceeding)
}

/// A share in percent, with a decimal if it needs one.
fn percent(per_mille: u64) -> String {
    match (per_mille / 10, per_mille % 10) {
        (whole, 0) => whole.to_string(),
        (whole, tenths) => format!("{whole}.{tenths}"),
    }
}

/// The guardrails that overrides of these rules would violate.
pub(super) fn violations_of_overrides(
    rules: &Rules,
    overridden: &Overridden,
    overrides: &RuleOverrides,
    now_ms: u64,
) -> impl Iterator<Item = Violation> {
    let whole = overrides.all.iter().filter(|stated| stated.key.is_empty());
    whole.filter_map(move |stated| {
        let mut rules = rules.domain(&stated.domain)?.root.rules();
        let rule = rules.find(|rule| *rule.path() == *stated.rule)?;
        let (_, decider) = overridden.whole(rule, now_ms)?;
        let message = || format!("the override would deny all requests of {}", stated.rule);
        (is_denying(decider) && !is_denying(rule))
            .then(|| Violation::new(ViolationCode::DeniesAll, &stated.domain, message()))
    })
}

#[cfg(test)]
mod tests;
