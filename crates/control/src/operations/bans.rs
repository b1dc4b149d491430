//! Operations on bans, and on the automatic entries of the deny list that follow them.

use tollgate_core::clock::now_ms;

use crate::book::{BookName, ChangeResult, Expected, NewChange};
use crate::bounds::{MAX_BAN_BATCH, truncated};
use crate::redis::{bans, book::STEP_CHANGES};
use crate::{
    Action, Added, AuditEntry, AutomaticEntry, AutomaticMode, BanCounts, BanFilter, BanPage, BanPosition,
    BanRemoval, Control, ControlError, ControlResult, ListedBan, Record, RecordKey, RecordView,
    handle::Backend, metrics,
};

/// Bans.
impl Control {
    /// Adds bans that began to the list of active bans, and returns the number of those. Each replaces an earlier ban of
    /// its counter. At most [`MAX_BAN_BATCH`] are added.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn record_bans(&self, bans: Vec<ListedBan>) -> ControlResult<BanCounts> {
        let listed = |ban: ListedBan| ListedBan { instance: self.instance().to_owned(), ..ban.bounded() };
        let bans: Vec<ListedBan> = bans.into_iter().take(MAX_BAN_BATCH).map(listed).collect();
        let counts = match &self.0.backend {
            Backend::Memory(memory) => memory.bans.record(&bans, now_ms()),
            Backend::Redis(redis) => bans::record_bans(redis, &bans).await?,
        };
        metrics::active_bans(counts);
        Ok(counts)
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
    ) -> ControlResult<BanPage> {
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.bans.page(filter, after, limit, now_ms())),
            Backend::Redis(redis) => bans::bans(redis, filter, after, limit).await,
        }
    }

    /// Returns the active ban with this id, if it is listed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn ban(&self, id: &str) -> ControlResult<Option<ListedBan>> {
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.bans.get(id, now_ms())),
            Backend::Redis(redis) => bans::ban(redis, id).await,
        }
    }

    /// Removes a ban that was lifted from the list; whether it was listed. All instances read the bans of their counters
    /// again.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_ban(&self, id: &str) -> ControlResult<bool> {
        let removed = match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.bans.remove(id)),
            Backend::Redis(redis) => bans::remove_ban(redis, id).await,
        };
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
    ) -> ControlResult<()> {
        let subject = format!("ban {} {} {}", ban.domain, ban.rule, ban.key_text());
        let audit = AuditEntry::new(author, Action::ResetCounter, subject, comment.to_owned());
        self.note(AuditEntry { ban: Some(removal), ..audit }).await
    }
}

/// Automatic entries of the deny list.
impl Control {
    /// Adds automatic entries, each unless its counter has one; returns the result for each.
    ///
    /// # Errors
    /// When the store does not respond; then some may have been added.
    pub async fn add_automatic(&self, new: Vec<AutomaticEntry>) -> ControlResult<Vec<Added>> {
        let change = |entry: AutomaticEntry| {
            let comment = format!("rule {}: {}", entry.rule, entry.reason);
            let audit = entry.audit(&entry.author, Action::AddEntry, comment);
            let put = NewChange::put(Record::Automatic(entry), audit);
            NewChange { expected: Expected::Absent, ..put }
        };
        let changes: Vec<_> = new.into_iter().map(change).collect();
        let mut made = Vec::new();
        for some in changes.chunks(STEP_CHANGES) {
            made.extend(self.make(BookName::System, some.to_vec()).await?.1);
        }
        if made.contains(&ChangeResult::Made) {
            self.0.changed.notify_one();
        }
        let added = |result| match result {
            ChangeResult::Made => Added::Listed,
            ChangeResult::Unlike => Added::Known,
            ChangeResult::Full => Added::Full,
        };
        Ok(made.into_iter().map(added).collect())
    }

    /// Removes the automatic entry for the client of a ban that an operator has ended, if there is one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn lift_automatic_of(&self, ban: &str, author: &str) -> ControlResult<()> {
        let key = RecordKey::of("automatic entry", [ban]);
        match self.stored_record(key).await?.map(|found| found.record) {
            Some(Record::Automatic(entry)) if entry.mode == AutomaticMode::Enforce => {
                self.remove_record(key, None, author, false).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Replaces an automatic entry by an exemption: the client is not listed again before its end. Returns the exemption, if
    /// the entry existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn exempt_automatic(
        &self,
        entry: AutomaticEntry,
        author: &str,
        reason: &str,
        expires_at_ms: u64,
    ) -> ControlResult<Option<RecordView>> {
        let audit = entry.audit(author, Action::RemoveEntry, format!("lifted and exempt: {reason}"));
        let exemption = AutomaticEntry {
            mode: AutomaticMode::Exempt,
            reason: truncated(reason.to_owned()),
            author: truncated(author.to_owned()),
            created_at_ms: audit.at_ms,
            expires_at_ms,
            ..entry
        };
        let exemption = Record::Automatic(exemption);
        let put = NewChange::put(exemption.clone(), audit);
        let key = put.key;
        match self.change(BookName::System, vec![NewChange { expected: Expected::Present, ..put }]).await {
            Err(ControlError::StaleRecord { .. }) => Ok(None),
            lifted => {
                let revision = lifted?;
                self.0.book(BookName::System).wait_for(revision).await;
                Ok(Some(RecordView::new(key, revision, exemption)))
            }
        }
    }
}
