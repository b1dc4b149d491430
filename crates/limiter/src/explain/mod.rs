//! Explains which rule each descriptor of a request matches, and why.

mod limit;
mod matched;
mod text;
mod walk;

use tollgate_core::{
    algorithm::Charging,
    clock::Clock,
    descriptor::{Descriptor, Entry},
};
use tollgate_rules::{CanonicalAddresses, Domain, Overridden, Rule, Rules, lacks_address};

pub use self::{
    limit::{candidate_text, limit_text, weights_text},
    matched::{AppliedOverride, MatchedCounter, MatchedRule},
    walk::Step,
};

/// Explanation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// A domain without rules.
    NoDomain {
        /// The domain.
        domain: String,
        /// Domains with rules, sorted.
        known: Vec<String>,
    },
    /// A domain with rules.
    Domain {
        /// Whether counters are charged independently, or all or none.
        charging: Charging,
        /// Whether a limit that denies counts the hits, where it keeps the others from being charged.
        counts_denied: bool,
        /// Each descriptor, in order.
        descriptors: Vec<Explained>,
    },
}

/// Explanation of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Its entries, `key=value`, joined by commas.
    pub shown: String,
    /// Steps down the tree, as far as nodes matched.
    pub steps: Vec<Step>,
    /// The matched rule, if there is one.
    pub rule: Option<MatchedRule>,
    /// The rule's counter, if it has one.
    pub counter: Option<MatchedCounter>,
    /// The other ones of several limits, which are charged all or none with the first.
    pub beside: Vec<(MatchedRule, Option<MatchedCounter>)>,
    /// Whether the descriptor releases a lease, which is never denied.
    pub releases_lease: bool,
}

/// Explains a request with these descriptors, by rules and what overrides do to them.
pub fn explain(
    rules: &Rules,
    overridden: &Overridden,
    domain: &str,
    requests: &[Descriptor<'_>],
) -> Explanation {
    match rules.domain(domain) {
        Some(domain) => {
            let canonical = CanonicalAddresses::of(domain, requests);
            let requests = &*canonical.apply(requests);
            let matched: Vec<&Rule> =
                requests.iter().filter_map(|request| Some(&**domain.root.rule(&request.entries)?)).collect();
            let explained = requests.iter().map(|request| explain_one(domain, overridden, request, &matched));
            Explanation::Domain {
                charging: domain.charging,
                counts_denied: domain.counts_denied,
                descriptors: explained.collect(),
            }
        }
        None => {
            let mut known: Vec<String> = rules.domains().map(|domain| domain.name.to_string()).collect();
            known.sort_unstable();
            Explanation::NoDomain { domain: domain.to_owned(), known }
        }
    }
}

fn explain_one(
    domain: &Domain,
    overridden: &Overridden,
    request: &Descriptor<'_>,
    matched: &[&Rule],
) -> Explained {
    let entries = &*request.entries;
    let pairs: Vec<String> = entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
    let lease = domain.root.rule_of_lease(entries);
    let releases_lease = lease.is_some();
    let signal = domain.root.rule_of_signal(entries).zip(entries.split_last());
    let (mut steps, found) = match (lease, signal) {
        (Some((rule, taken, lease)), _) => {
            let mut steps = walk::steps(&domain.root, taken);
            steps.push(walk::lease_step(rule, lease));
            (steps, Some((rule, taken)))
        }
        (None, Some(((rule, last), (_, taken)))) => {
            let mut steps = walk::steps(&domain.root, taken);
            steps.push(walk::signal_step(last, request.hits.charged()));
            (steps, Some((rule, taken)))
        }
        (None, None) => {
            let rule = domain.root.rule(entries).map(|rule| (rule, entries));
            (walk::steps(&domain.root, entries), rule)
        }
    };
    for step in &mut steps {
        if lacks_address(domain, Entry { key: &step.key, value: &step.value }) {
            step.note.get_or_insert_with(|| walk::NO_ADDRESS.to_owned());
        }
    }
    let now_ms = Clock::System.now().as_micros() / 1_000;
    let describe = |rule: &Rule, entries: &[Entry<'_>]| {
        let by_override = overridden.deciding(rule, entries, now_ms);
        let decider = by_override.map_or(rule, |(_, decider)| decider);
        let matched = MatchedRule {
            by_override: by_override.map(|(stated, _)| AppliedOverride::new(domain, rule, stated)),
            ..MatchedRule::new(domain, decider, matched)
        };
        (matched, MatchedCounter::new(domain, decider, entries))
    };
    let beside = found.iter().flat_map(|(_, entries)| domain.root.beside(entries));
    let beside = beside.map(|rule| describe(rule, entries)).collect();
    let (rule, counter) = found.map(|(rule, entries)| describe(rule, entries)).unzip();
    Explained { shown: pairs.join(","), steps, rule, counter: counter.flatten(), beside, releases_lease }
}
