//! Changes of records by operators, and by the system for them; and what this instance holds.

use std::{collections::BTreeMap, path::PathBuf};

use tokio::task::spawn_blocking;
use tollgate_core::clock::now_ms;

use crate::book::{BookName, ChangeResult, Expected, NewChange};
use crate::lists::is_active;
use crate::model::{SYSTEM_AUTHOR, check_count};
use crate::redis::book::{self, STEP_CHANGES};
use crate::{
    Action, AuditEntry, Control, ControlError, ControlResult, Record, RecordKey, RecordKind, RecordPage,
    RecordSelection, RecordView, Runtime, Switch, handle::Backend,
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

    /// Makes changes, all or none, and returns the last revision.
    pub(super) async fn change(&self, book: BookName, changes: Vec<NewChange>) -> ControlResult<u64> {
        let keys: Vec<RecordKey> = changes.iter().map(|change| change.key).collect();
        let (revision, results) = self.make(book, changes).await?;
        self.0.changed.notify_one();
        if results.contains(&ChangeResult::Full) {
            return Err(ControlError::TooMany { what: "records", most: book.max_records() });
        }
        if let Some((key, _)) =
            keys.into_iter().zip(results).find(|(_, result)| *result == ChangeResult::Unlike)
        {
            let current = self.stored_record(key).await?;
            return Err(RecordView::stale(key, current.as_ref()));
        }
        Ok(revision)
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

    /// Checks that the bounds of the kinds are kept, by what this instance holds.
    fn check_bounds(&self, changes: &[NewChange]) -> ControlResult<()> {
        let now_ms = now_ms();
        self.0.book(BookName::Operators).with(|book| {
            RecordKind::ALL.into_iter().try_for_each(|kind| {
                let is_new = |change: &&NewChange| {
                    change.record.as_ref().is_some_and(|record| record.kind() == kind)
                        && book.revision_of(change.key, now_ms).is_none()
                };
                let (new, (what, most)) = (changes.iter().filter(is_new).count(), kind.bound());
                check_count(what, if new == 0 { 0 } else { book.count(kind, now_ms) + new }, most)
            })
        })
    }

    /// The active record with this key, also one that another instance has just put.
    ///
    /// # Errors
    /// When this instance holds none, and the store does not respond.
    pub async fn record(&self, key: RecordKey) -> ControlResult<Option<RecordView>> {
        let now_ms = now_ms();
        match self.0.books().into_iter().find_map(|book| book.with(|book| book.view(key, now_ms))) {
            None => self.stored_record(key).await,
            held => Ok(held),
        }
    }

    /// The active record with this key that the store has now.
    ///
    /// # Errors
    /// When it does not respond.
    pub async fn stored_record(&self, key: RecordKey) -> ControlResult<Option<RecordView>> {
        let now_ms = now_ms();
        for name in BookName::ALL {
            let found = match &self.0.backend {
                Backend::Memory(_) => self.0.book(name).with(|book| book.view(key, now_ms)),
                Backend::Redis(redis) => book::get(&redis.client, name, key).await?,
            };
            if let Some(found) = found.filter(|found| is_active(found.record.ends_at_ms(), now_ms)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The changes that put records, of which each with a base replaces one with this revision, `0` for none.
    fn puts(&self, records: Vec<(Record, Option<u64>)>) -> ControlResult<Vec<NewChange>> {
        self.require_writable()?;
        if records.len() > STEP_CHANGES && records.iter().any(|(_, base)| base.is_some()) {
            // They are made in several steps, of which a later one may be refused.
            return Err(ControlError::TooMany {
                what: "records, of which some have a base",
                most: STEP_CHANGES,
            });
        }
        let put = |(record, base): (Record, Option<u64>)| {
            let record = record.bounded()?;
            let expected = match base {
                None => Expected::Any,
                Some(0) => Expected::Absent,
                Some(revision) => Expected::Revision(revision),
            };
            Ok(NewChange { key: record.key(), expected, record: Some(record), audit: None })
        };
        let changes: Vec<NewChange> = records.into_iter().map(put).collect::<ControlResult<_>>()?;
        self.check_bounds(&changes).map(|()| changes)
    }

    /// Checks that records can be put, and returns them with the revisions of those in whose place they would be, `0` for none.
    ///
    /// # Errors
    /// As [`Self::put_records`].
    pub async fn check_put(&self, records: Vec<(Record, Option<u64>)>) -> ControlResult<Vec<RecordView>> {
        let mut views = Vec::with_capacity(records.len());
        for NewChange { key, expected, record, .. } in self.puts(records)? {
            let mut known = self.0.book(BookName::Operators).with(|book| book.revision_of(key, now_ms()));
            if !expected.is_met(known) {
                let stored = self.stored_record(key).await?;
                known = stored.as_ref().map(|stored| stored.revision);
                if !expected.is_met(known) {
                    return Err(RecordView::stale(key, stored.as_ref()));
                }
            }
            views.extend(record.map(|record| RecordView::new(key, known.unwrap_or_default(), record)));
        }
        Ok(views)
    }

    /// Puts records of operators, which the caller validates, each in the place of an earlier one with its key; with a base, if
    /// that one has this revision, `0` for none. Returns them once this instance enforces them, or after a second.
    ///
    /// # Errors
    /// When a base is not met, there are too many, another region writes them, or the store does not respond; then some of
    /// more than 50 may have been put.
    pub async fn put_records(&self, records: Vec<(Record, Option<u64>)>) -> ControlResult<Vec<RecordView>> {
        let changes = self.puts(records)?;
        let mut views = Vec::with_capacity(changes.len());
        for step in changes.chunks(STEP_CHANGES) {
            let last = self.change(BookName::Operators, audited(step.to_vec())).await?;
            let revisions = last.saturating_sub(step.len() as u64 - 1)..;
            let put = step.iter().filter_map(|change| Some((change.key, change.record.clone()?)));
            views.extend(
                revisions.zip(put).map(|(revision, (key, record))| RecordView::new(key, revision, record)),
            );
        }
        if let Some(last) = views.last() {
            self.0.book(BookName::Operators).wait_for(last.revision).await;
        }
        Ok(views)
    }

    /// Removes a record, with a base if it has this revision, unless this is a dry run; returns it, if it existed. Returns once
    /// this instance enforces that, or after a second.
    ///
    /// # Errors
    /// When the base is not met, another region writes it, or the store does not respond.
    pub async fn remove_record(
        &self,
        key: RecordKey,
        base: Option<u64>,
        author: &str,
        is_dry_run: bool,
    ) -> ControlResult<Option<Record>> {
        let Some(current) = self.stored_record(key).await? else { return Ok(None) };
        let book = match current.record.kind() {
            RecordKind::Automatic => BookName::System,
            _ => {
                self.require_writable()?;
                BookName::Operators
            }
        };
        if base.is_some_and(|base| base != current.revision) {
            return Err(RecordView::stale(key, Some(&current)));
        }
        let record = current.record;
        if is_dry_run {
            return Ok(Some(record));
        }
        let (_, removal) = record.kind().actions();
        let audit = AuditEntry::new(author, removal, record.subject(), String::new());
        let expected = base.map_or(Expected::Present, Expected::Revision);
        let change = NewChange { key, expected, record: None, audit: Some(audit) };
        match self.change(book, vec![change]).await {
            // It was removed meanwhile.
            Err(ControlError::StaleRecord { current: None, .. }) => Ok(None),
            removed => {
                self.0.book(book).wait_for(removed?).await;
                Ok(Some(record))
            }
        }
    }

    /// Replaces a rule's switch by its next step, unless an operator has changed it meanwhile; whether it did.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn replace_switch(&self, from: Switch, to: Switch, comment: String) -> ControlResult<bool> {
        let (from, to) = (Record::Switch(from), Record::Switch(to));
        let known = self.0.book(BookName::Operators).with(|book| book.view(to.key(), now_ms()));
        let Some(known) = known.filter(|known| known.record == from) else { return Ok(false) };
        let audit = AuditEntry::new(SYSTEM_AUTHOR, Action::SetSwitch, to.subject(), comment);
        let expected = Expected::Revision(known.revision);
        match self
            .change(BookName::Operators, vec![NewChange { expected, ..NewChange::put(to, audit) }])
            .await
        {
            Err(ControlError::StaleRecord { .. }) => Ok(false),
            made => made.map(|_| true),
        }
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

/// Changes of which the first of each kind has an audit log entry for all of them.
fn audited(mut puts: Vec<NewChange>) -> Vec<NewChange> {
    for kind in RecordKind::ALL {
        let mut of_kind = puts.iter_mut().filter_map(|put| {
            let record = put.record.as_ref().filter(|record| record.kind() == kind)?;
            Some((record, &mut put.audit))
        });
        let Some((record, audit)) = of_kind.next() else { continue };
        let subject = match of_kind.count() {
            0 => record.subject(),
            more => format!("{} and {more} more", record.subject()),
        };
        let (action, _) = kind.actions();
        *audit = Some(AuditEntry::new(record.author(), action, subject, record.reason().to_owned()));
    }
    puts
}

/// Records of this instance.
impl Control {
    /// The lists, automatic entries and switches.
    ///
    /// # Errors
    /// Before this instance has read them from the store or its file.
    pub fn runtime(&self) -> ControlResult<Runtime> {
        self.require_loaded().map(|()| self.held_runtime())
    }

    /// Returns an error before this instance has read the records from the store or its file.
    ///
    /// # Errors
    /// See there.
    pub fn require_loaded(&self) -> ControlResult<()> {
        if self.shared_store().is_some() && !self.0.books().iter().all(|book| book.is_loaded()) {
            return Err(ControlError::Unavailable("the records are not read yet".to_owned()));
        }
        Ok(())
    }

    pub(crate) fn held_runtime(&self) -> Runtime {
        let now_ms = now_ms();
        let [operators, system] = self.0.books().map(|book| book.with(|book| book.runtime(now_ms)));
        Runtime { automatic: system.automatic, ..operators }
    }

    /// A page of the records that this instance holds, without those that have ended. Takes a few milliseconds, or more of
    /// many records.
    pub fn records(&self, selection: &RecordSelection) -> RecordPage {
        let now_ms = now_ms();
        let (mut records, mut counts) = (Vec::new(), BTreeMap::new());
        for book in self.0.books() {
            for kind in RecordKind::ALL {
                *counts.entry(kind).or_default() += book.with(|book| book.count(kind, now_ms));
            }
            let (mut found, mut next, mut is_last) = (Vec::new(), selection.after, false);
            while !is_last && found.len() <= selection.limit {
                let (some, after) = book.with(|book| book.page(selection, next, now_ms));
                found.extend(some);
                (next, is_last) = (after, after.is_none());
            }
            records.append(&mut found);
        }
        records.sort_unstable_by_key(|view| view.key);
        let is_truncated = records.len() > selection.limit;
        records.truncate(selection.limit);
        RecordPage {
            revision: self.0.book(BookName::Operators).head().revision,
            records,
            is_truncated,
            counts,
        }
    }
}
