//! Versions, lists and switches in this process, persisted on disk if a file is set.

mod disk;
mod file;
mod state;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub use self::file::FileError;
use self::{disk::Disk, file::RulesFile, state::State};
use super::{
    AuditEntry, ControlError, Instance, Runtime, Version,
    change::Change,
    events::EventLog,
    stored::{FilesPresence, StoreHead, StoredVersion},
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
        Ok(Self(Arc::new(Inner { state, writer, instance: Mutex::new(None), events: EventLog::default() })))
    }

    pub(super) fn heartbeat(&self, instance: Instance) -> StoreHead {
        *self.0.instance.lock() = Some(instance);
        let state = self.0.state.load();
        let current = state.current().map(|stored| stored.id());
        let generation = state.runtime.generation;
        StoreHead { current, files: FilesPresence::Present, generation, ..StoreHead::default() }
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

    pub(super) fn runtime(&self) -> Runtime {
        self.0.state.load().runtime.clone()
    }

    pub(super) async fn change(&self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        self.update(move |state| state.change(change, audit)).await
    }

    pub(super) fn audit(&self, before: Option<&str>, limit: usize) -> Vec<AuditEntry> {
        self.0.state.load().audit(before, limit)
    }

    pub(super) fn instances(&self) -> Vec<Instance> {
        self.0.instance.lock().clone().into_iter().collect()
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
