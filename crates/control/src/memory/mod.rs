//! Versions, lists and switches in this process.

mod automatic;
mod bans;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::{bans::MemoryBans, state::State};
use super::{
    Added, AuditEntry, AutomaticEntry, ControlError, Instance, Runtime, Version,
    change::Change,
    events::EventLog,
    stored::{FilesPresence, StoreHead, StoredVersion, now_ms},
};

/// Handle on the store; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: ArcSwap<State>,
    /// Held during a change of the state.
    writer: Mutex<()>,
    /// The last heartbeat of this instance, which is the only one.
    instance: Mutex<Option<Instance>>,
    events: EventLog,
    bans: MemoryBans,
}

impl Memory {
    pub(super) fn heartbeat(&self, instance: Instance) -> StoreHead {
        *self.0.instance.lock() = Some(instance);
        let state = self.0.state.load();
        let current = state.current().map(|stored| stored.id());
        StoreHead {
            current,
            files: FilesPresence::Present,
            generation: state.runtime.generation,
            automatic_token: state.automatic.token(),
            ..StoreHead::default()
        }
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

    pub(super) fn apply(&self, stored: StoredVersion, audit: AuditEntry) -> Result<Version, ControlError> {
        self.update(|state| state.apply(stored, audit))
    }

    /// The lists and switches, and the token of the automatic entries.
    pub(super) fn runtime(&self) -> (Runtime, String) {
        let state = self.0.state.load();
        let automatic = state.automatic.active(now_ms());
        (Runtime { automatic, ..state.runtime.clone() }, state.automatic.token())
    }

    pub(super) fn add_automatic(
        &self,
        new: Vec<(AutomaticEntry, AuditEntry)>,
    ) -> Result<Vec<Added>, ControlError> {
        self.update(|state| Ok(state.add_automatic(new)))
    }

    pub(super) fn lift_automatic(
        &self,
        id: &str,
        exemption: Option<&AutomaticEntry>,
        audit: AuditEntry,
    ) -> Result<bool, ControlError> {
        self.update(|state| Ok(state.lift_automatic(id, exemption, audit)))
    }

    pub(super) fn change(&self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        self.update(|state| state.change(change, audit))
    }

    /// Appends an entry to the audit log of overrides.
    pub(crate) fn audit_override(&self, audit: AuditEntry) -> Result<(), ControlError> {
        self.update(|state| {
            state.audit_override(audit);
            Ok(())
        })
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

    /// Log of events.
    pub(super) fn events(&self) -> &EventLog {
        &self.0.events
    }

    /// Applies `change` to the state.
    fn update<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let Inner { state, writer, .. } = &*self.0;
        let _guard = writer.lock();
        let mut next = State::clone(&state.load());
        let result = change(&mut next)?;
        state.store(Arc::new(next));
        Ok(result)
    }
}
