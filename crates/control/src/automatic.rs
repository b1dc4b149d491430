//! Automatic entries of the deny list, each of a client that was banned again and again, until the end of its ban.
//!
//! They are stored apart from operators' entries, within a bound of their own, so that they never take an operator's room nor
//! replace or shorten an operator's entry.

use serde::{Deserialize, Serialize};
use tollgate_core::{ban::BanMode, clock::now_ms};
use tollgate_rules::{List, Listing, ListingError};

use crate::{
    Action, AuditEntry, ListPair, ListedBan, Pair, RecordKey, model::SYSTEM_AUTHOR, pairs::pairs_text,
};

tollgate_core::named! {
    /// Effect of an automatic entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum AutomaticMode {
        /// The client is denied.
        Enforce = "enforce",
        /// An operator lifted an entry, and exempts the client from another one until the end.
        Exempt = "exempt",
    }
}

/// An entry for the client of one counter, with an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomaticEntry {
    pub mode: AutomaticMode,
    pub domain: String,
    /// The descriptor that the counter limits, with exact values.
    pub descriptor: Vec<ListPair>,
    /// Path of the rule that bans.
    pub rule: String,
    /// The bans, or an operator's reason for an exemption.
    pub reason: String,
    /// `tollgate`, or the operator who made an exemption.
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// End in milliseconds since 1970.
    pub expires_at_ms: u64,
    /// Number of the ban in a row.
    pub level: u8,
}

/// Result of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Listed,
    /// The counter has an entry or an exemption.
    Known,
    /// There are too many automatic entries.
    Full,
}

impl AutomaticEntry {
    /// The entry for the client of a ban; `None` if the descriptor is not one of a list.
    pub fn of_ban(ban: &ListedBan) -> Option<Self> {
        let pairs = ban.descriptor.iter().map(|pair| ListPair::exact(&*pair.key, &*pair.value));
        let entry = Self {
            mode: AutomaticMode::Enforce,
            domain: ban.domain.clone(),
            descriptor: pairs.collect(),
            rule: ban.rule.clone(),
            reason: format!("ban {} in a row", ban.level),
            author: SYSTEM_AUTHOR.to_owned(),
            created_at_ms: now_ms(),
            expires_at_ms: ban.ends_at_ms,
            level: ban.level,
        };
        entry.listing().is_ok_and(|listing| listing.domain().is_some()).then_some(entry)
    }

    /// The ban of the entry's counter.
    pub fn ban(&self) -> ListedBan {
        let pair = |pair: &ListPair| Pair { key: pair.key.clone(), value: pair.value.clone() };
        let descriptor: Vec<Pair> = self.descriptor.iter().map(pair).collect();
        ListedBan {
            id: ListedBan::id_of(&self.domain, &self.rule, &descriptor),
            domain: self.domain.clone(),
            rule: self.rule.clone(),
            descriptor,
            is_truncated: false,
            level: self.level,
            mode: BanMode::Enforce,
            began_at_ms: self.created_at_ms,
            ends_at_ms: self.expires_at_ms,
            instance: String::new(),
        }
    }

    /// Its key as a record, by the counter's ban.
    pub(crate) fn record_key(&self) -> RecordKey {
        RecordKey::of("automatic entry", [&*self.ban().id])
    }

    /// The entry for enforcement.
    pub(crate) fn listing(&self) -> Result<Listing, ListingError> {
        let pairs = self.descriptor.iter().map(|pair| (&*pair.key, &*pair.value, pair.value_match));
        Listing::new(
            &self.record_key().to_string(),
            List::Deny,
            &self.domain,
            pairs,
            Some(self.expires_at_ms),
        )
    }

    /// Keys and values as text.
    pub fn key_text(&self) -> String {
        pairs_text(&self.descriptor)
    }

    /// The entry as the subject of an audit log entry.
    pub(crate) fn subject(&self) -> String {
        format!("deny {} {}", self.domain, self.key_text())
    }

    /// An audit log entry about it.
    pub(crate) fn audit(&self, author: &str, action: Action, comment: String) -> AuditEntry {
        AuditEntry::new(author, action, self.subject(), comment)
    }
}
