//! The book: what operators, or the system for them, change at run time, as records by key, each with or without an end.
//!
//! Instances share the records in Redis, and each holds all of them. A change has a *revision*, which grows with time; an
//! instance fetches what has a later one than its own. What the store lost, the instances write back: the first one with a
//! revision above that of the store. A *lineage* distinguishes the states of two stores, and an *epoch* the restorations of
//! one, after each of which all instances fetch all again. With a file, an instance has its records also after a restart.

mod change;
mod journal;
mod override_entry;
mod records;
mod replica;
mod view;

use std::mem;

use serde::{Deserialize, Serialize};

use self::view::Properties;
use crate::bounds::{
    MAX_AUTOMATIC_ENTRIES, MAX_ENTRIES, MAX_NAME_BYTES, MAX_OVERRIDES, MAX_PAIRS, MAX_SWITCHES,
    MAX_VALUE_BYTES, truncated,
};
use crate::model::{check_count, check_size};
use crate::{Action, AutomaticEntry, ControlResult, ListEntry, RecordKey, Switch, pairs::pairs_text};

pub(crate) use self::change::{ChangeResult, Expected, NewChange};
pub use self::override_entry::OverrideEntry;
pub(crate) use self::records::{Book, BookHead, RecordChange, Stamps};
pub(crate) use self::replica::BookReplica;
pub use self::view::{RecordPage, RecordSelection, RecordView};

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// Limit over a rule or a key of it.
    Override(OverrideEntry),
    /// Entry of the allow or the deny list.
    ListEntry(ListEntry),
    /// Entry of the deny list that the system made.
    Automatic(AutomaticEntry),
    /// Switch of a rule, with its ramp, or an emergency.
    Switch(Switch),
}

tollgate_core::named! {
    /// The books of an installation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum BookName {
        /// Records of operators, which other regions copy, and which the file has.
        Operators = "records",
        /// Automatic entries, of which each region has its own.
        System = "automatic entries",
    }
}

impl BookName {
    /// Maximum number of its records. Those of operators are bounded by kind as well, which concurrent changes can exceed.
    pub(crate) const fn max_records(self) -> usize {
        match self {
            Self::Operators => MAX_OVERRIDES + MAX_ENTRIES + MAX_SWITCHES,
            Self::System => MAX_AUTOMATIC_ENTRIES,
        }
    }
}

tollgate_core::named! {
    /// Kind of a record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RecordKind {
        Override = "override",
        ListEntry = "list_entry",
        Automatic = "automatic",
        Switch = "switch",
    }
}

impl RecordKind {
    /// The actions of the audit log that put one and remove one.
    pub(crate) const fn actions(self) -> (Action, Action) {
        match self {
            Self::Override => (Action::SetOverride, Action::RemoveOverride),
            Self::ListEntry | Self::Automatic => (Action::AddEntry, Action::RemoveEntry),
            Self::Switch => (Action::SetSwitch, Action::RemoveSwitch),
        }
    }

    /// Its name in errors, and the maximum number of its records.
    pub(crate) const fn bound(self) -> (&'static str, usize) {
        match self {
            Self::Override => ("overrides", MAX_OVERRIDES),
            Self::ListEntry => ("entries of lists", MAX_ENTRIES),
            Self::Automatic => ("automatic entries", MAX_AUTOMATIC_ENTRIES),
            Self::Switch => ("switches", MAX_SWITCHES),
        }
    }
}

impl Record {
    /// Its kind.
    pub const fn kind(&self) -> RecordKind {
        match self {
            Self::Override(_) => RecordKind::Override,
            Self::ListEntry(_) => RecordKind::ListEntry,
            Self::Automatic(_) => RecordKind::Automatic,
            Self::Switch(_) => RecordKind::Switch,
        }
    }

    /// Its key.
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Override(entry) => entry.record_key(),
            Self::ListEntry(entry) => entry.record_key(),
            Self::Automatic(entry) => entry.record_key(),
            Self::Switch(switch) => RecordKey::of("switch", [&*switch.domain, &switch.rule]),
        }
    }

    /// Its end in milliseconds since 1970, if it has one.
    pub(crate) const fn ends_at_ms(&self) -> Option<u64> {
        match self {
            Self::Override(entry) => entry.expires_at_ms,
            Self::ListEntry(entry) => entry.expires_at_ms,
            Self::Automatic(entry) => Some(entry.expires_at_ms),
            Self::Switch(switch) => switch.expires_at_ms,
        }
    }

    /// The properties by which it is selected.
    fn properties(&self) -> Properties<'_> {
        let (kind, ends_at_ms) = (self.kind(), self.ends_at_ms());
        let (domain, rule, reason, author) = match self {
            Self::Override(entry) => (&entry.domain, &*entry.rule, &entry.reason, &entry.author),
            Self::ListEntry(entry) => (&entry.domain, "", &entry.reason, &entry.author),
            Self::Automatic(entry) => (&entry.domain, &*entry.rule, &entry.reason, &entry.author),
            Self::Switch(switch) => (&switch.domain, &*switch.rule, &switch.reason, &switch.author),
        };
        Properties { kind, domain, rule, reason, author, ends_at_ms }
    }

    /// The operator's reason.
    pub(crate) fn reason(&self) -> &str {
        self.properties().reason
    }

    /// The operator who made it, or the system.
    pub fn author(&self) -> &str {
        self.properties().author
    }

    /// Its key or descriptor as text.
    fn pairs_text(&self) -> String {
        match self {
            Self::Override(entry) => entry.key_text(),
            Self::ListEntry(entry) => pairs_text(&entry.descriptor),
            Self::Automatic(entry) => entry.key_text(),
            Self::Switch(_) => String::new(),
        }
    }

    /// The record as the subject of an audit log entry.
    pub fn subject(&self) -> String {
        match self {
            Self::Override(entry) => entry.subject(),
            Self::ListEntry(entry) => entry.subject(),
            Self::Automatic(entry) => entry.subject(),
            Self::Switch(switch) => switch.subject(),
        }
    }

    /// The record with bounded texts, if it may be stored.
    pub(crate) fn bounded(mut self) -> ControlResult<Self> {
        let Properties { domain, rule, .. } = self.properties();
        check_size("a domain", domain.len(), MAX_NAME_BYTES)?;
        check_size("a rule", rule.len(), MAX_NAME_BYTES)?;
        let (reason, author) = match &mut self {
            Self::Override(entry) => (&mut entry.reason, &mut entry.author),
            Self::ListEntry(entry) => {
                check_count("pairs of an entry", entry.descriptor.len(), MAX_PAIRS)?;
                for pair in &entry.descriptor {
                    check_size("a key", pair.key.len(), MAX_VALUE_BYTES)?;
                    check_size("a value", pair.value.len(), MAX_VALUE_BYTES)?;
                }
                (&mut entry.reason, &mut entry.author)
            }
            Self::Automatic(entry) => (&mut entry.reason, &mut entry.author),
            Self::Switch(switch) => (&mut switch.reason, &mut switch.author),
        };
        for text in [reason, author] {
            *text = truncated(mem::take(text));
        }
        Ok(self)
    }
}
