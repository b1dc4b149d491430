//! Who changed what.

use serde::{Deserialize, Serialize};

/// What an operator did.
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
    /// Gave hits back to a counter.
    RefundCounter,
}

/// What an operator did, when, and to what. Tells no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Tells entries apart, and grows.
    pub id: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who.
    pub author: String,
    /// What.
    pub action: Action,
    /// To what, for people: `version 12`, `deny edge api_key=abc`.
    pub subject: String,
    /// Why, as far as was said.
    pub comment: String,
}
