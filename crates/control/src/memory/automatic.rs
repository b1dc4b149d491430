//! Automatic entries in this process.

use std::collections::BTreeMap;

use crate::{Added, AutomaticEntry, bounds::MAX_AUTOMATIC_ENTRIES};

/// Automatic entries by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AutomaticEntries {
    entries: BTreeMap<String, AutomaticEntry>,
    /// Number of changes.
    changes: u64,
}

impl AutomaticEntries {
    /// Distinguishes the content from earlier content.
    pub(super) fn token(&self) -> String {
        if self.changes == 0 { String::new() } else { self.changes.to_string() }
    }

    /// The active entries.
    pub(super) fn active(&self, now_ms: u64) -> Vec<AutomaticEntry> {
        let active = self.entries.values().filter(|entry| entry.expires_at_ms > now_ms);
        let mut active: Vec<_> = active.cloned().collect();
        active.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        active
    }

    pub(super) fn add(&mut self, entry: AutomaticEntry, now_ms: u64) -> Added {
        self.entries.retain(|_, known| known.expires_at_ms > now_ms);
        if self.entries.contains_key(&entry.id) {
            return Added::Known;
        }
        if self.entries.len() >= MAX_AUTOMATIC_ENTRIES {
            return Added::Full;
        }
        self.entries.insert(entry.id.clone(), entry);
        self.changes = self.changes.saturating_add(1);
        Added::Listed
    }

    /// Removes an active entry, or replaces it by an exemption; whether there was one.
    pub(super) fn lift(&mut self, id: &str, exemption: Option<&AutomaticEntry>, now_ms: u64) -> bool {
        if self.entries.get(id).is_none_or(|known| known.expires_at_ms <= now_ms) {
            return false;
        }
        match exemption {
            Some(exemption) => self.entries.insert(id.to_owned(), exemption.clone()),
            None => self.entries.remove(id),
        };
        self.changes = self.changes.saturating_add(1);
        true
    }
}
