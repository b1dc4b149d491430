//! Changes that operators, or the system for them, request.

use super::Record;
use crate::{AuditEntry, RecordKey};

/// Condition of a change on the record that its key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Any,
    Absent,
    Present,
    Revision(u64),
}

impl Expected {
    /// Whether it holds for the revision of an active record.
    pub(crate) fn is_met(self, known: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => known.is_none(),
            Self::Present => known.is_some(),
            Self::Revision(revision) => known == Some(revision),
        }
    }
}

/// A change to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewChange {
    pub(crate) key: RecordKey,
    pub(crate) expected: Expected,
    /// The record; `None` for its removal.
    pub(crate) record: Option<Record>,
    /// Entry of the audit log; `None` if an earlier change of the request has one for all.
    pub(crate) audit: Option<AuditEntry>,
}

impl NewChange {
    /// Puts a record in the place of an earlier one, if there is one.
    pub(crate) fn put(record: Record, audit: AuditEntry) -> Self {
        Self { key: record.key(), expected: Expected::Any, record: Some(record), audit: Some(audit) }
    }
}

tollgate_core::named! {
    /// Result of a change, by the words of the script.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum ChangeResult {
        Made = "made",
        /// The record is not as expected.
        Unlike = "unlike",
        /// There are too many.
        Full = "full",
    }
}
