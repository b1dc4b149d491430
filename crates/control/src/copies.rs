//! Copies of the rule versions, lists, switches and overrides that another region writes.
//!
//! ```text
//! writing region                     any other region
//! its store <── rules_after ──┬── peer ──> adopt ──> its store ──> reconcilers of its instances
//!                             └── only what differs, found by tokens
//! ```
//!
//! Each region has a control store of its own, and so its last copy when the writing region is unreachable. One instance
//! of a region compares at a time, by a claim in its store that ends by itself. A copy replaces only the state that was
//! compared, so that concurrent copies do not undo each other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::bounds::{MAX_ENTRIES, MAX_SWITCHES};
use crate::model::{Action, AuditEntry, ControlError, ControlResult, Version, check_count, check_size};

/// Maximum size of a token.
pub(crate) const MAX_TOKEN_BYTES: usize = 64;
/// Maximum size of a trail, which holds 100 tokens.
pub(crate) const MAX_TRAIL_BYTES: usize = 4_096;
/// Maximum size of the fields of lists and switches.
pub(crate) const MAX_LISTS_BYTES: usize = 1 << 20;

/// Token of lists and switches in a store that never had any.
pub(crate) const NO_LISTS: &str = "none";

/// Identity of the rules, lists and switches of a store, empty for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesIdentity {
    /// Token of the current version.
    pub version: String,
    /// Token of the lists and switches.
    pub lists: String,
}

/// Rules, lists and switches that differ from a known state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesCopy {
    pub version: Option<VersionCopy>,
    pub lists: Option<ListsCopy>,
    /// State of the overrides; `None` from a release that does not copy them.
    pub overrides: Option<OverridesHead>,
}

/// State of the overrides of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridesHead {
    /// Distinguishes the states of two stores; empty before the first change.
    pub lineage: String,
    /// The last revision.
    pub revision: u64,
    /// Time of the last restoration.
    pub epoch: u64,
}

/// Overrides that a store has copied, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedOverrides {
    /// Name of the state that they are a copy of; empty for none.
    pub source: String,
    /// The last revision.
    pub revision: u64,
}

/// A part of the changes of overrides that a copy lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridesPage {
    /// The state of the store.
    pub head: OverridesHead,
    /// Whether these are the first of all overrides, in place of what the copy has.
    pub is_whole: bool,
    pub changes: Vec<CopiedChange>,
    /// Whether more follow.
    pub has_more: bool,
}

/// A change of an override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedChange {
    pub revision: u64,
    /// Identifier, in hexadecimal digits.
    pub id: String,
    /// The override in JSON; empty for its removal.
    pub payload: Vec<u8>,
}

impl OverridesHead {
    /// Name of the state as the source of a copy from a region.
    pub(crate) fn source_in(&self, region: &str) -> String {
        let Self { lineage, epoch, .. } = self;
        format!("{region}:{lineage}:{epoch}")
    }
}

/// A version as the store has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionCopy {
    pub number: u64,
    pub token: String,
    pub trail: String,
    /// JSON of the version.
    pub meta: Vec<u8>,
    /// JSON of its files.
    pub files: Vec<u8>,
}

/// Lists and switches as the store has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListsCopy {
    pub generation: u64,
    pub token: String,
    pub trail: String,
    pub entries: Vec<StoredField>,
    pub switches: Vec<StoredField>,
}

/// A field of a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredField {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

/// State of the region's store before a comparison with the writing region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyClaim {
    /// Whether the comparison is this instance's.
    pub is_claimed: bool,
    /// Time by the store's clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// Time of the last comparison, if there was one.
    pub compared_ms: Option<u64>,
    /// Identity of what the region has.
    pub has: RulesIdentity,
    /// The overrides that it has.
    pub overrides: CopiedOverrides,
}

/// Parts that a copy replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    pub version: bool,
    pub lists: bool,
    pub overrides: bool,
}

/// Rules that this region copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyState {
    /// Region that writes them.
    pub region: String,
    /// Time of the last comparison with it, in milliseconds since 1970, if there was one.
    pub compared_ms: Option<u64>,
    /// Reason why the last comparison by this instance failed, if it did.
    pub problem: Option<String>,
}

tollgate_core::named! {
    /// Result of a comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum CopyResult {
        Unchanged = "unchanged",
        Copied = "copied",
        Failed = "failed",
    }
}

pub(super) fn audit(region: &str, action: Action, subject: String) -> AuditEntry {
    let audit = AuditEntry::restored(action, subject);
    AuditEntry { comment: format!("copied from region {region}"), ..audit }
}

pub(crate) fn check_version(copy: &VersionCopy) -> ControlResult<()> {
    check_identity(&copy.token, &copy.trail)?;
    let version: Version = serde_json::from_slice(&copy.meta).map_err(|error| malformed(&error))?;
    if version.number != copy.number || copy.number == 0 {
        return Err(ControlError::Malformed("a version with another number".into()));
    }
    // Only the form; each instance checks the rules before it activates them.
    serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(&copy.files)
        .map(drop)
        .map_err(|error| malformed(&error))
}

pub(crate) fn check_lists(copy: &ListsCopy) -> ControlResult<()> {
    check_identity(&copy.token, &copy.trail)?;
    check_count("entries of lists", copy.entries.len(), MAX_ENTRIES)?;
    check_count("switches", copy.switches.len(), MAX_SWITCHES)?;
    let fields = copy.entries.iter().chain(&copy.switches);
    let bytes = fields.map(|field| field.name.len() + field.value.len()).sum();
    check_size("a copy of lists and switches", bytes, MAX_LISTS_BYTES)
}

fn check_identity(token: &str, trail: &str) -> ControlResult<()> {
    let is_valid = (1..=MAX_TOKEN_BYTES).contains(&token.len()) && trail.len() <= MAX_TRAIL_BYTES;
    if is_valid { Ok(()) } else { Err(ControlError::Malformed("a copy without a valid token".into())) }
}

fn malformed(error: &serde_json::Error) -> ControlError {
    ControlError::Malformed(error.to_string())
}
