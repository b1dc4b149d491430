//! Copies of the rule versions and records that another region writes.
//!
//! ```text
//! writing region                     any other region
//! its store <── rules_after ──┬── peer ──> adopt ──> its store ──> reconcilers of its instances
//!                             └── only what differs, found by tokens
//! ```
//!
//! Each region has a control store of its own, and so its last copy when the writing region is unreachable. One instance
//! of a region compares at a time, by a claim in its store that ends by itself. A copy replaces only the state that was
//! compared, so that concurrent copies do not undo each other. Copies have the types of `proto/tollgate/region/v1/`, in which
//! regions send them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};
use tollgate_proto::tollgate::region::v1 as sent;

use crate::model::{Action, AuditEntry, ControlError, ControlResult, SYSTEM_AUTHOR, Version};

pub use self::sent::{
    ReadRecordsReply as RecordsPage, ReadRulesReply as RulesCopy, RecordChange as CopiedChange, RecordsHead,
    RulesVersion as VersionCopy,
};

/// Maximum size of a token.
pub(crate) const MAX_TOKEN_BYTES: usize = 64;
/// Maximum size of a trail, which holds 100 tokens.
pub(crate) const MAX_TRAIL_BYTES: usize = 4_096;
/// Records that a store has copied, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedRecords {
    /// Name of the state that they are a copy of; empty for none.
    pub source: String,
    /// The last revision.
    pub revision: u64,
}

/// Name of a state of records as the source of a copy from a region.
pub(crate) fn source_in(RecordsHead { lineage, epoch, .. }: &RecordsHead, region: &str) -> String {
    format!("{region}:{lineage}:{epoch}")
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
    /// Token of the version that the region has; empty for none.
    pub version: String,
    /// The records that it has.
    pub records: CopiedRecords,
}

/// Parts that a copy replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    pub version: bool,
    pub records: bool,
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

pub(super) fn audit(region: &str, subject: String) -> AuditEntry {
    AuditEntry::new(SYSTEM_AUTHOR, Action::Copy, subject, format!("copied from region {region}"))
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

fn check_identity(token: &str, trail: &str) -> ControlResult<()> {
    let is_valid = (1..=MAX_TOKEN_BYTES).contains(&token.len()) && trail.len() <= MAX_TRAIL_BYTES;
    if is_valid { Ok(()) } else { Err(ControlError::Malformed("a copy without a valid token".into())) }
}

fn malformed(error: &serde_json::Error) -> ControlError {
    ControlError::Malformed(error.to_string())
}
