//! The handle on what operators change.

use std::{convert::Infallible, path::PathBuf, sync::Arc};

use tokio::{sync::Notify, task::spawn_blocking};

use super::{
    Action, AuditEntry, ControlError, Draft, FileError, Files, Instance, ListEntry, RulesSource, Runtime,
    Switch, Version,
    backend::Store,
    change::Change,
    instance::name_of_instance,
    memory::Memory,
    redis::Redis,
    stored::{Enforced, Head, Kept},
};
use tollgate_store::{StoreError, redis::RedisSettings};

/// A handle on what operators change; clones lead to the same.
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: RulesSource,
    store: Store,
    /// Tells this instance from others.
    instance: String,
    /// Tells whoever follows that something may have changed.
    news: Arc<Notify>,
}

impl Control {
    /// What lives in this process, and in the file if there is one.
    ///
    /// # Errors
    /// When the file can't be used.
    pub fn memory(source: RulesSource, file: Option<PathBuf>) -> Result<Self, FileError> {
        Ok(Self::new(source, Store::Memory(Memory::open(file)?)))
    }

    /// What lives in a Redis, connected in the background by tasks on the current runtime: that the server is absent is
    /// no error here.
    ///
    /// # Errors
    /// When the settings make no sense.
    pub fn redis(source: RulesSource, settings: &RedisSettings) -> Result<Self, StoreError> {
        Ok(Self::new(source, Store::Redis(Box::new(Redis::open(settings)?))))
    }

    fn new(source: RulesSource, store: Store) -> Self {
        Self(Arc::new(Shared { source, store, instance: name_of_instance(), news: Arc::default() }))
    }

    /// What this instance goes by.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Where the rules come from. See [`RulesSource::has_versions`].
    pub fn source(&self) -> RulesSource {
        self.0.source
    }

    /// The latest versions, newest first: those before `before`, or all.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn versions(&self, before: Option<u64>, most: usize) -> Result<Vec<Version>, ControlError> {
        match self.0.source {
            RulesSource::Directory | RulesSource::Xds => Ok(Vec::new()),
            RulesSource::Redis | RulesSource::Memory => self.0.store.versions(before, most).await,
        }
    }

    /// One version and its files.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn version(&self, number: u64) -> Result<Option<(Version, Files)>, ControlError> {
        let kept = match self.0.source {
            RulesSource::Directory | RulesSource::Xds => None,
            RulesSource::Redis | RulesSource::Memory => self.0.store.version(number).await?,
        };
        Ok(kept.map(|kept| (kept.version.clone(), Files::clone(&kept.files))))
    }

    /// The number of the current version, if there is any.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn current(&self) -> Result<Option<u64>, ControlError> {
        match self.0.source {
            RulesSource::Directory | RulesSource::Xds => Ok(None),
            RulesSource::Redis | RulesSource::Memory => self.0.store.current().await,
        }
    }

    /// Makes a version of the draft and makes it current, if the version that it is based on is current now. Its rules
    /// have been validated before. What is longer than [`bounds::MOST_TEXT`](super::bounds::MOST_TEXT) of the author
    /// and the comment is cut.
    ///
    /// # Errors
    /// [`ControlError::Stale`] when another version is current; nothing has changed then.
    pub async fn apply(&self, draft: Draft) -> Result<Version, ControlError> {
        if !self.0.source.has_versions() {
            return Err(ControlError::ReadOnly);
        }
        // Much may have to be hashed.
        let kept = spawn_blocking(move || Kept::of(draft)).await;
        let kept = kept.unwrap_or_else(|error| Err(ControlError::Unavailable(error.to_string())))?;
        let version = &kept.version;
        let (action, subject) = match version.rollback_to {
            None => (Action::Apply, format!("version {}", version.number)),
            Some(earlier) => (Action::Rollback, format!("version {}, as {earlier} was", version.number)),
        };
        let audit = AuditEntry::new(&version.author, action, subject, version.comment.clone());
        let applied = self.0.store.apply(kept, audit).await;
        self.0.news.notify_one();
        applied
    }

    /// The lists and switches.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn runtime(&self) -> Result<Runtime, ControlError> {
        self.0.store.runtime().await.map(|kept| kept.runtime)
    }

    /// Adds an entry to its list, or replaces the one of its id.
    ///
    /// # Errors
    /// When there are too many, or the store does not answer.
    pub async fn put_entry(&self, entry: ListEntry) -> Result<(), ControlError> {
        let entry = entry.bounded()?;
        let (author, reason) = (entry.author.clone(), entry.reason.clone());
        let audit = AuditEntry::new(&author, Action::AddEntry, entry.subject(), reason);
        self.make(Change::PutEntry(entry), audit).await.map(drop)
    }

    /// Removes an entry, and says whether there was one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn remove_entry(&self, id: &str, author: &str) -> Result<bool, ControlError> {
        let runtime = self.runtime().await?;
        let Some(entry) = runtime.entries.iter().find(|entry| entry.id == id) else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveEntry, entry.subject(), String::new());
        self.make(Change::RemoveEntry(id.to_owned()), audit).await
    }

    /// Sets a rule's switch.
    ///
    /// # Errors
    /// When there are too many, or the store does not answer.
    pub async fn put_switch(&self, switch: Switch) -> Result<(), ControlError> {
        let switch = switch.bounded()?;
        let (author, reason) = (switch.author.clone(), switch.reason.clone());
        let audit = AuditEntry::new(&author, Action::SetSwitch, switch.subject(), reason);
        self.make(Change::PutSwitch(switch), audit).await.map(drop)
    }

    /// Removes a rule's switch, and says whether there was one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn remove_switch(&self, domain: &str, rule: &str, author: &str) -> Result<bool, ControlError> {
        let runtime = self.runtime().await?;
        let known = runtime.switches.iter().find(|switch| switch.is_of(domain, rule));
        let Some(switch) = known else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveSwitch, switch.subject(), String::new());
        self.make(Change::RemoveSwitch { domain: domain.to_owned(), rule: rule.to_owned() }, audit).await
    }

    /// Notes what an operator did that changes nothing here, as giving counters back.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn note(
        &self,
        author: &str,
        action: Action,
        subject: &str,
        comment: &str,
    ) -> Result<(), ControlError> {
        let audit = AuditEntry::new(author, action, subject.to_owned(), comment.to_owned());
        self.make(Change::Note, audit).await.map(drop)
    }

    /// What operators did, newest first: what came before the entry `before`, or all.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn audit(&self, before: Option<&str>, most: usize) -> Result<Vec<AuditEntry>, ControlError> {
        self.0.store.audit(before, most).await
    }

    /// Every instance that has told of itself lately, this one included.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn instances(&self) -> Result<Vec<Instance>, ControlError> {
        self.0.store.instances().await
    }

    async fn make(&self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        let is_news = change != Change::Note;
        let made = self.0.store.make(change, audit).await;
        if is_news {
            self.0.news.notify_one();
        }
        made
    }

    /// Hears of changes that are made elsewhere; never ends.
    pub(super) async fn listen(&self) -> Infallible {
        self.0.store.listen(&self.0.news).await
    }

    /// What those that follow use beside.
    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    /// Tells when something may have changed.
    pub(super) fn news(&self) -> &Arc<Notify> {
        &self.0.news
    }

    /// Tells of this instance, and learns what is current.
    pub(super) async fn beat(&self, instance: Instance, enforced: Enforced) -> Result<Head, ControlError> {
        self.0.store.beat(instance, enforced).await
    }
}
