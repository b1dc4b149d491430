//! Versions of the rules, lists and switches, the audit log, and heartbeat records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use tollgate_rules::{List, SwitchMode};

/// Rule files by name, relative to the directory of rules: `edge.yaml`, `teams/search.yaml`.
pub type Files = BTreeMap<String, String>;

/// Description of a version, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Number, counted up from 1 with every change, rollbacks included.
    pub number: u64,
    /// The version that was current when this one was made.
    pub based_on: Option<u64>,
    /// The earlier version whose files a rollback restores.
    pub rollback_to: Option<u64>,
    pub author: String,
    pub comment: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Fingerprint of the files; equal fingerprints mean equal files.
    pub fingerprint: String,
}

/// A version before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub files: Files,
    /// The version that must be current when this one is stored; `None` for the first one.
    pub based_on: Option<u64>,
    /// The earlier version whose files a rollback restores.
    pub rollback_to: Option<u64>,
    pub author: String,
    pub comment: String,
}

/// A key, and a value or a pattern of values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The descriptor entry's key.
    pub key: String,
    /// The entry's value, or a pattern.
    pub value: String,
}

/// An entry of a list, as an operator wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// Unique id, made when the entry is added.
    pub id: String,
    pub list: List,
    /// The domain; `*` for every domain.
    pub domain: String,
    /// Keys, and patterns of their values: exact, with `*`, or an address range. A request matches if one of its
    /// descriptors has them all.
    pub descriptor: Vec<Pair>,
    pub reason: String,
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// A switch of one rule, as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The rule's domain.
    pub domain: String,
    /// The rule's path, as in metrics and `/rlconfig`.
    pub rule: String,
    pub mode: SwitchMode,
    pub reason: String,
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// All lists and switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Number of changes so far.
    pub generation: u64,
    /// The entries of both lists.
    pub entries: Vec<ListEntry>,
    pub switches: Vec<Switch>,
}

/// Kind of an operator's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Made a version current.
    Apply,
    /// Made the files of an earlier version current again.
    Rollback,
    /// Added an entry to a list.
    AddEntry,
    /// Removed an entry from a list.
    RemoveEntry,
    /// Set the switch of a rule.
    SetSwitch,
    /// Removed the switch of a rule.
    RemoveSwitch,
    /// Reset a counter.
    ResetCounter,
    /// Refunded hits to a counter.
    RefundCounter,
}

/// Record of an operator's change. Contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Unique id; later entries have greater ids.
    pub id: String,
    /// Time in milliseconds since 1970.
    pub at_ms: u64,
    pub author: String,
    pub action: Action,
    /// The changed object, for people: `version 12`, `deny edge api_key=abc`.
    pub subject: String,
    /// The operator's reason, which may be empty.
    pub comment: String,
}

/// Heartbeat record of an instance, sent every second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Unique id: the host's name and a random part.
    pub id: String,
    /// Version of the program.
    pub program: String,
    /// The active version of the rules, if versions have numbers.
    pub version: Option<u64>,
    /// Fingerprint of the active rules.
    pub fingerprint: String,
    /// Generation of the active lists and switches.
    pub generation: u64,
    /// Start of the process, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// Time of the heartbeat, in milliseconds since 1970.
    pub seen_at_ms: u64,
    /// Domains with requests within the last minute; incomplete if there are many.
    pub active_domains: Vec<String>,
    /// Reason why the current version is not active, if it is not.
    pub problem: Option<String>,
}
