//! Automatic entries, and the exchange of reports.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_rules::config::Fingerprint;

use crate::{
    ListPair,
    bounds::truncated,
    stored::{SYSTEM_AUTHOR, now_ms},
};

/// Effect of an automatic entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutomaticMode {
    /// Nothing is denied.
    DryRun,
    /// The key is denied.
    Enforce,
    /// An operator lifted an entry, and exempts the key from another one until the end.
    Exempt,
}

/// An entry for one key, with an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomaticEntry {
    /// Unique for the domain and the descriptor.
    pub id: String,
    pub mode: AutomaticMode,
    pub domain: String,
    /// The whole descriptor, with exact values.
    pub descriptor: Vec<ListPair>,
    /// Name of the abuse rule.
    pub rule: String,
    /// The abuse, or an operator's reason for an exemption.
    pub reason: String,
    /// `tollgate`, or the operator who made an exemption.
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// End in milliseconds since 1970.
    pub expires_at_ms: u64,
    /// Number of remembered offences, this one included.
    pub offences: u64,
}

/// An entry to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The entry; the store determines its times and the number of offences.
    pub entry: AutomaticEntry,
    /// Time to live at the first offence.
    pub duration: Duration,
    /// Longest time to live.
    pub max_duration: Duration,
    /// Time after the end that forgives one offence.
    pub forgive: Duration,
}

/// Result of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Listed,
    /// The key has an entry or an exemption.
    Known,
    /// There are too many automatic entries.
    Full,
}

/// Result of an exchange of reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Number of instances that report.
    pub instances: u32,
    /// Keys that all instances are to watch, as the leader set them.
    pub watch: Vec<u8>,
    /// The ids and reports of all present instances, if this one leads.
    pub reports: Option<Vec<(String, Vec<u8>)>>,
}

impl AutomaticMode {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::DryRun, Self::Enforce, Self::Exempt];

    /// Name in the API and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DryRun => "dry_run",
            Self::Enforce => "enforce",
            Self::Exempt => "exempt",
        }
    }
}

impl NewEntry {
    /// Returns an entry for a descriptor of a domain. `durations` are the first and the longest time to live, and the time
    /// that forgives one offence.
    pub fn new(
        mode: AutomaticMode,
        domain: String,
        descriptor: Vec<ListPair>,
        rule: String,
        evidence: String,
        [duration, max_duration, forgive]: [Duration; 3],
    ) -> Self {
        let entry = AutomaticEntry {
            id: id_of(&domain, &descriptor),
            mode,
            domain,
            descriptor,
            rule,
            reason: truncated(evidence),
            author: SYSTEM_AUTHOR.to_owned(),
            created_at_ms: now_ms(),
            expires_at_ms: 0,
            offences: 0,
        };
        Self { entry, duration, max_duration, forgive }
    }
}

impl AutomaticEntry {
    /// The entry as the subject of an audit log entry.
    pub(crate) fn subject(&self) -> String {
        let pairs: Vec<String> = self.descriptor.iter().map(ToString::to_string).collect();
        let dry_run = if self.mode == AutomaticMode::DryRun { " (dry run)" } else { "" };
        format!("deny {} {}{dry_run}", self.domain, pairs.join(","))
    }

    /// The reason as the comment of an audit log entry.
    pub(crate) fn comment(&self) -> String {
        format!("abuse rule {}: {}", self.rule, self.reason)
    }
}

/// Identifier of the entry of a descriptor.
fn id_of(domain: &str, descriptor: &[ListPair]) -> String {
    let pairs = descriptor.iter().map(|pair| (&*pair.key, pair.value.as_bytes()));
    let hash = Fingerprint::of_files([("", domain.as_bytes())].into_iter().chain(pairs));
    format!("auto-{hash}")
}
