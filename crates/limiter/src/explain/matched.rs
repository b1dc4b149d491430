//! The rule that a descriptor matches, and its counter.

use serde::Serialize;
use tollgate_core::descriptor::Entry;
use tollgate_rules::{Domain, Limit, Rule, RuleOverride, StatedValue};

use super::limit_text;
use crate::cell_of;

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
    pub has_min_interval: bool,
    /// Its `on_store_error` policy, if stated.
    #[serde(skip)]
    pub on_store_error: Option<&'static str>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedCounter {
    /// The record in the cell.
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
        let (on_store_error, replaced_by) = match rule.limit {
            // Without a limit there is no decision and nothing to replace.
            Limit::Unlimited => (None, None),
            Limit::Quota { .. } => {
                let replacing = matched.iter().find(replaces).map(|other| other.path());
                (rule.on_store_error.map(|policy| policy.name()), replacing)
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
            has_min_interval: has_min_interval(rule),
            on_store_error,
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

/// Whether a rule has a `min_interval`.
fn has_min_interval(rule: &Rule) -> bool {
    match rule.limit {
        Limit::Unlimited => false,
        Limit::Quota { policy, .. } => !policy.min_interval().is_zero(),
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
