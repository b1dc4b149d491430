//! Versions, lists and switches in this process, and perhaps on its disk.

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
    stored::{Content, Head, Kept},
};

/// A handle on the store; clones lead to the same.
#[derive(Clone, Debug)]
pub(super) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Arc<ArcSwap<State>>,
    writer: Writer,
    /// This instance is the only one.
    instance: Mutex<Option<Instance>>,
}

/// What makes the next state.
#[derive(Debug)]
enum Writer {
    /// Whoever holds this.
    Here(Mutex<()>),
    /// What keeps it on disk.
    Disk(Arc<Disk>),
}

impl Memory {
    /// A store that begins with what the file has, if there is one.
    pub(super) fn open(file: Option<PathBuf>) -> Result<Self, FileError> {
        let (state, writer) = match file.map(RulesFile::open).transpose()? {
            None => (Arc::default(), Writer::Here(Mutex::default())),
            Some((file, state)) => {
                let state = Arc::new(state);
                (Arc::clone(&state), Writer::Disk(Arc::new(Disk::new(file, state))))
            }
        };
        let state = Arc::new(ArcSwap::new(state));
        Ok(Self(Arc::new(Shared { state, writer, instance: Mutex::new(None) })))
    }

    pub(super) fn beat(&self, instance: Instance) -> Head {
        *self.0.instance.lock() = Some(instance);
        let state = self.0.state.load();
        let current = state.current().map(|kept| kept.current());
        let generation = state.runtime.generation;
        Head { current, content: Content::There, generation, ..Head::default() }
    }

    pub(super) fn current(&self) -> Option<u64> {
        self.0.state.load().current().map(|kept| kept.version.number)
    }

    pub(super) fn versions(&self, before: Option<u64>, most: usize) -> Vec<Version> {
        self.0.state.load().versions(before, most)
    }

    pub(super) fn version(&self, number: u64) -> Option<Arc<Kept>> {
        self.0.state.load().version(number)
    }

    pub(super) async fn apply(&self, kept: Kept, audit: AuditEntry) -> Result<Version, ControlError> {
        self.change(move |state| state.apply(kept, audit)).await
    }

    pub(super) fn runtime(&self) -> Runtime {
        self.0.state.load().runtime.clone()
    }

    pub(super) async fn make(&self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        self.change(move |state| state.make(change, audit)).await
    }

    pub(super) fn audit(&self, before: Option<&str>, most: usize) -> Vec<AuditEntry> {
        self.0.state.load().audit(before, most)
    }

    pub(super) fn instances(&self) -> Vec<Instance> {
        self.0.instance.lock().clone().into_iter().collect()
    }

    /// Has the next state be what `make` makes of it, once the disk has it, where there is one.
    async fn change<T>(
        &self,
        make: impl FnOnce(&mut State) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let Shared { state, writer, .. } = &*self.0;
        match writer {
            Writer::Disk(disk) => disk.change(state, make).await,
            Writer::Here(alone) => {
                let _alone = alone.lock();
                let mut next = State::clone(&state.load());
                let made = make(&mut next)?;
                state.store(Arc::new(next));
                Ok(made)
            }
        }
    }
}
