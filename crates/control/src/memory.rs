//! Versions and the audit log in this process.

use std::collections::{BTreeMap, VecDeque};
use std::{cmp::Reverse, sync::Arc};

use parking_lot::Mutex;

use crate::book::BookHead;
use crate::bounds::{MAX_AUDIT_ENTRIES, MAX_STORED_BYTES, MAX_VERSIONS};
use crate::stored::{FilesPresence, StoreHead, StoredVersion};
use crate::{
    AuditEntry, ControlError, ControlResult, Instance, Version, events::EventLog, listed_bans::MemoryBans,
    model::files_bytes,
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
    /// Records the heartbeat of this instance, which holds the books that the store has.
    pub(crate) fn heartbeat(&self, instance: Instance, books: [BookHead; 2]) -> StoreHead {
        *self.instance.lock() = Some(instance);
        StoreHead {
            current: self.state.lock().current().map(|stored| stored.id()),
            files: FilesPresence::Present,
            books,
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
    /// Entries of operators and of the system, newest last: the system's leave operators' entries their room.
    audit: [VecDeque<AuditEntry>; 2],
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

    pub(crate) fn audit(&self, before: Option<&str>, limit: usize) -> Vec<AuditEntry> {
        let before = before.map_or(u64::MAX, |id| id.parse().unwrap_or(0));
        let number = |entry: &AuditEntry| entry.id.parse().unwrap_or(0);
        let latest = |log: &VecDeque<AuditEntry>| {
            let earlier = log.range(..log.partition_point(|entry| number(entry) < before));
            earlier.rev().take(limit).cloned().collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.audit.iter().flat_map(latest).collect();
        all.sort_by_key(|entry| Reverse(number(entry)));
        all.truncate(limit);
        all
    }

    /// Appends an entry to the log of operators, or to the system's.
    pub(crate) fn append_audit(&mut self, entry: AuditEntry) {
        self.audited += 1;
        let [operators, system] = &mut self.audit;
        let log = if entry.is_of_system() { system } else { operators };
        log.push_back(AuditEntry { id: self.audited.to_string(), ..entry });
        if log.len() > MAX_AUDIT_ENTRIES {
            log.pop_front();
        }
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
