//! Immutable state of the store.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::automatic::AutomaticEntries;
use crate::{
    Added, AuditEntry, AutomaticEntry, ControlError, Runtime, Version,
    bounds::{MAX_AUDIT_ENTRIES, MAX_STORED_BYTES, MAX_VERSIONS, size},
    change::Change,
    stored::{StoredVersion, now_ms},
};

/// Content of the store; cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// By number; the last one is current.
    versions: BTreeMap<u64, Arc<StoredVersion>>,
    pub(super) runtime: Runtime,
    /// Newest last.
    audit: VecDeque<Arc<AuditEntry>>,
    /// Automatic entries, and their audit log, which leaves operators' entries their room.
    pub(super) automatic: AutomaticEntries,
    automatic_audit: VecDeque<Arc<AuditEntry>>,
    /// The audit log of overrides, beside the others because earlier releases reject their actions.
    override_audit: VecDeque<Arc<AuditEntry>>,
    /// Number of audit log entries so far.
    audited: u64,
}

impl State {
    pub(super) fn current(&self) -> Option<&Arc<StoredVersion>> {
        self.versions.last_key_value().map(|(_, stored)| stored)
    }

    pub(super) fn versions(&self, before: Option<u64>, limit: usize) -> Vec<Version> {
        let earlier = self.versions.range(..before.unwrap_or(u64::MAX));
        earlier.rev().take(limit).map(|(_, stored)| stored.version.clone()).collect()
    }

    pub(super) fn version(&self, number: u64) -> Option<Arc<StoredVersion>> {
        self.versions.get(&number).cloned()
    }

    /// Makes a version current, if the version that it is based on is current.
    pub(super) fn apply(
        &mut self,
        stored: StoredVersion,
        audit: AuditEntry,
    ) -> Result<Version, ControlError> {
        let current = self.current().map(|stored| stored.version.clone());
        if current.as_ref().map(|version| version.number) != stored.version.based_on {
            return Err(match current {
                Some(current) => ControlError::Stale { current: Box::new(current) },
                None => ControlError::Unavailable("no versions left".into()),
            });
        }
        let version = stored.version.clone();
        self.versions.insert(version.number, Arc::new(stored));
        self.drop_oldest();
        self.append_audit(audit);
        Ok(version)
    }

    /// Drops the oldest versions until the others fit.
    fn drop_oldest(&mut self) {
        let mut bytes: usize = self.versions.values().map(|stored| size(&stored.files)).sum();
        let max = usize::try_from(MAX_VERSIONS).unwrap_or(usize::MAX);
        while self.versions.len() > 1 && (self.versions.len() > max || bytes > MAX_STORED_BYTES) {
            let oldest = self.versions.pop_first();
            bytes = bytes.saturating_sub(oldest.map_or(0, |(_, stored)| size(&stored.files)));
        }
    }

    pub(super) fn change(&mut self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        let is_changed = self.runtime.apply(change, now_ms())?;
        if is_changed {
            self.append_audit(audit);
        }
        Ok(is_changed)
    }

    /// Adds automatic entries, each unless its id has one.
    pub(super) fn add_automatic(&mut self, new: Vec<(AutomaticEntry, AuditEntry)>) -> Vec<Added> {
        let now_ms = now_ms();
        let mut results = Vec::new();
        for (entry, audit) in new {
            let added = self.automatic.add(entry, now_ms);
            if added == Added::Listed {
                let audit = self.numbered(audit);
                append(&mut self.automatic_audit, audit);
            }
            results.push(added);
        }
        results
    }

    pub(super) fn lift_automatic(
        &mut self,
        id: &str,
        exemption: Option<&AutomaticEntry>,
        audit: AuditEntry,
    ) -> bool {
        let is_lifted = self.automatic.lift(id, exemption, now_ms());
        if is_lifted {
            self.append_audit(audit);
        }
        is_lifted
    }

    pub(super) fn audit(&self, before: Option<&str>, limit: usize) -> Vec<AuditEntry> {
        let before = before.map_or(u64::MAX, |id| id.parse().unwrap_or(0));
        let earlier = |entry: &&Arc<AuditEntry>| entry.id.parse::<u64>().is_ok_and(|id| id < before);
        let latest = |log: &VecDeque<Arc<AuditEntry>>| {
            log.iter().rev().filter(earlier).take(limit).map(|entry| AuditEntry::clone(entry)).collect()
        };
        let mut all: Vec<AuditEntry> = latest(&self.audit);
        let others: [Vec<AuditEntry>; 2] = [&self.automatic_audit, &self.override_audit].map(latest);
        if others.iter().any(|others| !others.is_empty()) {
            all.extend(others.into_iter().flatten());
            all.sort_by_key(|entry| Reverse(entry.id.parse::<u64>().unwrap_or_default()));
            all.truncate(limit);
        }
        all
    }

    /// Appends an entry to the audit log of overrides.
    pub(super) fn audit_override(&mut self, entry: AuditEntry) {
        let entry = self.numbered(entry);
        append(&mut self.override_audit, entry);
    }

    fn append_audit(&mut self, entry: AuditEntry) {
        let entry = self.numbered(entry);
        append(&mut self.audit, entry);
    }

    fn numbered(&mut self, entry: AuditEntry) -> AuditEntry {
        self.audited = self.audited.saturating_add(1);
        AuditEntry { id: self.audited.to_string(), ..entry }
    }
}

fn append(log: &mut VecDeque<Arc<AuditEntry>>, entry: AuditEntry) {
    log.push_back(Arc::new(entry));
    while log.len() > MAX_AUDIT_ENTRIES {
        log.pop_front();
    }
}
