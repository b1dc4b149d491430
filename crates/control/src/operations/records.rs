//! Changes of records by operators, and by the system for them; and what this instance holds.

use std::path::PathBuf;

use tokio::task::spawn_blocking;
use tollgate_core::clock::now_ms;
use tollgate_rules::RuleOverride;

use crate::book::{BookName, ChangeResult, Expected, NewChange, Record, RecordKey};
use crate::model::{SYSTEM_AUTHOR, check_count};
use crate::redis::book::{self, STEP_CHANGES};
use crate::{
    Action, AuditEntry, Control, ControlError, ControlResult, ListEntry, OverrideEntry, OverridePage,
    Runtime, Switch, handle::Backend,
};

/// Changes.
impl Control {
    /// Opens the file in which this instance keeps the records that it holds, before it reconciles them.
    ///
    /// # Errors
    /// When the file is unusable.
    pub fn open_records(&self, file: PathBuf) -> Result<(), String> {
        self.0.book(BookName::Operators).open(file, now_ms())
    }

    /// Makes changes of operators, all or none, and returns once this instance enforces them, or after a second. Whether they
    /// were made: not if a record was not as expected.
    async fn change(&self, changes: Vec<NewChange>) -> ControlResult<bool> {
        let made = self.begin(changes).await?;
        if let Some(revision) = made {
            self.0.book(BookName::Operators).wait_for(revision).await;
        }
        Ok(made.is_some())
    }

    /// Makes changes of operators, all or none; returns the last revision if they were made.
    async fn begin(&self, changes: Vec<NewChange>) -> ControlResult<Option<u64>> {
        self.require_writable()?;
        self.check_bound(&changes)?;
        let (revision, results) = self.make(BookName::Operators, changes).await?;
        self.0.changed.notify_one();
        if results.contains(&ChangeResult::Full) {
            return Err(ControlError::TooMany { what: "records", most: BookName::Operators.max_records() });
        }
        Ok(results.iter().all(|result| *result == ChangeResult::Made).then_some(revision))
    }

    /// Makes changes, those of the system's book each if it can be made; returns the last revision and the result of each.
    pub(crate) async fn make(
        &self,
        book: BookName,
        changes: Vec<NewChange>,
    ) -> ControlResult<(u64, Vec<ChangeResult>)> {
        let memory = match &self.0.backend {
            Backend::Redis(redis) => {
                return book::change(&redis.client, book, &changes, &self.0.book(book).head()).await;
            }
            Backend::Memory(memory) => memory,
        };
        let control = self.clone();
        // On a thread that may wait for the disk.
        let changed = spawn_blocking(move || {
            let changed = control.0.book(book).change(&changes, book == BookName::System, now_ms());
            (changed, changes)
        });
        let ((revision, results), changes) = changed.await?;
        let is_partial = book == BookName::System;
        if is_partial || results.iter().all(|result| *result == ChangeResult::Made) {
            let mut state = memory.state.lock();
            let made = changes.into_iter().zip(&results).filter(|(_, result)| **result == ChangeResult::Made);
            made.filter_map(|(change, _)| change.audit).for_each(|audit| state.append_audit(audit));
        }
        Ok((revision, results))
    }

    /// Checks that changes of one kind do not exceed its bound, by what this instance holds.
    fn check_bound(&self, changes: &[NewChange]) -> ControlResult<()> {
        let Some(kind) = changes.iter().find_map(|change| Some(change.record.as_ref()?.kind())) else {
            return Ok(());
        };
        let (now_ms, (what, most)) = (now_ms(), kind.bound());
        let count = self.0.book(BookName::Operators).with(|book| {
            let is_new = |change: &&NewChange| book.revision_of(change.key, now_ms).is_none();
            match changes.iter().filter(is_new).count() {
                0 => 0,
                new => book.count(kind, now_ms) + new,
            }
        });
        check_count(what, count, most)
    }

    /// The active record with this key, also one that another instance has just put.
    pub(super) async fn found(&self, book: BookName, key: RecordKey) -> ControlResult<Option<Record>> {
        let held = self.0.book(book).with(|book| book.get(key));
        let found = match (held, &self.0.backend) {
            (None, Backend::Redis(redis)) => book::get(&redis.client, book, key).await?,
            (held, _) => held,
        };
        Ok(found.filter(|record| record.ends_at_ms().is_none_or(|end| end > now_ms())))
    }

    /// Puts overrides, each in the place of the one of the same rule and key. The caller validates them. Returns once this
    /// instance enforces them, or after a second.
    ///
    /// # Errors
    /// When there are too many, another region writes them, or the store does not respond; then some of more than 50 may
    /// have been put.
    pub async fn put_overrides(&self, entries: Vec<OverrideEntry>) -> ControlResult<()> {
        let mut last = None;
        for some in entries.chunks(STEP_CHANGES) {
            let Some(first) = some.first() else { continue };
            let subject = match some.len() - 1 {
                0 => first.subject(),
                more => format!("{} and {more} more", first.subject()),
            };
            let audit = AuditEntry::new(&first.author, Action::SetOverride, subject, first.reason.clone());
            let changes = puts(some.iter().cloned().map(Record::Override), audit)?;
            last = self.begin(changes).await?;
        }
        if let Some(revision) = last {
            self.0.book(BookName::Operators).wait_for(revision).await;
        }
        Ok(())
    }

    /// Removes an override; whether it existed. Returns once this instance enforces that, or after a second.
    ///
    /// # Errors
    /// When another region writes them, or the store does not respond.
    pub async fn remove_override(&self, id: &str, author: &str) -> ControlResult<bool> {
        let Some(key) = RecordKey::read(id) else { return Ok(false) };
        self.remove(key, Action::RemoveOverride, author).await
    }

    /// Adds an entry to its list, or replaces the one with the same id.
    ///
    /// # Errors
    /// When there are too many entries, or the store does not respond.
    pub async fn put_entry(&self, entry: ListEntry) -> ControlResult<()> {
        let audit = AuditEntry::new(&entry.author, Action::AddEntry, entry.subject(), entry.reason.clone());
        self.put(Record::ListEntry(entry), audit).await
    }

    /// Removes an entry; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_entry(&self, id: &str, author: &str) -> ControlResult<bool> {
        self.remove(RecordKey::of_entry(id), Action::RemoveEntry, author).await
    }

    /// Sets a rule's switch.
    ///
    /// # Errors
    /// When there are too many switches, or the store does not respond.
    pub async fn put_switch(&self, switch: Switch) -> ControlResult<()> {
        let audit =
            AuditEntry::new(&switch.author, Action::SetSwitch, switch.subject(), switch.reason.clone());
        self.put(Record::Switch(switch), audit).await
    }

    /// Replaces a rule's switch by its next step, unless an operator has changed it meanwhile; whether it did.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn replace_switch(&self, from: Switch, to: Switch, comment: String) -> ControlResult<bool> {
        let (from, to) = (Record::Switch(from), Record::Switch(to));
        let key = to.key();
        let known = self.0.book(BookName::Operators).with(|book| {
            let revision = book.revision_of(key, now_ms())?;
            (book.get(key).as_ref() == Some(&from)).then_some(revision)
        });
        let Some(revision) = known else { return Ok(false) };
        let audit = AuditEntry::new(SYSTEM_AUTHOR, Action::SetSwitch, to.subject(), comment);
        let expected = Expected::Revision(revision);
        self.change(vec![NewChange { expected, ..NewChange::put(to, audit) }]).await
    }

    /// Removes a rule's switch; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_switch(&self, domain: &str, rule: &str, author: &str) -> ControlResult<bool> {
        self.remove(RecordKey::of_switch(domain, rule), Action::RemoveSwitch, author).await
    }

    async fn put(&self, record: Record, audit: AuditEntry) -> ControlResult<()> {
        self.change(puts([record], audit)?).await.map(drop)
    }

    /// Removes a record; whether it existed.
    async fn remove(&self, key: RecordKey, action: Action, author: &str) -> ControlResult<bool> {
        let Some(record) = self.found(BookName::Operators, key).await? else { return Ok(false) };
        let audit = AuditEntry::new(author, action, record.subject(), String::new());
        self.change(vec![NewChange::remove(key, audit)]).await
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
        self.note(AuditEntry::new(author, action, subject.to_owned(), comment.to_owned())).await
    }

    pub(super) async fn note(&self, audit: AuditEntry) -> ControlResult<()> {
        match &self.0.backend {
            Backend::Memory(memory) => {
                memory.state.lock().append_audit(audit);
                Ok(())
            }
            Backend::Redis(redis) => redis.note(&audit).await,
        }
    }
}

/// Changes that put records of one kind, with one audit log entry.
fn puts(records: impl IntoIterator<Item = Record>, audit: AuditEntry) -> ControlResult<Vec<NewChange>> {
    let mut audit = Some(audit);
    let put = |record: Record| {
        let record = record.bounded()?;
        let (key, expected) = (record.key(), Expected::Any);
        Ok(NewChange { key, expected, record: Some(record), audit: audit.take() })
    };
    records.into_iter().map(put).collect()
}

/// Records of this instance.
impl Control {
    /// The lists, automatic entries and switches.
    ///
    /// # Errors
    /// Before this instance has read them from the store or its file.
    pub fn runtime(&self) -> ControlResult<Runtime> {
        if self.shared_store().is_some() && !self.0.books().iter().all(|book| book.is_loaded()) {
            return Err(ControlError::Unavailable("the records are not read yet".to_owned()));
        }
        Ok(self.held_runtime())
    }

    pub(crate) fn held_runtime(&self) -> Runtime {
        let now_ms = now_ms();
        let [operators, system] = self.0.books().map(|book| book.with(|book| book.runtime(now_ms)));
        Runtime { automatic: system.automatic, ..operators }
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
        let after = after.and_then(RecordKey::read);
        let now_ms = now_ms();
        let is_selected = |stated: &RuleOverride| {
            stated.is_active_at(now_ms)
                && domain.is_none_or(|domain| *stated.domain == *domain)
                && rule.is_none_or(|rule| *stated.rule == *rule)
        };
        self.0.book(BookName::Operators).with(|book| {
            let (overrides, is_truncated) = book.page(after, limit, is_selected);
            OverridePage { revision: book.head.revision, overrides, is_truncated }
        })
    }
}
