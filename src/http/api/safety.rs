//! What is likely a mistake: rules that would deny all traffic of a domain, or that drop a domain with traffic,
//! or all domains.
//!
//! Only what gets worse is told: compared are the rules that are current.

use std::collections::HashMap;

use serde::Serialize;
use tokio::task::spawn_blocking;

use super::{error::ApiError, parts::Api, wait};
use crate::{
    descriptor::{Entries, Entry},
    rules::{Domain, Limit, Rule, Rules},
    top::{self, DomainTop},
};

/// Keys of each domain whose traffic is looked at.
const KEYS: usize = 100;

/// Domains that are told where no rule is left.
const DOMAINS: usize = 100;

/// Why rules are likely a mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::http) struct Reason {
    code: Code,
    domain: String,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Code {
    /// All traffic of the domain would be denied.
    DeniesAll,
    /// The domain has traffic, and would have no rules; or there would be no rules at all.
    DropsDomain,
}

/// What is known of the traffic of the last minute.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Domains that any instance was asked about.
    pub(super) domains: Vec<String>,
    /// The keys that this instance was asked about the most.
    pub(super) talkers: Vec<DomainTop>,
}

impl Api {
    /// What is known of the traffic of the last minute: of all instances.
    pub(super) async fn traffic(&self) -> Result<Traffic, ApiError> {
        let others = wait::read(self.parts.control.instances()).await?;
        let Traffic { mut domains, talkers } = Traffic::here().await?;
        domains.extend(others.into_iter().flat_map(|instance| instance.active_domains));
        domains.sort_unstable();
        domains.dedup();
        Ok(Traffic { domains, talkers })
    }
}

impl Traffic {
    /// What is known of it in this process.
    pub(super) async fn here() -> Result<Self, ApiError> {
        let here = || Self { domains: top::active_domains(), talkers: top::report(None, KEYS) };
        spawn_blocking(here).await.map_err(|_| ApiError::Broken)
    }
}

/// Why putting `next` in place of `current` is likely a mistake, by the domains' names.
pub(super) fn reasons(current: Option<&Rules>, next: &Rules, traffic: &Traffic) -> Vec<Reason> {
    let before = |name: &str| current.and_then(|rules| rules.domain(name));
    let talkers = |name: &str| traffic.talkers.iter().find(|top| top.domain == name);
    let denies = next.domains().filter_map(|domain| {
        let why = |domain: &Domain| {
            denies_by_itself(domain).or_else(|| denies_what_comes(domain, talkers(&domain.name)?))
        };
        let message = why(domain).filter(|_| before(&domain.name).and_then(why).is_none())?;
        Some(Reason { code: Code::DeniesAll, domain: domain.name.to_string(), message: message.to_owned() })
    });
    if let Some(current) = current.filter(|current| current.rule_count() > 0 && next.rule_count() == 0) {
        return emptied(current);
    }
    let is_dropped = |name: &&String| before(name).is_some() && next.domain(name).is_none();
    let drops = traffic.domains.iter().filter(is_dropped).map(|name| Reason {
        code: Code::DropsDomain,
        domain: name.clone(),
        message: "it was asked about within the last minute, and would have no rules".to_owned(),
    });
    let mut reasons: Vec<Reason> = denies.chain(drops).collect();
    reasons.sort_by(|a, b| a.domain.cmp(&b.domain));
    reasons
}

/// Why having no rules at all is likely a mistake, whatever traffic there is.
fn emptied(current: &Rules) -> Vec<Reason> {
    let limited = current.domains().filter(|domain| domain.root.rules().next().is_some());
    let mut domains: Vec<&str> = limited.map(|domain| &*domain.name).collect();
    domains.sort_unstable();
    domains.truncate(DOMAINS);
    let reason = |domain: &str| Reason {
        code: Code::DropsDomain,
        domain: domain.to_owned(),
        message: "there would be no rule left, in no domain".to_owned(),
    };
    domains.into_iter().map(reason).collect()
}

/// Whether every limit of the domain is zero: there is at least one, none is only watched, and nothing is unlimited.
fn denies_by_itself(domain: &Domain) -> Option<&'static str> {
    let mut rules = domain.root.rules().peekable();
    rules.peek()?;
    rules.all(|rule| is_zero(rule) && !rule.shadow_mode).then_some("every limit of it is zero")
}

/// Whether most of what comes would meet a zero: all keys that are known of one shape of descriptor, of which none was
/// asked about more. A request often has several descriptors, and one is enough to deny it.
fn denies_what_comes(domain: &Domain, top: &DomainTop) -> Option<&'static str> {
    let mut shapes: HashMap<Vec<&str>, (u64, bool)> = HashMap::new();
    for talker in &top.heaviest {
        // Of one that can't be read it is not known what it would meet.
        let entries = entries(&talker.key).unwrap_or_default();
        let is_denied = domain.root.rule(&entries).is_some_and(|rule| is_denying(rule));
        let shape = entries.iter().map(|entry| entry.key).collect();
        let (hits, are_denied) = shapes.entry(shape).or_insert((0, true));
        *hits = hits.saturating_add(talker.hits);
        *are_denied &= is_denied;
    }
    let most = shapes.values().map(|(hits, _)| *hits).max()?;
    let is_denied = shapes.values().any(|(hits, are_denied)| *are_denied && *hits == most);
    is_denied.then_some("what was asked about the most within the last minute would meet limits of zero")
}

/// Whether a rule denies whatever it meets, by itself.
fn is_denying(rule: &Rule) -> bool {
    is_zero(rule) && !rule.shadow_mode && !rule.quota_mode
}

fn is_zero(rule: &Rule) -> bool {
    match rule.limit {
        Limit::Unlimited => false,
        Limit::Quota { quota, policy } => quota.limit == 0 || policy.burst() == Some(0),
    }
}

/// The entries of a key as talkers have it, if they can be told apart.
fn entries(key: &str) -> Option<Entries<'_>> {
    if key.ends_with('…') {
        return None;
    }
    let pairs = key.split(',').map(|pair| pair.split_once('='));
    pairs.map(|pair| pair.map(|(key, value)| Entry { key, value })).collect()
}

#[cfg(test)]
#[path = "safety/tests.rs"]
mod tests;
