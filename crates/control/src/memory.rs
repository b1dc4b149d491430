//! Versions, lists and switches in this process.

use std::collections::{BTreeMap, VecDeque};
use std::{cmp::Reverse, sync::Arc};

use parking_lot::Mutex;
use tollgate_core::clock::now_ms;

use crate::bounds::{MAX_AUDIT_ENTRIES, MAX_AUTOMATIC_ENTRIES, MAX_STORED_BYTES, MAX_VERSIONS};
use crate::stored::{FilesPresence, StoreHead, StoredRuntime, StoredVersion};
use crate::{
    Added, AuditEntry, AutomaticEntry, ControlError, ControlResult, Instance, Runtime, Version,
    events::EventLog, listed_bans::MemoryBans, lists::Change, model::files_bytes, rule_overrides::BookHead,
};

/// Store in this process.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) state: Mutex<MemoryState>,
    /// The last heartbeat of this instance, which is the only one.
    instance: Mutex<Option<Instance>>,
    pub(crate) events: EventLog,
    pub(crate) bans: MemoryBans,
}

impl Memory {
    /// Records the heartbeat of this instance, which holds the overrides that the store has.
    pub(crate) fn heartbeat(&self, instance: Instance, overrides: BookHead) -> StoreHead {
        *self.instance.lock() = Some(instance);
        let state = self.state.lock();
        StoreHead {
            current: state.current().map(|stored| stored.id()),
            files: FilesPresence::Present,
            generation: state.runtime.generation,
            automatic_token: state.automatic.token(),
            overrides,
            ..StoreHead::default()
        }
    }

    pub(crate) fn instances(&self) -> Vec<Instance> {
        self.instance.lock().clone().into_iter().collect()
    }
}

/// Content of the store.
#[derive(Debug, Default)]
pub(crate) struct MemoryState {
    /// By number; the last one is current.
    versions: BTreeMap<u64, Arc<StoredVersion>>,
    runtime: Runtime,
    /// Newest last.
    audit: VecDeque<AuditEntry>,
    /// Automatic entries, and their audit log, which leaves operators' entries their room.
    automatic: AutomaticEntries,
    automatic_audit: VecDeque<AuditEntry>,
    /// The audit log of overrides, beside the others because earlier releases reject their actions.
    override_audit: VecDeque<AuditEntry>,
    /// Number of audit log entries so far.
    audited: u64,
}

impl MemoryState {
    pub(crate) fn current(&self) -> Option<&Arc<StoredVersion>> {
        self.versions.last_key_value().map(|(_, stored)| stored)
    }

    pub(crate) fn versions(&self, before: Option<u64>, limit: usize) -> Vec<Version> {
        let earlier = self.versions.range(..before.unwrap_or(u64::MAX));
        earlier.rev().take(limit).map(|(_, stored)| stored.version.clone()).collect()
    }

    pub(crate) fn version(&self, number: u64) -> Option<Arc<StoredVersion>> {
        self.versions.get(&number).cloned()
    }

    /// The lists, switches and automatic entries.
    pub(crate) fn runtime(&self) -> StoredRuntime {
        let automatic = self.automatic.active(now_ms());
        StoredRuntime {
            runtime: Runtime { automatic, ..self.runtime.clone() },
            automatic_token: self.automatic.token(),
            ..StoredRuntime::default()
        }
    }

    /// Makes a version current, if the version that it is based on is current.
    pub(crate) fn apply(&mut self, stored: StoredVersion, audit: AuditEntry) -> ControlResult<Version> {
        let current = self.current().map(|stored| stored.version.clone());
        if current.as_ref().map(|version| version.number) != stored.version.based_on {
            return Err(match current {
                Some(current) => ControlError::Stale { current: Box::new(current) },
                None => ControlError::Unavailable("no versions left".into()),
            });
        }
        let version = stored.version.clone();
        self.versions.insert(version.number, Arc::new(stored));
        let mut bytes: usize = self.versions.values().map(|stored| files_bytes(&stored.files)).sum();
        while self.versions.len() > 1
            && (self.versions.len() as u64 > MAX_VERSIONS || bytes > MAX_STORED_BYTES)
        {
            let oldest = self.versions.pop_first();
            bytes -= oldest.map_or(0, |(_, stored)| files_bytes(&stored.files));
        }
        self.append_audit(audit);
        Ok(version)
    }

    /// Changes lists or switches; whether there was something to change.
    pub(crate) fn change(&mut self, change: Change, audit: AuditEntry) -> ControlResult<bool> {
        let is_changed = self.runtime.apply(change, now_ms())?;
        if is_changed {
            self.append_audit(audit);
        }
        Ok(is_changed)
    }

    /// Adds automatic entries, each unless its id has one.
    pub(crate) fn add_automatic(&mut self, new: Vec<(AutomaticEntry, AuditEntry)>) -> Vec<Added> {
        let now_ms = now_ms();
        let mut results = Vec::new();
        for (entry, audit) in new {
            let added = self.automatic.add(entry, now_ms);
            if added == Added::Listed {
                self.append(|state| &mut state.automatic_audit, audit);
            }
            results.push(added);
        }
        results
    }

    pub(crate) fn lift_automatic(
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

    pub(crate) fn audit(&self, before: Option<&str>, limit: usize) -> Vec<AuditEntry> {
        let before = before.map_or(u64::MAX, |id| id.parse().unwrap_or(0));
        let number = |entry: &AuditEntry| entry.id.parse().unwrap_or(0);
        let latest = |log: &VecDeque<AuditEntry>| {
            let earlier = log.range(..log.partition_point(|entry| number(entry) < before));
            earlier.rev().take(limit).cloned().collect()
        };
        let logs: [Vec<_>; 3] = [&self.audit, &self.automatic_audit, &self.override_audit].map(latest);
        let mut all = logs.concat();
        all.sort_by_key(|entry| Reverse(number(entry)));
        all.truncate(limit);
        all
    }

    /// Appends an entry to the audit log of overrides.
    pub(crate) fn audit_override(&mut self, entry: AuditEntry) {
        self.append(|state| &mut state.override_audit, entry);
    }

    fn append_audit(&mut self, entry: AuditEntry) {
        self.append(|state| &mut state.audit, entry);
    }

    /// Appends an entry to one of the logs.
    fn append(&mut self, log: fn(&mut Self) -> &mut VecDeque<AuditEntry>, entry: AuditEntry) {
        self.audited += 1;
        let entry = AuditEntry { id: self.audited.to_string(), ..entry };
        let log = log(self);
        log.push_back(entry);
        if log.len() > MAX_AUDIT_ENTRIES {
            log.pop_front();
        }
    }
}

/// Automatic entries by their ids.
#[derive(Debug, Default)]
struct AutomaticEntries {
    entries: BTreeMap<String, AutomaticEntry>,
    /// Number of changes.
    changes: u64,
}

impl AutomaticEntries {
    /// Distinguishes the content from earlier content.
    fn token(&self) -> String {
        if self.changes == 0 { String::new() } else { self.changes.to_string() }
    }

    /// The active entries.
    fn active(&self, now_ms: u64) -> Vec<AutomaticEntry> {
        let active = self.entries.values().filter(|entry| entry.expires_at_ms > now_ms);
        let mut active: Vec<_> = active.cloned().collect();
        active.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        active
    }

    fn add(&mut self, entry: AutomaticEntry, now_ms: u64) -> Added {
        self.entries.retain(|_, known| known.expires_at_ms > now_ms);
        if self.entries.contains_key(&entry.id) {
            return Added::Known;
        }
        if self.entries.len() >= MAX_AUTOMATIC_ENTRIES {
            return Added::Full;
        }
        self.entries.insert(entry.id.clone(), entry);
        self.changes += 1;
        Added::Listed
    }

    /// Removes an active entry, or replaces it by an exemption; whether there was one.
    fn lift(&mut self, id: &str, exemption: Option<&AutomaticEntry>, now_ms: u64) -> bool {
        if self.entries.get(id).is_none_or(|known| known.expires_at_ms <= now_ms) {
            return false;
        }
        match exemption {
            Some(exemption) => self.entries.insert(id.to_owned(), exemption.clone()),
            None => self.entries.remove(id),
        };
        self.changes += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::{Control, Draft, Files, RulesSource, stored::token};

    fn draft(based_on: Option<u64>, text: &str) -> Draft {
        Draft {
            files: Files::from([("a.yaml".to_owned(), text.to_owned())]),
            based_on,
            rollback_to: None,
            author: "ada".to_owned(),
            comment: token(),
        }
    }

    #[tokio::test]
    async fn the_oldest_versions_are_dropped_and_the_current_one_never() {
        let control = Control::memory(RulesSource::Memory);
        let large = "#".repeat((2 << 20) - "a.yaml".len());
        for number in 0..40 {
            control.apply(draft((number > 0).then_some(number), &large)).await.expect("made");
        }
        let stored = control.versions(None, 100).await.expect("a response");
        assert_eq!((stored.len(), stored[0].number), (32, 40));
    }
}
