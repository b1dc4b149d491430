//! Versions of the rules, lists and switches, the audit log, heartbeat records, and errors of the store that has them.

use std::{collections::BTreeMap, fmt};

use crate::{AutomaticEntry, bounds::truncated, ramp::Ramp};
use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use tollgate_core::EnforcedShare;

pub use tollgate_rules::{List, SwitchMode, ValueMatch};

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
    /// The version expected to be active when this one is stored; `None` for the first one.
    pub based_on: Option<u64>,
    /// The earlier version whose files a rollback restores.
    pub rollback_to: Option<u64>,
    pub author: String,
    pub comment: String,
}

/// A key and a value of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    pub key: String,
    pub value: String,
}

/// A key and a value of a list entry's descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPair {
    pub key: String,
    pub value: String,
    /// Meaning of the value. A pattern is not stored as such, so that releases without exact values read it too; they
    /// omit and report entries with exact ones.
    #[serde(default, rename = "match", skip_serializing_if = "is_pattern")]
    pub value_match: ValueMatch,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The form that serde calls.
const fn is_pattern(value_match: &ValueMatch) -> bool {
    matches!(value_match, ValueMatch::Pattern)
}

impl ListPair {
    /// The value as a pattern.
    pub fn pattern(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), value_match: ValueMatch::Pattern }
    }

    /// The value as a text.
    pub fn exact(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), value_match: ValueMatch::Exact }
    }
}

impl fmt::Display for ListPair {
    /// `key=pattern`, or `key="text"` with `"`, `\` and control characters escaped as in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value_match {
            ValueMatch::Pattern => write!(f, "{}={}", self.key, self.value),
            ValueMatch::Exact => write!(f, "{}={}", self.key, serde_json::Value::from(&*self.value)),
        }
    }
}

/// An entry of a list, as an operator wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// Unique id, made when the entry is added.
    pub id: String,
    pub list: List,
    /// The domain; `*` for every domain.
    pub domain: String,
    /// Keys, and values or patterns of values. A request matches if one of its descriptors has them all.
    pub descriptor: Vec<ListPair>,
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
    /// [`SwitchMode::Shadow`] if a share of the keys is enforced, so that releases without shares enforce the rule for no
    /// key.
    pub mode: SwitchMode,
    /// The keys for which the rule is enforced nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce_percent: Option<EnforcedShare>,
    /// Gradual increase of that share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
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
    /// Automatic entries of the deny list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub automatic: Vec<AutomaticEntry>,
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
    /// Set an override of a rule or a key.
    SetOverride,
    /// Removed an override.
    RemoveOverride,
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
    /// The changed object, for people: `version 12`, `deny edge api_key="abc"`.
    pub subject: String,
    /// The operator's reason, which may be empty.
    pub comment: String,
    /// Effect on the counter's ban, if only that was removed. Beside the action [`Action::ResetCounter`], because
    /// releases without bans reject a log with another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanRemoval>,
}

/// Removal of a ban by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanRemoval {
    /// The ban ends; the next one is longer.
    Lift,
    /// The ban and all earlier ones are removed.
    Forgive,
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
    /// Generation of the region table, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_generation: Option<u64>,
    /// Domains with requests within the last minute; incomplete if there are many.
    pub active_domains: Vec<String>,
    /// Reason why the current version is not active, if it is not.
    pub problem: Option<String>,
}

/// Error of a read or a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Another version is current than the one that a change is based on.
    #[error("version {} is current, made by {}; expected the version that the change is based on", .current.number, .current.author)]
    Stale {
        /// The current version.
        current: Box<Version>,
    },
    /// Rules from a directory or a control plane are changed there.
    #[error("the rules come from files; change them there")]
    ReadOnly,
    /// Another region writes the rules, lists and switches.
    #[error("region {region} writes the rules, lists and switches of all regions; change them there")]
    OtherRegion {
        /// Its name.
        region: String,
    },
    #[error("too many {what}; expected at most {most}")]
    TooMany { what: &'static str, most: usize },
    #[error("{what} is too large; expected at most {most} bytes")]
    TooLarge {
        what: &'static str,
        /// Maximum size in bytes.
        most: usize,
    },
    /// The store did not respond or refused; whether the change was made is unknown.
    #[error("the control store is unavailable: {0}")]
    Unavailable(String),
    #[error("malformed data in the control store: {0}")]
    Malformed(String),
}

/// Result of a read or a change.
pub type ControlResult<T> = Result<T, ControlError>;

/// A task on another thread has panicked, which is logged.
impl From<JoinError> for ControlError {
    fn from(error: JoinError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Errors of a server for a missing permission, of the user directly or in a script, also in Redis 7 and before.
const ACL_ERRORS: [&str; 3] = ["NOPERM", "ACL failure in script", "can't run this command or subcommand"];

impl ControlError {
    /// Whether the server's ACL denies the operation.
    pub(crate) fn is_acl_denial(&self) -> bool {
        let Self::Unavailable(reason) = self else { return false };
        ACL_ERRORS.iter().any(|denial| reason.contains(denial))
    }

    /// Label of the error in metrics and responses.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::ReadOnly => "read_only",
            Self::OtherRegion { .. } => "other_region",
            Self::TooMany { .. } => "too_many",
            Self::TooLarge { .. } => "too_large",
            Self::Unavailable(_) => "unavailable",
            Self::Malformed(_) => "malformed_reply",
        }
    }
}

tollgate_core::named! {
    /// Record that a region keeps for instances that start, by the name of its key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RegionRecord {
        /// The region's tables that may count.
        Tables = "region-tables",
        /// The primary region by the last table, and whether the own region waits to become it.
        Primary = "region-primary",
    }
}

/// A unique id: the host's name and a random part.
pub(crate) fn instance_id() -> String {
    format!("{}-{:08x}", truncated(host_name()), fastrand::u32(..))
}

#[cfg(target_os = "linux")]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The host name is read on Linux only.
#[cfg(not(target_os = "linux"))]
fn host_name() -> String {
    "tollgate".to_owned()
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn list_entries_of_an_earlier_release_keep_their_meaning() {
        let text = r#"{"id": "1", "list": "deny", "domain": "d", "descriptor": [{"key": "k", "value": "ab*"}],
        "reason": "", "author": "ada", "created_at_ms": 1, "expires_at_ms": null}"#;
        let entry: ListEntry = serde_json::from_str(text).expect("an entry");
        assert_eq!(entry.descriptor, [ListPair::pattern("k", "ab*")]);
    }
}
