//! A version of the rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Rule files by name, as they would stand in a directory: `edge.yaml`, `teams/search.yaml`.
pub type Files = BTreeMap<String, String>;

/// What is told of a version, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Counts up from 1, with every change, a rollback included.
    pub number: u64,
    /// The version that was current when this one was made.
    pub based_on: Option<u64>,
    /// The version whose files it has again, if it is a rollback.
    pub rollback_to: Option<u64>,
    /// Who made it.
    pub author: String,
    /// Why.
    pub comment: String,
    /// When, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Tells contents apart: equal ones are the same files.
    pub fingerprint: String,
}

/// A version to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Its files.
    pub files: Files,
    /// The version that is to be current when it is made; none at all when it is to be the first.
    pub based_on: Option<u64>,
    /// The version whose files these are, if it is a rollback.
    pub rollback_to: Option<u64>,
    /// Who makes it.
    pub author: String,
    /// Why.
    pub comment: String,
}
