//! Handle on the control store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{convert::Infallible, future::pending};

use arc_swap::ArcSwapOption;
use tokio::{sync::Notify, task::spawn_blocking};
use tollgate_store::{StoreError, redis::RedisSettings};

use crate::instances::instance_id;
use crate::model::SYSTEM_AUTHOR;
use crate::redis::{Redis, versions};
use crate::stored::{ActiveState, StoreHead, StoredRuntime, StoredVersion};
use crate::{
    Action, AuditEntry, ControlError, ControlResult, Draft, Files, Instance, ListEntry, RegionRecord,
    RulesSource, Runtime, Switch, Version, events::EventQueue, lists::Change, memory::Memory,
    rule_overrides::OverrideReplica,
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
    /// Notifies the reconciler that something may have changed.
    pub(crate) changed: Arc<Notify>,
    /// Events that are not logged yet.
    pub(crate) events: EventQueue,
    /// Whether the store responded to the last heartbeat.
    is_reachable: AtomicBool,
    /// The region that writes what this store has, unless it is this one.
    pub(crate) writing_region: ArcSwapOption<String>,
    /// The overrides that this instance holds.
    pub(crate) overrides: OverrideReplica,
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
            events: EventQueue::default(),
            is_reachable: AtomicBool::new(false),
            writing_region: ArcSwapOption::empty(),
            overrides: OverrideReplica::default(),
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

    /// Returns the lists and switches.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn runtime(&self) -> ControlResult<Runtime> {
        self.0.backend.runtime().await.map(|stored| stored.runtime)
    }

    /// Adds an entry to its list, or replaces the one with the same id.
    ///
    /// # Errors
    /// When there are too many entries, or the store does not respond.
    pub async fn put_entry(&self, entry: ListEntry) -> ControlResult<()> {
        let entry = entry.bounded()?;
        let audit = AuditEntry::new(&entry.author, Action::AddEntry, entry.subject(), entry.reason.clone());
        self.change(Change::PutEntry(entry), audit).await.map(drop)
    }

    /// Removes an entry; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_entry(&self, id: &str, author: &str) -> ControlResult<bool> {
        let runtime = self.runtime().await?;
        let Some(entry) = runtime.entries.iter().find(|entry| entry.id == id) else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveEntry, entry.subject(), String::new());
        self.change(Change::RemoveEntry(id.to_owned()), audit).await
    }

    /// Sets a rule's switch.
    ///
    /// # Errors
    /// When there are too many switches, or the store does not respond.
    pub async fn put_switch(&self, switch: Switch) -> ControlResult<()> {
        let switch = switch.bounded()?;
        let audit =
            AuditEntry::new(&switch.author, Action::SetSwitch, switch.subject(), switch.reason.clone());
        self.change(Change::PutSwitch(switch), audit).await.map(drop)
    }

    /// Replaces a rule's switch by its next step, unless an operator has changed it meanwhile; whether it did.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn replace_switch(&self, from: Switch, to: Switch, comment: String) -> ControlResult<bool> {
        let audit = AuditEntry::new(SYSTEM_AUTHOR, Action::SetSwitch, to.subject(), comment);
        self.change(Change::ReplaceSwitch { from: Box::new(from), to: Box::new(to) }, audit).await
    }

    /// Removes a rule's switch; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_switch(&self, domain: &str, rule: &str, author: &str) -> ControlResult<bool> {
        let runtime = self.runtime().await?;
        let known = runtime.switches.iter().find(|switch| switch.is_of(domain, rule));
        let Some(switch) = known else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveSwitch, switch.subject(), String::new());
        self.change(Change::RemoveSwitch { domain: domain.to_owned(), rule: rule.to_owned() }, audit).await
    }

    /// Records an operator's change outside this store, such as a refund of a counter, in the audit log.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn record_audit(
        &self,
        author: &str,
        action: Action,
        subject: &str,
        comment: &str,
    ) -> ControlResult<()> {
        let audit = AuditEntry::new(author, action, subject.to_owned(), comment.to_owned());
        self.change(Change::AuditOnly, audit).await.map(drop)
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

    /// Changes lists or switches; whether there was something to change.
    pub(crate) async fn change(&self, change: Change, audit: AuditEntry) -> ControlResult<bool> {
        let affects_instances = change != Change::AuditOnly;
        if affects_instances {
            self.require_writable()?;
        }
        let changed = match &self.0.backend {
            Backend::Memory(memory) => memory.state.lock().change(change, audit),
            Backend::Redis(redis) => redis.change(change, audit).await,
        };
        if affects_instances {
            self.0.changed.notify_one();
        }
        changed
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
            Some(redis) => redis.subscribe(&self.0.changed).await,
        }
    }

    /// Records the heartbeat of this instance, and returns the head of the store.
    pub(crate) async fn heartbeat(
        &self,
        instance: Instance,
        active: ActiveState,
    ) -> ControlResult<StoreHead> {
        let head = match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.heartbeat(instance, self.0.overrides.head())),
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

    pub(crate) async fn runtime(&self) -> ControlResult<StoredRuntime> {
        match self {
            Self::Memory(memory) => Ok(memory.state.lock().runtime()),
            Self::Redis(redis) => redis.runtime().await,
        }
    }
}
