//! Handle on the control store.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use tokio::{sync::Notify, task::spawn_blocking};
use tollgate_store::{StoreError, redis::RedisSettings};

use super::{
    Action, AuditEntry, BanCounts, BanFilter, BanPage, BanPosition, BanRemoval, ControlError, Draft, Files,
    Instance, ListEntry, ListedBan, RulesSource, Runtime, Switch, Version,
    backend::Backend,
    bounds::MAX_BAN_BATCH,
    change::Change,
    events::EventQueue,
    instance_id::instance_id,
    memory::Memory,
    metrics,
    redis::Redis,
    region_record::RegionRecord,
    rule_overrides::OverrideReplica,
    stored::{ActiveState, SYSTEM_AUTHOR, StoreHead, StoredVersion},
};

/// Handle on the control store; clones share it.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: RulesSource,
    backend: Backend,
    /// Unique id of this instance.
    instance: String,
    /// Notifies the reconciler that something may have changed.
    changed: Arc<Notify>,
    /// Events that are not logged yet.
    events: EventQueue,
    /// Whether the store responded to the last heartbeat.
    is_reachable: AtomicBool,
    /// The region that writes what this store has, unless it is this one.
    writing_region: ArcSwapOption<String>,
    /// The overrides that this instance holds.
    overrides: OverrideReplica,
}

impl Control {
    /// Opens a store in this process.
    pub fn memory(source: RulesSource) -> Self {
        Self::new(source, Backend::Memory(Memory::default()))
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

    /// Source of the rules. See [`RulesSource::has_versions`].
    pub fn source(&self) -> RulesSource {
        self.0.source
    }

    /// Returns the latest versions before `before`, or of all, newest first.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn versions(&self, before: Option<u64>, limit: usize) -> Result<Vec<Version>, ControlError> {
        match self.0.source {
            RulesSource::Directory | RulesSource::Xds => Ok(Vec::new()),
            RulesSource::Redis | RulesSource::Memory => self.0.backend.versions(before, limit).await,
        }
    }

    /// Returns a version and its files.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn version(&self, number: u64) -> Result<Option<(Version, Files)>, ControlError> {
        let stored = match self.0.source {
            RulesSource::Directory | RulesSource::Xds => None,
            RulesSource::Redis | RulesSource::Memory => self.0.backend.version(number).await?,
        };
        Ok(stored.map(|stored| (stored.version.clone(), Files::clone(&stored.files))))
    }

    /// Returns the number of the current version, if there is one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn current(&self) -> Result<Option<u64>, ControlError> {
        match self.0.source {
            RulesSource::Directory | RulesSource::Xds => Ok(None),
            RulesSource::Redis | RulesSource::Memory => self.0.backend.current().await,
        }
    }

    /// Makes a version of the draft and makes it current, if the version that it is based on is current now. The caller
    /// validates its rules. Author and comment are truncated to
    /// [`bounds::MAX_TEXT_BYTES`](super::bounds::MAX_TEXT_BYTES).
    ///
    /// # Errors
    /// [`ControlError::Stale`] when another version is current; then nothing has changed.
    pub async fn apply(&self, draft: Draft) -> Result<Version, ControlError> {
        if !self.0.source.has_versions() {
            return Err(ControlError::ReadOnly);
        }
        self.require_writable()?;
        // Hashing large files takes a while.
        let stored = spawn_blocking(move || StoredVersion::of(draft)).await;
        let stored = stored.unwrap_or_else(|error| Err(ControlError::Unavailable(error.to_string())))?;
        let version = &stored.version;
        let (action, subject) = match version.rollback_to {
            None => (Action::Apply, format!("version {}", version.number)),
            Some(earlier) => (Action::Rollback, format!("version {}, as {earlier} was", version.number)),
        };
        let audit = AuditEntry::new(&version.author, action, subject, version.comment.clone());
        let applied = self.0.backend.apply(stored, audit).await;
        self.0.changed.notify_one();
        applied
    }

    /// Returns the lists and switches.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn runtime(&self) -> Result<Runtime, ControlError> {
        self.0.backend.runtime().await.map(|stored| stored.runtime)
    }

    /// Adds an entry to its list, or replaces the one with the same id.
    ///
    /// # Errors
    /// When there are too many entries, or the store does not respond.
    pub async fn put_entry(&self, entry: ListEntry) -> Result<(), ControlError> {
        let entry = entry.bounded()?;
        let (author, reason) = (entry.author.clone(), entry.reason.clone());
        let audit = AuditEntry::new(&author, Action::AddEntry, entry.subject(), reason);
        self.change(Change::PutEntry(entry), audit).await.map(drop)
    }

    /// Removes an entry; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_entry(&self, id: &str, author: &str) -> Result<bool, ControlError> {
        let runtime = self.runtime().await?;
        let Some(entry) = runtime.entries.iter().find(|entry| entry.id == id) else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveEntry, entry.subject(), String::new());
        self.change(Change::RemoveEntry(id.to_owned()), audit).await
    }

    /// Sets a rule's switch.
    ///
    /// # Errors
    /// When there are too many switches, or the store does not respond.
    pub async fn put_switch(&self, switch: Switch) -> Result<(), ControlError> {
        let switch = switch.bounded()?;
        let (author, reason) = (switch.author.clone(), switch.reason.clone());
        let audit = AuditEntry::new(&author, Action::SetSwitch, switch.subject(), reason);
        self.change(Change::PutSwitch(switch), audit).await.map(drop)
    }

    /// Replaces a rule's switch by its next step, unless an operator has changed it meanwhile; whether it did.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn replace_switch(
        &self,
        from: Switch,
        to: Switch,
        comment: String,
    ) -> Result<bool, ControlError> {
        let audit = AuditEntry::new(SYSTEM_AUTHOR, Action::SetSwitch, to.subject(), comment);
        self.change(Change::ReplaceSwitch { from: Box::new(from), to: Box::new(to) }, audit).await
    }

    /// Removes a rule's switch; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_switch(&self, domain: &str, rule: &str, author: &str) -> Result<bool, ControlError> {
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
    ) -> Result<(), ControlError> {
        let audit = AuditEntry::new(author, action, subject.to_owned(), comment.to_owned());
        self.change(Change::AuditOnly, audit).await.map(drop)
    }

    /// Adds bans that began to the list of active bans, and returns the number of those. Each replaces an earlier ban of
    /// its counter. At most [`MAX_BAN_BATCH`] are added.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn record_bans(&self, bans: Vec<ListedBan>) -> Result<BanCounts, ControlError> {
        let bans: Vec<ListedBan> = bans.into_iter().take(MAX_BAN_BATCH).map(|ban| self.listed(ban)).collect();
        let counts = self.0.backend.record_bans(&bans).await?;
        metrics::active_bans(counts);
        Ok(counts)
    }

    /// The ban as this instance lists it.
    fn listed(&self, ban: ListedBan) -> ListedBan {
        ListedBan { instance: self.0.instance.clone(), ..ban.bounded() }
    }

    /// Returns at most `limit` active bans that pass the filter, from behind a position.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn bans(
        &self,
        filter: BanFilter<'_>,
        after: Option<BanPosition>,
        limit: usize,
    ) -> Result<BanPage, ControlError> {
        self.0.backend.bans(filter, after, limit).await
    }

    /// Returns the active ban with this id, if it is listed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn ban(&self, id: &str) -> Result<Option<ListedBan>, ControlError> {
        self.0.backend.ban(id).await
    }

    /// Removes a ban that was lifted from the list; whether it was listed. All instances read the bans of their counters
    /// again.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_ban(&self, id: &str) -> Result<bool, ControlError> {
        let removed = self.0.backend.remove_ban(id).await;
        self.0.changed.notify_one();
        removed
    }

    /// Records in the audit log that an operator removes a ban.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn record_ban_removal(
        &self,
        author: &str,
        ban: &ListedBan,
        removal: BanRemoval,
        comment: &str,
    ) -> Result<(), ControlError> {
        let subject = format!("ban {} {} {}", ban.domain, ban.rule, ban.key_text());
        let audit = AuditEntry::new(author, Action::ResetCounter, subject, comment.to_owned());
        self.change(Change::AuditOnly, AuditEntry { ban: Some(removal), ..audit }).await.map(drop)
    }

    /// Returns the latest audit log entries before the entry `before`, or of all, newest first.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn audit(&self, before: Option<&str>, limit: usize) -> Result<Vec<AuditEntry>, ControlError> {
        self.0.backend.audit(before, limit).await
    }

    /// Returns every instance with a recent heartbeat, this one included.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn instances(&self) -> Result<Vec<Instance>, ControlError> {
        self.0.backend.instances().await
    }

    async fn change(&self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        let affects_instances = change != Change::AuditOnly;
        if affects_instances {
            self.require_writable()?;
        }
        let changed = self.0.backend.change(change, audit).await;
        if affects_instances {
            self.0.changed.notify_one();
        }
        changed
    }

    /// Returns a record of the region, `""` for none.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn region_record(&self, record: RegionRecord) -> Result<String, ControlError> {
        self.0.backend.region_record(record).await
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
    ) -> Result<bool, ControlError> {
        self.0.backend.replace_region_record(record, from, to).await
    }

    /// Subscribes to changes by other instances; never returns.
    pub(super) async fn subscribe(&self) -> Infallible {
        self.0.backend.subscribe(&self.0.changed).await
    }

    /// The overrides that this instance holds.
    pub(super) fn overrides(&self) -> &OverrideReplica {
        &self.0.overrides
    }

    /// The backend, for the reconciler.
    pub(super) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// The region that writes what this store has, unless it is this one.
    pub(super) fn writing_region(&self) -> &ArcSwapOption<String> {
        &self.0.writing_region
    }

    /// Events that are not logged yet.
    pub(super) fn event_queue(&self) -> &EventQueue {
        &self.0.events
    }

    /// Notified when something may have changed.
    pub(super) fn changed(&self) -> &Arc<Notify> {
        &self.0.changed
    }

    /// Records the heartbeat of this instance, and returns the head of the store.
    pub(super) async fn heartbeat(
        &self,
        instance: Instance,
        active: ActiveState,
    ) -> Result<StoreHead, ControlError> {
        let held = self.0.overrides.with(|book| book.head().clone());
        let head = self.0.backend.heartbeat(instance, active, &held).await;
        self.0.is_reachable.store(head.is_ok(), Ordering::Relaxed);
        head
    }
}
