//! Handle on the control store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{convert::Infallible, future::pending};

use arc_swap::ArcSwapOption;
use tokio::{sync::Notify, task::spawn_blocking};
use tollgate_store::{StoreError, redis::RedisSettings};

use crate::book::{BookName, BookReplica};
use crate::instances::instance_id;
use crate::redis::{Redis, versions};
use crate::stored::{StoreHead, StoredVersion, VersionId};
use crate::{
    Action, AuditEntry, ControlError, ControlResult, Draft, Files, Instance, RegionRecord, RulesSource,
    Version, events::EventQueue, memory::Memory,
};

/// Handle on the control store; clones share it.
#[derive(Clone, Debug)]
pub struct Control(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    source: RulesSource,
    pub(crate) backend: Backend,
    /// Unique id of this instance.
    instance: String,
    /// Notifies the reconciler of a change by this instance.
    pub(crate) changed: Arc<Notify>,
    /// Notifies it of a change by any instance.
    pub(crate) notified: Arc<Notify>,
    /// Events that are not logged yet.
    pub(crate) events: EventQueue,
    /// Whether the store responded to the last heartbeat.
    is_reachable: AtomicBool,
    /// The region that writes what this store has, unless it is this one.
    pub(crate) writing_region: ArcSwapOption<String>,
    /// The records that this instance holds, in the order of [`BookName`].
    books: [BookReplica; 2],
}

impl Inner {
    /// The records of a book.
    pub(crate) const fn book(&self, name: BookName) -> &BookReplica {
        let [operators, system] = &self.books;
        match name {
            BookName::Operators => operators,
            BookName::System => system,
        }
    }

    /// The records of both books.
    pub(crate) const fn books(&self) -> [&BookReplica; 2] {
        let [operators, system] = &self.books;
        [operators, system]
    }
}

impl Control {
    /// Opens a store in this process.
    pub fn memory(source: RulesSource) -> Self {
        Self::new(source, Backend::Memory(Box::default()))
    }

    /// Opens a store in Redis, connected in the background by tasks on the current runtime. An unreachable server is no
    /// error here.
    ///
    /// # Errors
    /// When the settings are invalid.
    pub fn redis(source: RulesSource, settings: &RedisSettings) -> Result<Self, StoreError> {
        Ok(Self::new(source, Backend::Redis(Box::new(Redis::open(settings)?))))
    }

    fn new(source: RulesSource, backend: Backend) -> Self {
        Self(Arc::new(Inner {
            source,
            backend,
            instance: instance_id(),
            changed: Arc::default(),
            notified: Arc::default(),
            events: EventQueue::default(),
            is_reachable: AtomicBool::new(false),
            writing_region: ArcSwapOption::empty(),
            books: Default::default(),
        }))
    }

    /// Unique id of this instance.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Whether the store responded to the last heartbeat of this instance and permitted it. Periodic tasks on the store
    /// wait for that.
    pub fn is_reachable(&self) -> bool {
        self.0.is_reachable.load(Ordering::Relaxed)
    }

    /// The store that other instances may share.
    pub(crate) fn shared_store(&self) -> Option<&Redis> {
        match &self.0.backend {
            Backend::Memory(_) => None,
            Backend::Redis(redis) => Some(redis),
        }
    }

    /// Source of the rules. See [`RulesSource::has_versions`].
    pub fn source(&self) -> RulesSource {
        self.0.source
    }

    /// Returns the latest versions before `before`, or of all, newest first.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn versions(&self, before: Option<u64>, limit: usize) -> ControlResult<Vec<Version>> {
        if !self.0.source.has_versions() {
            return Ok(Vec::new());
        }
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.state.lock().versions(before, limit)),
            Backend::Redis(redis) => versions::versions(redis, before, limit).await,
        }
    }

    /// Returns a version and its files.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn version(&self, number: u64) -> ControlResult<Option<(Version, Files)>> {
        if !self.0.source.has_versions() {
            return Ok(None);
        }
        let stored = self.0.backend.version(number).await?;
        Ok(stored.map(|stored| (stored.version.clone(), Files::clone(&stored.files))))
    }

    /// Returns the number of the current version, if there is one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn current(&self) -> ControlResult<Option<u64>> {
        if !self.0.source.has_versions() {
            return Ok(None);
        }
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.state.lock().current().map(|stored| stored.version.number)),
            Backend::Redis(redis) => redis.current().await,
        }
    }

    /// Makes a version of the draft and makes it current, if the version that it is based on is current now. The caller
    /// validates its rules. Author and comment are truncated to
    /// [`bounds::MAX_TEXT_BYTES`](super::bounds::MAX_TEXT_BYTES).
    ///
    /// # Errors
    /// [`ControlError::Stale`] when another version is current; then nothing has changed.
    pub async fn apply(&self, draft: Draft) -> ControlResult<Version> {
        if !self.0.source.has_versions() {
            return Err(ControlError::ReadOnly);
        }
        self.require_writable()?;
        // Hashing large files takes a while.
        let stored = spawn_blocking(move || StoredVersion::of(draft)).await??;
        let version = &stored.version;
        let (action, subject) = match version.rollback_to {
            None => (Action::Apply, format!("version {}", version.number)),
            Some(earlier) => (Action::Rollback, format!("version {}, as {earlier} was", version.number)),
        };
        let audit = AuditEntry::new(&version.author, action, subject, version.comment.clone());
        let applied = match &self.0.backend {
            Backend::Memory(memory) => memory.state.lock().apply(stored, audit),
            Backend::Redis(redis) => versions::apply(redis, stored, audit).await,
        };
        self.0.changed.notify_one();
        applied
    }

    /// Returns the latest audit log entries before the entry `before`, or of all, newest first.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn audit(&self, before: Option<&str>, limit: usize) -> ControlResult<Vec<AuditEntry>> {
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.state.lock().audit(before, limit)),
            Backend::Redis(redis) => redis.audit(before, limit).await,
        }
    }

    /// Returns every instance with a recent heartbeat, this one included.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn instances(&self) -> ControlResult<Vec<Instance>> {
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.instances()),
            Backend::Redis(redis) => redis.instances().await,
        }
    }

    /// Returns a record of the region, `""` for none. A store in this process has none: a restart forgets its hits as well.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn region_record(&self, record: RegionRecord) -> ControlResult<String> {
        let Some(redis) = self.shared_store() else { return Ok(String::new()) };
        redis.region_record(record, None).await.map(|(_, record)| record)
    }

    /// Replaces a record of the region, unless another instance did since it was read; whether it did.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn replace_region_record(
        &self,
        record: RegionRecord,
        from: &str,
        to: String,
    ) -> ControlResult<bool> {
        let Some(redis) = self.shared_store() else { return Ok(true) };
        let (is_replaced, record) = redis.region_record(record, Some((from, &to))).await?;
        // An attempt without a reply may have replaced it.
        Ok(is_replaced || record == to)
    }

    /// Subscribes to changes by other instances; never returns.
    pub(crate) async fn subscribe(&self) -> Infallible {
        match self.shared_store() {
            // There are no other instances.
            None => pending().await,
            Some(redis) => redis.subscribe(&self.0.notified).await,
        }
    }

    /// Records the heartbeat of this instance, and returns the head of the store.
    pub(crate) async fn heartbeat(
        &self,
        instance: Instance,
        active: Option<VersionId>,
    ) -> ControlResult<StoreHead> {
        let head = match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.heartbeat(instance, self.0.books().map(BookReplica::head))),
            Backend::Redis(redis) => redis.heartbeat(&instance, active).await,
        };
        self.0.is_reachable.store(head.is_ok(), Ordering::Relaxed);
        head
    }
}

/// Backend of the control store. [`Control`] has the operations of operators; those here serve the reconciler too.
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
            Self::Memory(memory) => Ok(memory.state.lock().version(number)),
            Self::Redis(redis) => versions::version(redis, number).await,
        }
    }
}
