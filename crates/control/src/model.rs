//! Versions of the rules, the audit log, and errors of the store that has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinError;
use tollgate_core::clock::now_ms;

use crate::bounds::{MAX_VERSION_BYTES, truncated};

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
    /// Restored what the store had lost.
    Restore,
    /// Copied what another region writes.
    Copy,
}

/// Author of changes that no operator made.
pub(super) const SYSTEM_AUTHOR: &str = "tollgate";

/// Whether a caller's name is that of the system or looks like it: in another case, with signs, or with letters of another
/// alphabet.
pub fn is_like_system_author(name: &str) -> bool {
    let letters: Vec<char> =
        name.chars().filter(|letter| letter.is_alphanumeric() || *letter == '|').collect();
    let is_like = |(letter, own): (&char, char)| match letter {
        '0' => own == 'o',
        '1' | 'I' | '|' => own == 'l',
        letter => !letter.is_ascii() || letter.eq_ignore_ascii_case(&own),
    };
    letters.len() == SYSTEM_AUTHOR.len()
        && letters.iter().zip(SYSTEM_AUTHOR.chars()).all(is_like)
        && letters.iter().any(char::is_ascii)
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

impl AuditEntry {
    /// An entry without an id yet.
    pub(super) fn new(author: &str, action: Action, subject: String, comment: String) -> Self {
        let [author, subject, comment] = [author.to_owned(), subject, comment].map(truncated);
        Self { id: String::new(), at_ms: now_ms(), author, action, subject, comment, ban: None }
    }

    /// Whether no operator made the change.
    pub(super) fn is_of_system(&self) -> bool {
        self.author == SYSTEM_AUTHOR
    }

    /// An entry for state that the store had lost and an instance restored.
    pub(super) fn restored(subject: String) -> Self {
        Self::new(SYSTEM_AUTHOR, Action::Restore, subject, "restored: the store had lost it".to_owned())
    }
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

/// Error of a read or a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Another version is current than the one that a change is based on.
    #[error("version {} is current, made by {}; expected the version that the change is based on", .current.number, .current.author)]
    Stale {
        /// The current version.
        current: Box<Version>,
    },
    /// The record is another one than the one that a change is based on.
    #[error("{found}; expected the one that `base` states")]
    StaleRecord {
        found: String,
        /// The present record as the API shows it, if there is one.
        current: Option<Value>,
    },
    /// Rules from a directory or a control plane are changed there.
    #[error("the rules come from files; change them there")]
    ReadOnly,
    /// Another region writes the rules and records.
    #[error("region {region} writes the rules and records of all regions; change them there")]
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

/// Size of a version's files in bytes.
pub(crate) fn files_bytes(files: &Files) -> usize {
    files.iter().map(|(name, text)| name.len() + text.len()).sum()
}

/// Checks the size of a version's files.
///
/// # Errors
/// When they are too large.
pub fn check_files(files: &Files) -> ControlResult<()> {
    check_size("a version", files_bytes(files), MAX_VERSION_BYTES)
}

/// Checks the size of a text, or of several.
pub(crate) fn check_size(what: &'static str, bytes: usize, most: usize) -> ControlResult<()> {
    if bytes > most { Err(ControlError::TooLarge { what, most }) } else { Ok(()) }
}

/// Checks a number of elements.
pub(crate) fn check_count(what: &'static str, count: usize, most: usize) -> ControlResult<()> {
    if count > most { Err(ControlError::TooMany { what, most }) } else { Ok(()) }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_the_systems_is_one() {
        for name in [
            "tollgate",
            "TollGate",
            " toll gate ",
            "toll-gate.",
            "t\u{43e}llg\u{430}t\u{435}",
            "T011GATE",
            "toIlgate",
            "to||gate",
        ] {
            assert!(is_like_system_author(name), "{name}");
        }
        for name in ["", "ann", "tollgate-ops", "collgate", "Владимир", "tollgates"] {
            assert!(!is_like_system_author(name), "{name}");
        }
    }
}
