//! Where it is kept.

use std::{convert::Infallible, future::pending, sync::Arc};

use tokio::sync::Notify;

use super::{
    AuditEntry, ControlError, Instance, Version,
    change::Change,
    memory::Memory,
    redis::Redis,
    stored::{Enforced, Head, Kept, KeptRuntime, PutBack, Reach},
};

/// Where versions, lists, switches and what was done are kept.
#[derive(Debug)]
pub(super) enum Store {
    /// In this process.
    Memory(Memory),
    /// In the Redis that instances share.
    Redis(Box<Redis>),
}

type Answer<T> = Result<T, ControlError>;

impl Store {
    /// Hears of changes that others make; never ends.
    pub(super) async fn listen(&self, news: &Notify) -> Infallible {
        match self {
            // There are no others.
            Self::Memory(_) => pending().await,
            Self::Redis(store) => store.listen(news).await,
        }
    }

    /// Tells of an instance, and what is current.
    pub(super) async fn beat(&self, instance: Instance, enforced: Enforced) -> Answer<Head> {
        match self {
            Self::Memory(store) => Ok(store.beat(instance)),
            Self::Redis(store) => store.beat(&instance, enforced).await,
        }
    }

    pub(super) async fn current(&self) -> Answer<Option<u64>> {
        match self {
            Self::Memory(store) => Ok(store.current()),
            Self::Redis(store) => store.current().await,
        }
    }

    pub(super) async fn versions(&self, before: Option<u64>, most: usize) -> Answer<Vec<Version>> {
        match self {
            Self::Memory(store) => Ok(store.versions(before, most)),
            Self::Redis(store) => store.versions(before, most).await,
        }
    }

    pub(super) async fn version(&self, number: u64) -> Answer<Option<Arc<Kept>>> {
        match self {
            Self::Memory(store) => Ok(store.version(number)),
            Self::Redis(store) => store.version(number).await,
        }
    }

    /// Makes a version current, if the one that it is based on is.
    pub(super) async fn apply(&self, kept: Kept, audit: AuditEntry) -> Answer<Version> {
        match self {
            Self::Memory(store) => store.apply(kept, audit).await,
            Self::Redis(store) => store.apply(kept, audit).await,
        }
    }

    /// Makes a version current that was so before, unless it is, or what is was not made before it.
    pub(super) async fn put_back(&self, kept: &Kept, audit: AuditEntry, reach: Reach) -> Answer<PutBack> {
        match self {
            // It loses nothing.
            Self::Memory(_) => Ok(PutBack::Kept),
            Self::Redis(store) => store.put_back(kept, audit, reach).await,
        }
    }

    /// Replaces lists and switches by earlier ones, unless what is there was not made before these.
    pub(super) async fn put_runtime_back(
        &self,
        kept: &KeptRuntime,
        audit: AuditEntry,
        reach: Reach,
    ) -> Answer<PutBack> {
        match self {
            // It loses nothing.
            Self::Memory(_) => Ok(PutBack::Kept),
            Self::Redis(store) => store.put_runtime_back(kept, audit, reach).await,
        }
    }

    pub(super) async fn runtime(&self) -> Answer<KeptRuntime> {
        match self {
            Self::Memory(store) => Ok(KeptRuntime { runtime: store.runtime(), ..KeptRuntime::default() }),
            Self::Redis(store) => store.runtime().await,
        }
    }

    /// Makes a change, and says whether there was something to change.
    pub(super) async fn make(&self, change: Change, audit: AuditEntry) -> Answer<bool> {
        match self {
            Self::Memory(store) => store.make(change, audit).await,
            Self::Redis(store) => store.make(change, audit).await,
        }
    }

    pub(super) async fn audit(&self, before: Option<&str>, most: usize) -> Answer<Vec<AuditEntry>> {
        match self {
            Self::Memory(store) => Ok(store.audit(before, most)),
            Self::Redis(store) => store.audit(before, most).await,
        }
    }

    pub(super) async fn instances(&self) -> Answer<Vec<Instance>> {
        match self {
            Self::Memory(store) => Ok(store.instances()),
            Self::Redis(store) => store.instances().await,
        }
    }
}
