//! Records as the API shows them, and the selection of a page of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Record, RecordKind};
use crate::lists::is_active;
use crate::{ControlError, RecordKey};

/// A record with its key and revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordView {
    pub key: RecordKey,
    /// Revision of its last change.
    pub revision: u64,
    #[serde(flatten)]
    pub record: Record,
    /// Reason why it has no effect, if so.
    pub problem: Option<String>,
}

impl RecordView {
    pub(crate) const fn new(key: RecordKey, revision: u64, record: Record) -> Self {
        Self { key, revision, record, problem: None }
    }

    /// The error of a change that is based on another record with this key than the present one.
    pub(crate) fn stale(key: RecordKey, current: Option<&Self>) -> ControlError {
        let found = match current {
            Some(Self { revision, record, .. }) => {
                format!("revision {revision} of the record {key} is current, made by {}", record.author())
            }
            None => format!("there is no record {key} now"),
        };
        ControlError::StaleRecord {
            found,
            current: current.and_then(|current| serde_json::to_value(current).ok()),
        }
    }
}

/// Selection of a page of records: those that match all properties that are stated.
#[derive(Clone, Debug, Default)]
pub struct RecordSelection {
    pub kind: Option<RecordKind>,
    pub domain: Option<String>,
    pub rule: Option<String>,
    /// Text in the domain, rule, descriptor, reason or author, in any case of ASCII letters.
    pub search: Option<String>,
    /// The key after which they follow.
    pub after: Option<RecordKey>,
    /// Maximum number of records.
    pub limit: usize,
}

/// A page of records, in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// Revision of the operators' records that this instance holds.
    pub revision: u64,
    pub records: Vec<RecordView>,
    /// Whether more follow.
    pub is_truncated: bool,
    /// Number of all records of each kind.
    pub counts: BTreeMap<RecordKind, usize>,
}

/// Properties of a record by which it is selected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Properties<'r> {
    pub(super) kind: RecordKind,
    pub(super) domain: &'r str,
    /// Empty if it has none.
    pub(super) rule: &'r str,
    pub(super) reason: &'r str,
    pub(super) author: &'r str,
    pub(super) ends_at_ms: Option<u64>,
}

impl RecordSelection {
    /// Whether a record that has these properties, and a key or descriptor with this text, is selected and has not ended.
    pub(super) fn selects(
        &self,
        record: Properties<'_>,
        pairs: impl FnOnce() -> String,
        now_ms: u64,
    ) -> bool {
        let Properties { kind, domain, rule, reason, author, ends_at_ms } = record;
        let is_wanted = |wanted: Option<&str>, text| wanted.is_none_or(|wanted| wanted == text);
        is_active(ends_at_ms, now_ms)
            && self.kind.is_none_or(|wanted| wanted == kind)
            && is_wanted(self.domain.as_deref(), domain)
            && is_wanted(self.rule.as_deref(), rule)
            && self.search.as_deref().is_none_or(|search| {
                [domain, rule, reason, author].iter().any(|text| contains(text, search))
                    || contains(&pairs(), search)
            })
    }
}

/// Whether a text contains another one, in any case of ASCII letters.
fn contains(text: &str, searched: &str) -> bool {
    searched.is_empty()
        || text.as_bytes().windows(searched.len()).any(|part| part.eq_ignore_ascii_case(searched.as_bytes()))
}
