//! Explains which rule each descriptor of a request matches, and why.

mod walk;

use std::fmt;

use serde::Serialize;
use tollgate_core::descriptor::{Descriptor, Entry};
use tollgate_core::{algorithm::Charging, clock::now_ms};
use tollgate_rules::{
    CanonicalAddresses, Domain, Limit, Overridden, Rule, RuleOverride, Rules, StatedValue, lacks_address,
    limit_text,
};

pub use self::walk::Step;
use crate::cell_of;

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
    /// The matched rules, each with its counter if it has one: none, one, or several limits, which are charged all or none.
    pub limits: Vec<(MatchedRule, Option<MatchedCounter>)>,
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
    let signal = domain.root.rule_of_signal(entries).zip(entries.split_last());
    let (counted, last_step) = match (lease, signal) {
        (Some((rule, counted, lease)), _) => (counted, Some(walk::lease_step(rule, lease))),
        (None, Some(((_, last), (_, counted)))) => {
            (counted, Some(walk::signal_step(last, request.hits.charged())))
        }
        (None, None) => (entries, None),
    };
    let mut steps = walk::steps(&domain.root, counted);
    steps.extend(last_step);
    for step in &mut steps {
        if lacks_address(domain, Entry { key: &step.key, value: &step.value }) {
            step.note.get_or_insert_with(|| walk::NO_ADDRESS.to_owned());
        }
    }
    let now_ms = now_ms();
    let limits = domain.root.limits(counted).map(|rule| {
        let by_override = overridden.deciding(rule, counted, || now_ms);
        let decider = by_override.map_or(&**rule, |(_, decider)| decider);
        let matched = MatchedRule {
            by_override: by_override.map(|(stated, _)| AppliedOverride::new(domain, rule, stated)),
            ..MatchedRule::new(domain, decider, matched)
        };
        (matched, MatchedCounter::new(domain, decider, counted))
    });
    let limits = limits.collect();
    Explained { shown: pairs.join(","), steps, limits, releases_lease: lease.is_some() }
}

/// A matched rule. Its JSON form is that of a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchedRule {
    /// Its domain.
    #[serde(skip)]
    pub domain: String,
    /// Its path in the tree.
    #[serde(rename = "rule")]
    pub path: String,
    /// Path of its descriptor: the same, unless it is one of several limits.
    #[serde(skip)]
    pub descriptor: String,
    /// Its name; empty if it has no name.
    pub name: String,
    /// The file that states it.
    pub file: String,
    /// The line in the file.
    pub line: usize,
    /// Text form of its limit.
    pub limit: String,
    /// Where its keys are stated, if it inherits or an overlay changed it: `burst from rules.yaml:7`.
    #[serde(skip)]
    pub stated: Vec<String>,
    /// Whether it has a `min_interval`.
    #[serde(skip)]
    pub spaces_hits: bool,
    /// The override that decides in its place, if one is active.
    #[serde(rename = "override")]
    pub by_override: Option<AppliedOverride>,
    /// Whether it is in shadow mode.
    #[serde(skip)]
    pub is_shadow: bool,
    /// Whether it is a quota.
    #[serde(skip)]
    pub is_quota: bool,
    /// The path of the rule of the same request that replaces it.
    pub replaced_by: Option<String>,
}

/// Override that decides in the place of a matched rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AppliedOverride {
    /// Its identifier.
    pub id: String,
    /// Whether it is one of the key, and not of the whole rule.
    pub is_of_key: bool,
    /// Its end in milliseconds since 1970, if it has one.
    #[serde(rename = "expires_at_ms")]
    pub ends_at_ms: Option<u64>,
    /// Text form of the limit of the rule itself.
    pub rule_limit: String,
}

impl AppliedOverride {
    /// Describes an override of a rule.
    pub(super) fn new(domain: &Domain, rule: &Rule, stated: &RuleOverride) -> Self {
        Self {
            id: stated.id.to_string(),
            is_of_key: !stated.key.is_empty(),
            ends_at_ms: stated.ends_at_ms,
            rule_limit: limit_text(domain, rule),
        }
    }
}

/// The counter of a matched rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchedCounter {
    /// The record in the cell.
    #[serde(skip)]
    pub record: String,
    /// The cell's name.
    pub cell: String,
    /// The cell's hash tag.
    pub tag: String,
    /// The tag's slot in a Redis Cluster.
    pub slot: u16,
}

impl MatchedRule {
    /// Describes a rule, in a request that matches the `matched` rules.
    pub(super) fn new(domain: &Domain, rule: &Rule, matched: &[&Rule]) -> Self {
        let (file, line) = &rule.origin;
        let replaces = |other: &&&Rule| !rule.name.is_empty() && other.replaces.contains(&rule.name);
        let (spaces_hits, replaced_by) = match rule.limit {
            // Without a limit there is no decision and nothing to replace.
            Limit::Unlimited => (false, None),
            Limit::Quota { policy, .. } => {
                let replacing = matched.iter().find(replaces).map(|other| other.path());
                (policy.spaces_hits(), replacing)
            }
        };
        Self {
            domain: domain.name.to_string(),
            path: rule.path(),
            descriptor: rule.descriptor_path(),
            name: rule.name.to_string(),
            file: file.to_string(),
            line: *line,
            limit: limit_text(domain, rule),
            stated: rule.stated.iter().flatten().map(stated_text).collect(),
            spaces_hits,
            by_override: None,
            is_shadow: rule.shadow_mode,
            is_quota: rule.quota_mode,
            replaced_by,
        }
    }
}

/// Text form of the place of a key.
fn stated_text(StatedValue { key, file, line }: &StatedValue) -> String {
    match line {
        0 => format!("{key} from {file}"),
        line => format!("{key} from {file}:{line}"),
    }
}

impl MatchedCounter {
    /// The rule's counter for these entries, if it has one.
    pub(super) fn new(domain: &Domain, rule: &Rule, entries: &[Entry<'_>]) -> Option<Self> {
        rule.algorithm()?;
        let cell = cell_of(domain, rule, entries);
        Some(Self {
            record: rule.record_id().to_string(),
            tag: String::from_utf8_lossy(cell.tag()).into_owned(),
            slot: cell.slot(),
            cell: cell.to_string(),
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDomain { domain, known } => writeln!(
                f,
                "domain {domain} has no rules, so nothing is limited; those that have: {}",
                known.join(", ")
            ),
            Self::Domain { charging, counts_denied, descriptors } => {
                descriptors.iter().try_for_each(|explained| explained.fmt(f))?;
                match charging {
                    Charging::Independent => Ok(()),
                    Charging::AllOrNone if *counts_denied => {
                        writeln!(f, "a request is charged to all of its limits, or to those alone that deny")
                    }
                    Charging::AllOrNone => {
                        writeln!(f, "a request is charged to all of its limits, or to none if one denies")
                    }
                }
            }
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "descriptor {}", self.shown)?;
        self.steps.iter().try_for_each(|step| step.fmt(f))?;
        for (rule, counter) in &self.limits {
            rule.fmt(f)?;
            counter.iter().try_for_each(|counter| counter.fmt(f))?;
        }
        match &*self.limits {
            [] => writeln!(f, "  => no limit"),
            [_] => Ok(()),
            _ => writeln!(f, "     charged to all of these limits, or to none if one denies"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}={}", self.key, self.value)?;
        if let Some(taken) = &self.taken {
            writeln!(f, "    taken: {taken}")?;
        }
        for other in &self.passed_over {
            writeln!(f, "    passed over: {other}, which comes after")?;
        }
        self.note.iter().try_for_each(|note| writeln!(f, "    {note}"))
    }
}

impl fmt::Display for MatchedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  => rule {}.{} ({}:{})", self.domain, self.path, self.file, self.line)?;
        writeln!(f, "     limit    {}", self.limit)?;
        self.stated.iter().try_for_each(|stated| writeln!(f, "     stated   {stated}"))?;
        if let Some(applied) = &self.by_override {
            let whose = if applied.is_of_key { "key" } else { "rule" };
            writeln!(f, "     override {} of the {whose}, in place of {}", applied.id, applied.rule_limit)?;
        }
        if let Some(other) = &self.replaced_by {
            writeln!(f, "     replaced by {}.{other}: not charged, and passes", self.domain)?;
        }
        Ok(())
    }
}

impl fmt::Display for MatchedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "     counter  {} in {}", self.record, self.cell)?;
        writeln!(f, "     hash tag {}, slot {}", self.tag, self.slot)
    }
}
