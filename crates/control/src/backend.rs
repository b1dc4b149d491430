//! Backends of the control store.

use std::sync::Arc;

use crate::{
    AuditEntry, AutomaticEntry, ControlResult,
    memory::Memory,
    redis::{Redis, versions},
    stored::{Connectivity, Restore, StoredRuntime, StoredVersion},
};

/// Backend of the control store. [`Control`](crate::Control) has the operations of operators; those here serve the reconciler too.
#[derive(Debug)]
pub(crate) enum Backend {
    /// This process, which loses nothing.
    Memory(Box<Memory>),
    /// The Redis that instances share.
    Redis(Box<Redis>),
}

impl Backend {
    pub(crate) async fn version(&self, number: u64) -> ControlResult<Option<Arc<StoredVersion>>> {
        match self {
            Self::Memory(memory) => Ok(memory.state().version(number)),
            Self::Redis(redis) => versions::version(redis, number).await,
        }
    }

    pub(crate) async fn runtime(&self) -> ControlResult<StoredRuntime> {
        match self {
            Self::Memory(memory) => Ok(memory.state().runtime()),
            Self::Redis(redis) => redis.runtime().await,
        }
    }

    /// Makes a lost version current again, unless it is not lost or the current version does not precede it.
    pub(crate) async fn restore_version(
        &self,
        stored: &StoredVersion,
        audit: AuditEntry,
        connectivity: Connectivity,
    ) -> ControlResult<Restore> {
        match self {
            Self::Memory(_) => Ok(Restore::Present),
            Self::Redis(redis) => versions::restore_version(redis, stored, audit, connectivity).await,
        }
    }

    /// Replaces lists and switches by lost ones, unless the present ones do not precede them.
    pub(crate) async fn restore_runtime(
        &self,
        stored: &StoredRuntime,
        audit: AuditEntry,
        connectivity: Connectivity,
    ) -> ControlResult<Restore> {
        match self {
            Self::Memory(_) => Ok(Restore::Present),
            Self::Redis(redis) => redis.restore_runtime(stored, audit, connectivity).await,
        }
    }

    /// Restores automatic entries that the store lost.
    pub(crate) async fn restore_automatic(
        &self,
        token: &str,
        entries: &[AutomaticEntry],
    ) -> ControlResult<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.restore_automatic(token, entries).await,
        }
    }
}
