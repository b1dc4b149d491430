//! Backends for rule versions, lists, switches and the audit log.

use std::{convert::Infallible, future::pending, sync::Arc};

use tokio::sync::Notify;

use super::{
    Added, AuditEntry, AutomaticEntry, BanCounts, BanFilter, BanPage, BanPosition, ControlError, Instance,
    ListedBan, Version,
    change::Change,
    memory::Memory,
    redis::{self, Redis, automatic},
    region_record::RegionRecord,
    rule_overrides::BookHead,
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
        held: &BookHead,
    ) -> ControlResult<StoreHead> {
        match self {
            // What the instance holds is what the store has.
            Self::Memory(memory) => Ok(StoreHead { overrides: held.clone(), ..memory.heartbeat(instance) }),
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
            Self::Memory(memory) => memory.apply(stored, audit),
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
                let (runtime, automatic_token) = memory.runtime();
                Ok(StoredRuntime { runtime, automatic_token, ..StoredRuntime::default() })
            }
            Self::Redis(redis) => redis.runtime().await,
        }
    }

    /// Changes lists or switches; whether there was something to change.
    pub(super) async fn change(&self, change: Change, audit: AuditEntry) -> ControlResult<bool> {
        match self {
            Self::Memory(memory) => memory.change(change, audit),
            Self::Redis(redis) => redis.change(change, audit).await,
        }
    }

    /// Adds automatic entries, each unless its id has one.
    pub(super) async fn add_automatic(
        &self,
        new: Vec<(AutomaticEntry, AuditEntry)>,
    ) -> ControlResult<Vec<Added>> {
        match self {
            Self::Memory(memory) => memory.add_automatic(new),
            Self::Redis(redis) => automatic::add(redis.client(), new).await,
        }
    }

    /// Removes an automatic entry, or replaces it by an exemption; whether there was one.
    pub(super) async fn lift_automatic(
        &self,
        id: &str,
        exemption: Option<&AutomaticEntry>,
        audit: AuditEntry,
    ) -> ControlResult<bool> {
        match self {
            Self::Memory(memory) => memory.lift_automatic(id, exemption, audit),
            Self::Redis(redis) => automatic::lift(redis.client(), id, exemption, audit).await,
        }
    }

    /// Restores automatic entries that the store lost.
    pub(super) async fn restore_automatic(
        &self,
        token: &str,
        entries: &[AutomaticEntry],
    ) -> ControlResult<()> {
        match self {
            // Memory loses nothing.
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => automatic::restore(redis.client(), token, entries).await,
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

    /// A record of the region. Empty for the memory store, whose hits a restart forgets as well.
    pub(super) async fn region_record(&self, record: RegionRecord) -> ControlResult<String> {
        match self {
            Self::Memory(_) => Ok(String::new()),
            Self::Redis(redis) => redis.region_record(record, None).await.map(|(_, record)| record),
        }
    }

    pub(super) async fn replace_region_record(
        &self,
        record: RegionRecord,
        from: &str,
        to: String,
    ) -> ControlResult<bool> {
        match self {
            Self::Memory(_) => Ok(true),
            Self::Redis(redis) => {
                let (is_replaced, record) = redis.region_record(record, Some((from, &to))).await?;
                // An attempt without a reply may have replaced it.
                Ok(is_replaced || record == to)
            }
        }
    }

    pub(super) async fn instances(&self) -> ControlResult<Vec<Instance>> {
        match self {
            Self::Memory(memory) => Ok(memory.instances()),
            Self::Redis(redis) => redis.instances().await,
        }
    }
}
