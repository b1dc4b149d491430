//! Automatic entries in the control store.

use super::{Added, AutomaticEntry, AutomaticMode, Exchange, NewEntry};
use crate::{Action, AuditEntry, Control, ControlError, bounds::truncated};

/// Entries that are added by one step.
const MAX_ADDED: usize = 250;

impl Control {
    /// Shares the report of this instance with the others, and returns theirs if this instance leads. `watch` replaces what
    /// all instances are to watch, if this instance led before.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn exchange_abuse(
        &self,
        report: Vec<u8>,
        watch: Option<Vec<u8>>,
    ) -> Result<Exchange, ControlError> {
        self.backend().exchange_abuse(self.instance(), report, watch).await
    }

    /// Adds automatic entries, each unless its key has one; returns the result for each.
    ///
    /// # Errors
    /// When the store does not respond; then some may have been added.
    pub async fn add_automatic(&self, new: Vec<NewEntry>) -> Result<Vec<Added>, ControlError> {
        let mut results = Vec::new();
        for some in new.chunks(MAX_ADDED) {
            let audited = some.iter().map(|new| {
                let (entry, author) = (&new.entry, &new.entry.author);
                let audit = AuditEntry::new(author, Action::AddEntry, entry.subject(), entry.comment());
                (new.clone(), audit)
            });
            results.extend(self.backend().add_automatic(audited.collect()).await?);
        }
        if results.contains(&Added::Listed) {
            self.changed().notify_one();
        }
        Ok(results)
    }

    /// Removes an automatic entry and forgets the offences of its key; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn lift_automatic(&self, id: &str, author: &str) -> Result<bool, ControlError> {
        let Some(entry) = self.automatic(id).await? else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveEntry, entry.subject(), String::new());
        self.lift(id, None, audit).await
    }

    /// Replaces an automatic entry by an exemption: the key is not listed again before its end. Returns the exemption, if
    /// the entry existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn exempt_automatic(
        &self,
        id: &str,
        author: &str,
        reason: &str,
        expires_at_ms: u64,
    ) -> Result<Option<AutomaticEntry>, ControlError> {
        let Some(entry) = self.automatic(id).await? else { return Ok(None) };
        let comment = format!("lifted and exempt: {reason}");
        let audit = AuditEntry::new(author, Action::RemoveEntry, entry.subject(), comment);
        let exemption = AutomaticEntry {
            mode: AutomaticMode::Exempt,
            reason: truncated(reason.to_owned()),
            author: truncated(author.to_owned()),
            created_at_ms: audit.at_ms,
            expires_at_ms,
            offences: 0,
            ..entry
        };
        let is_made = self.lift(id, Some(exemption.clone()), audit).await?;
        Ok(is_made.then_some(exemption))
    }

    async fn automatic(&self, id: &str) -> Result<Option<AutomaticEntry>, ControlError> {
        let runtime = self.runtime().await?;
        Ok(runtime.automatic.into_iter().find(|entry| entry.id == id))
    }

    async fn lift(
        &self,
        id: &str,
        exemption: Option<AutomaticEntry>,
        audit: AuditEntry,
    ) -> Result<bool, ControlError> {
        let lifted = self.backend().lift_automatic(id, exemption, audit).await;
        self.changed().notify_one();
        lifted
    }
}
