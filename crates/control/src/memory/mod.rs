//! Versions, lists and switches in this process, persisted on disk if a file is set.

mod bans;
mod disk;
mod file;
mod state;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub use self::file::FileError;
use self::{bans::MemoryBans, disk::Disk, file::RulesFile, state::State};
use super::{
    Added, AuditEntry, AutomaticEntry, ControlError, Instance, NewEntry, Runtime, Version,
    change::Change,
    events::EventLog,
    stored::{FilesPresence, StoreHead, StoredVersion, now_ms},
};

/// Handle on the store; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Arc<ArcSwap<State>>,
    writer: Writer,
    /// The last heartbeat of this instance, which is the only one.
    instance: Mutex<Option<Instance>>,
    events: EventLog,
    bans: MemoryBans,
}

/// Serializes changes of the state.
#[derive(Debug)]
enum Writer {
    /// The holder of the lock changes the state.
    Memory(Mutex<()>),
    /// Changes are persisted first.
    Disk(Arc<Disk>),
}

impl Memory {
    /// Opens a store with the content of the file, if there is one.
    pub(super) fn open(file: Option<PathBuf>) -> Result<Self, FileError> {
        let (state, writer) = match file.map(RulesFile::open).transpose()? {
            None => (Arc::default(), Writer::Memory(Mutex::default())),
            Some((file, state)) => {
                let state = Arc::new(state);
                (Arc::clone(&state), Writer::Disk(Arc::new(Disk::new(file, state))))
            }
        };
        let state = Arc::new(ArcSwap::new(state));
        let instance = Mutex::new(None);
        let (events, bans) = (EventLog::default(), MemoryBans::default());
        Ok(Self(Arc::new(Inner { state, writer, instance, events, bans })))
    }

    pub(super) fn heartbeat(&self, instance: Instance) -> StoreHead {
        *self.0.instance.lock() = Some(instance);
        let state = self.0.state.load();
        let current = state.current().map(|stored| stored.id());
        let (generation, abuse_token) = (state.runtime.generation, state.abuse.token());
        StoreHead { current, files: FilesPresence::Present, generation, abuse_token, ..StoreHead::default() }
    }

    pub(super) fn current(&self) -> Option<u64> {
        self.0.state.load().current().map(|stored| stored.version.number)
    }

    pub(super) fn versions(&self, before: Option<u64>, limit: usize) -> Vec<Version> {
        self.0.state.load().versions(before, limit)
    }

    pub(super) fn version(&self, number: u64) -> Option<Arc<StoredVersion>> {
        self.0.state.load().version(number)
    }

    pub(super) async fn apply(
        &self,
        stored: StoredVersion,
        audit: AuditEntry,
    ) -> Result<Version, ControlError> {
        self.update(move |state| state.apply(stored, audit)).await
    }

    /// The lists and switches, and the token of the automatic entries.
    pub(super) fn runtime(&self) -> (Runtime, String) {
        let state = self.0.state.load();
        let automatic = state.abuse.active(now_ms());
        (Runtime { automatic, ..state.runtime.clone() }, state.abuse.token())
    }

    pub(super) async fn add_automatic(
        &self,
        new: Vec<(NewEntry, AuditEntry)>,
    ) -> Result<Vec<Added>, ControlError> {
        self.update(move |state| Ok(state.add_automatic(new))).await
    }

    pub(super) async fn lift_automatic(
        &self,
        id: &str,
        exemption: Option<AutomaticEntry>,
        audit: AuditEntry,
    ) -> Result<bool, ControlError> {
        let id = id.to_owned();
        self.update(move |state| Ok(state.lift_automatic(&id, exemption, audit))).await
    }

    pub(super) async fn change(&self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        self.update(move |state| state.change(change, audit)).await
    }

    /// Appends an entry to the audit log of overrides.
    pub(crate) async fn audit_override(&self, audit: AuditEntry) -> Result<(), ControlError> {
        self.update(move |state| {
            state.audit_override(audit);
            Ok(())
        })
        .await
    }

    pub(super) fn audit(&self, before: Option<&str>, limit: usize) -> Vec<AuditEntry> {
        self.0.state.load().audit(before, limit)
    }

    pub(super) fn instances(&self) -> Vec<Instance> {
        self.0.instance.lock().clone().into_iter().collect()
    }

    /// The list of active bans.
    pub(crate) fn bans(&self) -> &MemoryBans {
        &self.0.bans
    }

    /// Log of events; not persisted.
    pub(super) fn events(&self) -> &EventLog {
        &self.0.events
    }

    /// Applies `change` to the state, and returns once it is persisted.
    async fn update<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let Inner { state, writer, .. } = &*self.0;
        match writer {
            Writer::Disk(disk) => disk.update(state, change).await,
            Writer::Memory(lock) => {
                let _guard = lock.lock();
                let mut next = State::clone(&state.load());
                let result = change(&mut next)?;
                state.store(Arc::new(next));
                Ok(result)
            }
        }
    }
}
