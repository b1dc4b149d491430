//! Backends for rule versions, lists, switches and the audit log.

use std::{convert::Infallible, future::pending, sync::Arc};

use tokio::sync::Notify;

use super::{
    AuditEntry, BanCounts, BanFilter, BanPage, BanPosition, ControlError, Instance, ListedBan, Version,
    change::Change,
    memory::Memory,
    redis::{self, Redis},
    stored::{ActiveState, Connectivity, Restore, StoreHead, StoredRuntime, StoredVersion, now_ms},
};

/// Backend of the control store.
#[derive(Debug)]
pub(super) enum Backend {
    /// This process.
    Memory(Memory),
    /// The Redis that instances share.
    Redis(Box<Redis>),
}

type ControlResult<T> = Result<T, ControlError>;

impl Backend {
    /// Notifies `changed` of changes by other instances; never returns.
    pub(super) async fn subscribe(&self, changed: &Notify) -> Infallible {
        match self {
            // There are no other instances.
            Self::Memory(_) => pending().await,
            Self::Redis(redis) => redis.subscribe(changed).await,
        }
    }

    /// Records the heartbeat of an instance, and returns the head of the store.
    pub(super) async fn heartbeat(
        &self,
        instance: Instance,
        active: ActiveState,
    ) -> ControlResult<StoreHead> {
        match self {
            Self::Memory(memory) => Ok(memory.heartbeat(instance)),
            Self::Redis(redis) => redis.heartbeat(&instance, active).await,
        }
    }

    pub(super) async fn current(&self) -> ControlResult<Option<u64>> {
        match self {
            Self::Memory(memory) => Ok(memory.current()),
            Self::Redis(redis) => redis.current().await,
        }
    }

    pub(super) async fn versions(&self, before: Option<u64>, limit: usize) -> ControlResult<Vec<Version>> {
        match self {
            Self::Memory(memory) => Ok(memory.versions(before, limit)),
            Self::Redis(redis) => redis.versions(before, limit).await,
        }
    }

    pub(super) async fn version(&self, number: u64) -> ControlResult<Option<Arc<StoredVersion>>> {
        match self {
            Self::Memory(memory) => Ok(memory.version(number)),
            Self::Redis(redis) => redis.version(number).await,
        }
    }

    /// Makes a version current, if the version that it is based on is current.
    pub(super) async fn apply(&self, stored: StoredVersion, audit: AuditEntry) -> ControlResult<Version> {
        match self {
            Self::Memory(memory) => memory.apply(stored, audit).await,
            Self::Redis(redis) => redis.apply(stored, audit).await,
        }
    }

    /// Makes a lost version current again, unless it is not lost or the current version does not precede it.
    pub(super) async fn restore_version(
        &self,
        stored: &StoredVersion,
        audit: AuditEntry,
        connectivity: Connectivity,
    ) -> ControlResult<Restore> {
        match self {
            // Memory loses nothing.
            Self::Memory(_) => Ok(Restore::Present),
            Self::Redis(redis) => redis.restore_version(stored, audit, connectivity).await,
        }
    }

    /// Replaces lists and switches by lost ones, unless the present ones do not precede them.
    pub(super) async fn restore_runtime(
        &self,
        stored: &StoredRuntime,
        audit: AuditEntry,
        connectivity: Connectivity,
    ) -> ControlResult<Restore> {
        match self {
            // Memory loses nothing.
            Self::Memory(_) => Ok(Restore::Present),
            Self::Redis(redis) => redis.restore_runtime(stored, audit, connectivity).await,
        }
    }

    pub(super) async fn runtime(&self) -> ControlResult<StoredRuntime> {
        match self {
            Self::Memory(memory) => {
                Ok(StoredRuntime { runtime: memory.runtime(), ..StoredRuntime::default() })
            }
            Self::Redis(redis) => redis.runtime().await,
        }
    }

    /// Changes lists or switches; whether there was something to change.
    pub(super) async fn change(&self, change: Change, audit: AuditEntry) -> ControlResult<bool> {
        match self {
            Self::Memory(memory) => memory.change(change, audit).await,
            Self::Redis(redis) => redis.change(change, audit).await,
        }
    }

    pub(super) async fn audit(&self, before: Option<&str>, limit: usize) -> ControlResult<Vec<AuditEntry>> {
        match self {
            Self::Memory(memory) => Ok(memory.audit(before, limit)),
            Self::Redis(redis) => redis.audit(before, limit).await,
        }
    }

    /// Adds bans to the list of active bans.
    pub(super) async fn record_bans(&self, bans: &[ListedBan]) -> ControlResult<BanCounts> {
        match self {
            Self::Memory(memory) => Ok(memory.bans().record(bans, now_ms())),
            Self::Redis(redis) => redis::bans::record(redis, bans).await,
        }
    }

    pub(super) async fn bans(
        &self,
        filter: BanFilter<'_>,
        after: Option<BanPosition>,
        limit: usize,
    ) -> ControlResult<BanPage> {
        match self {
            Self::Memory(memory) => Ok(memory.bans().page(filter, after, limit, now_ms())),
            Self::Redis(redis) => redis::bans::page(redis, filter, after, limit).await,
        }
    }

    pub(super) async fn ban(&self, id: &str) -> ControlResult<Option<ListedBan>> {
        match self {
            Self::Memory(memory) => Ok(memory.bans().get(id, now_ms())),
            Self::Redis(redis) => redis::bans::get(redis, id).await,
        }
    }

    /// Removes a ban from the list; whether it existed.
    pub(super) async fn remove_ban(&self, id: &str) -> ControlResult<bool> {
        match self {
            Self::Memory(memory) => Ok(memory.bans().remove(id)),
            Self::Redis(redis) => redis::bans::remove(redis, id).await,
        }
    }

    pub(super) async fn instances(&self) -> ControlResult<Vec<Instance>> {
        match self {
            Self::Memory(memory) => Ok(memory.instances()),
            Self::Redis(redis) => redis.instances().await,
        }
    }
}
