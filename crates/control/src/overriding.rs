//! Overrides of rules in the control store.

use std::path::PathBuf;

use tokio::task::spawn_blocking;
use tollgate_rules::{OverrideId, RuleOverride};

use crate::{
    Action, AuditEntry, Control, ControlError, JournalError, OverrideEntry,
    backend::Backend,
    bounds::{MAX_OVERRIDES, truncated},
    redis::overrides,
    stored::now_ms,
};

/// A part of all overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridePage {
    /// The revision of the overrides that this instance holds.
    pub revision: u64,
    pub overrides: Vec<OverrideEntry>,
    /// Whether more follow.
    pub is_truncated: bool,
}

impl Control {
    /// Opens the file in which this instance keeps the overrides that it holds, before it reconciles them.
    ///
    /// # Errors
    /// When the file is unusable.
    pub fn open_overrides(&self, file: PathBuf) -> Result<(), JournalError> {
        self.overrides().open(file)
    }

    /// Puts overrides, each in the place of the one of the same rule and key. The caller validates them. Returns once this
    /// instance enforces them, or after a second.
    ///
    /// # Errors
    /// When there are too many, another region writes them, or the store does not respond; then some of more than 250 may
    /// have been put.
    pub async fn put_overrides(&self, entries: Vec<OverrideEntry>) -> Result<(), ControlError> {
        self.require_writable()?;
        let entries: Vec<_> = entries.into_iter().map(OverrideEntry::bounded).collect::<Result<_, _>>()?;
        let mut last = 0;
        for some in entries.chunks(overrides::STEP_CHANGES) {
            let Some(first) = some.first() else { continue };
            let subject = match some.len().saturating_sub(1) {
                0 => first.subject(),
                more => format!("{} and {more} more", first.subject()),
            };
            let audit = AuditEntry::new(&first.author, Action::SetOverride, subject, first.reason.clone());
            last = self.put_some(some.to_vec(), audit).await?;
            self.changed().notify_one();
        }
        self.overrides().wait_for(last).await;
        Ok(())
    }

    async fn put_some(&self, entries: Vec<OverrideEntry>, audit: AuditEntry) -> Result<u64, ControlError> {
        let memory = match self.backend() {
            Backend::Redis(redis) => {
                let lineage = self.overrides().with(|book| book.head().lineage.clone());
                return overrides::put(redis.client(), &entries, audit, &lineage).await;
            }
            Backend::Memory(memory) => memory,
        };
        let entry_id = |entry: &OverrideEntry| OverrideEntry::id_of(&entry.domain, &entry.rule, &entry.key);
        let count = self.overrides().with(|book| {
            let new = entries.iter().filter(|entry| book.get(entry_id(entry)).is_none()).count();
            book.len().saturating_add(new)
        });
        if count > MAX_OVERRIDES {
            return Err(ControlError::TooMany { what: "overrides", most: MAX_OVERRIDES });
        }
        memory.audit_override(audit)?;
        let changes = entries.into_iter().map(|entry| (entry_id(&entry), Some(entry))).collect();
        self.record_own(changes).await
    }

    /// Records changes of a store in this process, on a thread that may wait for the disk.
    async fn record_own(
        &self,
        changes: Vec<(OverrideId, Option<OverrideEntry>)>,
    ) -> Result<u64, ControlError> {
        let control = self.clone();
        let recorded = spawn_blocking(move || control.overrides().record_own(changes)).await;
        recorded.map_err(|error| ControlError::Unavailable(error.to_string()))
    }

    /// Removes an override; whether it existed. Returns once this instance enforces that, or after a second.
    ///
    /// # Errors
    /// When another region writes them, or the store does not respond.
    pub async fn remove_override(&self, id: &str, author: &str) -> Result<bool, ControlError> {
        self.require_writable()?;
        let Ok(id) = u128::from_str_radix(id, 16).map(OverrideId) else { return Ok(false) };
        let entry = self.overrides().with(|book| book.get(id));
        let is_active = |entry: &OverrideEntry| entry.expires_at_ms.is_none_or(|end| end > now_ms());
        let Some(entry) = entry.filter(is_active) else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveOverride, entry.subject(), String::new());
        let removed = match self.backend() {
            Backend::Redis(redis) => {
                let lineage = self.overrides().with(|book| book.head().lineage.clone());
                overrides::remove(redis.client(), &id.to_string(), audit, &lineage).await?
            }
            Backend::Memory(memory) => {
                memory.audit_override(audit)?;
                Some(self.record_own(vec![(id, None)]).await?)
            }
        };
        self.changed().notify_one();
        match removed {
            Some(revision) => self.overrides().wait_for(revision).await,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// At most `limit` overrides after an identifier, of a domain and of a rule if these are given, in the order of their
    /// identifiers, without those that have ended: those that this instance holds.
    pub fn rule_overrides(
        &self,
        domain: Option<&str>,
        rule: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> OverridePage {
        let after = after.and_then(|id| u128::from_str_radix(id, 16).ok()).map(OverrideId);
        let now_ms = now_ms();
        let is_selected = |stated: &RuleOverride| {
            stated.is_active_at(now_ms)
                && domain.is_none_or(|domain| *stated.domain == *domain)
                && rule.is_none_or(|rule| *stated.rule == *rule)
        };
        self.overrides().with(|book| {
            let (overrides, is_truncated) = book.page(after, limit, is_selected);
            OverridePage { revision: book.head().revision, overrides, is_truncated }
        })
    }

    /// Audit log entry of restored overrides.
    pub(crate) fn restored_audit(overrides: usize) -> AuditEntry {
        AuditEntry::restored(Action::SetOverride, truncated(format!("{overrides} changes of overrides")))
    }
}
