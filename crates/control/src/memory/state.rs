//! Immutable state of the store.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    AuditEntry, ControlError, Runtime, Version,
    bounds::{MAX_AUDIT_ENTRIES, MAX_STORED_BYTES, MAX_VERSIONS, size},
    change::Change,
    stored::{StoredVersion, now_ms},
};

/// Content of the store; cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// By number; the last one is current.
    versions: BTreeMap<u64, Arc<StoredVersion>>,
    pub(super) runtime: Runtime,
    /// Newest last.
    audit: VecDeque<Arc<AuditEntry>>,
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

    pub(super) fn audit(&self, before: Option<&str>, limit: usize) -> Vec<AuditEntry> {
        let before = before.map_or(u64::MAX, |id| id.parse().unwrap_or(0));
        let earlier = |entry: &&Arc<AuditEntry>| entry.id.parse::<u64>().is_ok_and(|id| id < before);
        self.audit.iter().rev().filter(earlier).take(limit).map(|entry| AuditEntry::clone(entry)).collect()
    }

    fn append_audit(&mut self, entry: AuditEntry) {
        self.audited = self.audited.saturating_add(1);
        self.audit.push_back(Arc::new(AuditEntry { id: self.audited.to_string(), ..entry }));
        while self.audit.len() > MAX_AUDIT_ENTRIES {
            self.audit.pop_front();
        }
    }
}
