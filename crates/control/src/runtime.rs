//! What takes effect at once: lists and switches.

use serde::{Deserialize, Serialize};

pub use tollgate_rules::{List, SwitchMode};

/// A key, and a value or a pattern of values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The descriptor entry's key.
    pub key: String,
    /// Its value, or a pattern.
    pub value: String,
}

/// An entry of a list, as an operator wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// Tells entries apart; made when it is added.
    pub id: String,
    /// Which list.
    pub list: List,
    /// The domain that it is for; `*` for every domain.
    pub domain: String,
    /// Keys, and patterns of their values: exact, with `*`, or an address range. A request matches when one of its
    /// descriptors has them all.
    pub descriptor: Vec<Pair>,
    /// Why.
    pub reason: String,
    /// Who added it.
    pub author: String,
    /// When, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// When it ends by itself, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// A switch of one rule, as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The rule's domain.
    pub domain: String,
    /// The rule's path, as metrics and `/rlconfig` name it.
    pub rule: String,
    /// What it makes of it.
    pub mode: SwitchMode,
    /// Why.
    pub reason: String,
    /// Who set it.
    pub author: String,
    /// When, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// When it ends by itself, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// All lists and switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Counts up with every change.
    pub generation: u64,
    /// The entries of both lists.
    pub entries: Vec<ListEntry>,
    /// The switches.
    pub switches: Vec<Switch>,
}
