//! Operations on overrides, and on copies for other regions, for which `lua/control/copies.lua` has the operations of Redis.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::task::spawn_blocking;
use tollgate_core::clock::now_ms;
use tollgate_rules::{OverrideId, RuleOverride};
use tollgate_store::redis::Reply;

use crate::copies::{
    CopiedOverrides, ListsCopy, NO_LISTS, StoredField, VersionCopy, audit, check_lists, check_version,
};
use crate::redis::reply::{Parts, argument, bytes, list, malformed, number, text, to_json};
use crate::redis::runtime::{ENTRIES_KEY, SWITCHES_KEY};
use crate::redis::{ATTEMPT_TIMEOUT, Operation, Redis, overrides, versions};
use crate::{
    Action, Adopted, AuditEntry, Control, ControlError, ControlResult, CopyClaim, OverrideEntry,
    OverridePage, OverridesHead, OverridesPage, RulesCopy, RulesIdentity, bounds::MAX_OVERRIDES,
    handle::Backend, model::check_count,
};

/// Overrides.
impl Control {
    /// Opens the file in which this instance keeps the overrides that it holds, before it reconciles them.
    ///
    /// # Errors
    /// When the file is unusable.
    pub fn open_overrides(&self, file: PathBuf) -> Result<(), String> {
        self.0.overrides.open(file, now_ms())
    }

    /// Puts overrides, each in the place of the one of the same rule and key. The caller validates them. Returns once this
    /// instance enforces them, or after a second.
    ///
    /// # Errors
    /// When there are too many, another region writes them, or the store does not respond; then some of more than 50 may
    /// have been put.
    pub async fn put_overrides(&self, entries: Vec<OverrideEntry>) -> ControlResult<()> {
        self.require_writable()?;
        let entries: Vec<_> = entries.into_iter().map(OverrideEntry::bounded).collect::<Result<_, _>>()?;
        let mut last = 0;
        for some in entries.chunks(overrides::STEP_CHANGES) {
            let Some(first) = some.first() else { continue };
            let subject = match some.len() - 1 {
                0 => first.subject(),
                more => format!("{} and {more} more", first.subject()),
            };
            let audit = AuditEntry::new(&first.author, Action::SetOverride, subject, first.reason.clone());
            last = self.put_some(some.to_vec(), audit).await?;
            self.0.changed.notify_one();
        }
        self.0.overrides.wait_for(last).await;
        Ok(())
    }

    async fn put_some(&self, entries: Vec<OverrideEntry>, audit: AuditEntry) -> ControlResult<u64> {
        let memory = match &self.0.backend {
            Backend::Redis(redis) => {
                let lineage = self.0.overrides.head().lineage;
                return overrides::put(&redis.client, &entries, audit, &lineage).await;
            }
            Backend::Memory(memory) => memory,
        };
        let entry_id = |entry: &OverrideEntry| OverrideEntry::id_of(&entry.domain, &entry.rule, &entry.key);
        let count = self.0.overrides.with(|book| {
            let new = entries.iter().filter(|entry| book.get(entry_id(entry)).is_none()).count();
            book.len() + new
        });
        check_count("overrides", count, MAX_OVERRIDES)?;
        memory.state.lock().audit_override(audit);
        let changes = entries.into_iter().map(|entry| (entry_id(&entry), Some(entry))).collect();
        self.record_own(changes).await
    }

    /// Records changes of a store in this process, on a thread that may wait for the disk.
    async fn record_own(&self, changes: Vec<(OverrideId, Option<OverrideEntry>)>) -> ControlResult<u64> {
        let control = self.clone();
        Ok(spawn_blocking(move || control.0.overrides.record_own(changes, now_ms())).await?)
    }

    /// Removes an override; whether it existed. Returns once this instance enforces that, or after a second.
    ///
    /// # Errors
    /// When another region writes them, or the store does not respond.
    pub async fn remove_override(&self, id: &str, author: &str) -> ControlResult<bool> {
        self.require_writable()?;
        let Ok(id) = u128::from_str_radix(id, 16).map(OverrideId) else { return Ok(false) };
        let entry = self.0.overrides.with(|book| book.get(id));
        let is_active = |entry: &OverrideEntry| entry.expires_at_ms.is_none_or(|end| end > now_ms());
        let Some(entry) = entry.filter(is_active) else { return Ok(false) };
        let audit = AuditEntry::new(author, Action::RemoveOverride, entry.subject(), String::new());
        let removed = match &self.0.backend {
            Backend::Redis(redis) => {
                let lineage = self.0.overrides.head().lineage;
                overrides::remove(&redis.client, &id.to_string(), audit, &lineage).await?
            }
            Backend::Memory(memory) => {
                memory.state.lock().audit_override(audit);
                Some(self.record_own(vec![(id, None)]).await?)
            }
        };
        self.0.changed.notify_one();
        if let Some(revision) = removed {
            self.0.overrides.wait_for(revision).await;
        }
        Ok(removed.is_some())
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
        self.0.overrides.with(|book| {
            let (overrides, is_truncated) = book.page(after, limit, is_selected);
            OverridePage { revision: book.head.revision, overrides, is_truncated }
        })
    }
}

/// Copies.
impl Control {
    /// Sets the region that writes the rules, lists, switches and overrides of this store, unless it is this one. Then changes of
    /// them are refused here.
    pub fn set_writing_region(&self, region: Option<&str>) {
        let present = self.0.writing_region.load();
        if present.as_ref().map(|present| present.as_str()) != region {
            self.0.writing_region.store(region.map(|region| Arc::new(region.to_owned())));
            self.0.changed.notify_one();
        }
    }

    /// Returns an error if another region writes the rules.
    pub fn require_writable(&self) -> ControlResult<()> {
        match self.0.writing_region.load().as_deref() {
            Some(region) => Err(ControlError::OtherRegion { region: String::clone(region) }),
            None => Ok(()),
        }
    }

    /// Returns what this store has that differs from a known state.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn rules_after(&self, known: &RulesIdentity) -> ControlResult<RulesCopy> {
        let redis = self.copied_store()?;
        let known_lists = if known.lists == NO_LISTS { "" } else { &known.lists };
        let operation = Operation::new("rules").with([known_lists.into()]);
        let mut parts = Parts::of(redis.client.run_once(&operation, COPY_TIMEOUT).await?)?;
        let (current, token, generation) = (parts.number()?, parts.text()?, parts.number()?);
        let (mut lists_token, trail) = (parts.text()?, parts.text()?);
        let (entries, switches) = (fields(parts.reply()?)?, fields(parts.reply()?)?);
        let (lineage, revision, epoch) = (parts.text()?, parts.number()?, parts.number()?);
        let overrides = Some(OverridesHead { lineage, revision, epoch });
        let mut copy = RulesCopy { overrides, ..RulesCopy::default() };
        if self.source().has_versions() && current > 0 && token != known.version {
            let [meta, read_token, trail, files] = versions::fields_of(redis, current).await?;
            if text(read_token)? != token {
                return Err(malformed("another version"));
            }
            let (trail, meta, files) = (text(trail)?, bytes(meta)?, bytes(files)?);
            copy.version = Some(VersionCopy { number: current, token, trail, meta, files });
        }
        if lists_token.is_empty() {
            NO_LISTS.clone_into(&mut lists_token);
        }
        if lists_token != known.lists {
            copy.lists = Some(ListsCopy { generation, token: lists_token, trail, entries, switches });
        }
        Ok(copy)
    }

    /// Claims the next comparison with the writing region, at most once in `interval` for all instances of the region.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn claim_copy(&self, interval: Duration) -> ControlResult<CopyClaim> {
        let operation = Operation::new("claim_copy").with([argument(interval.as_millis())]);
        let claimed = self.copied_store()?.client.run_once(&operation, ATTEMPT_TIMEOUT).await?;
        let [is_claimed, now, compared, version, lists, source, revision] = list(claimed)?;
        Ok(CopyClaim {
            is_claimed: is_claimed == Reply::Integer(1),
            now_ms: number(now)?,
            compared_ms: Some(number(compared)?).filter(|at| *at > 0),
            has: RulesIdentity { version: text(version)?, lists: text(lists)? },
            overrides: CopiedOverrides { source: text(source)?, revision: number(revision)? },
        })
    }

    /// Replaces the version, the lists and the switches that differ from the writing region, unless they were replaced since
    /// `claim`.
    ///
    /// # Errors
    /// When the copy is malformed, or the store does not respond; then a part may have been replaced.
    pub async fn adopt_copy(
        &self,
        region: &str,
        claim: &CopyClaim,
        copy: RulesCopy,
    ) -> ControlResult<Adopted> {
        let redis = self.copied_store()?;
        let mut adopted = Adopted::default();
        let version = copy.version.filter(|_| self.source().has_versions());
        if let Some(version) = version {
            check_version(&version)?;
            let audit = audit(region, Action::Apply, format!("version {}", version.number));
            adopted.version = adopt_version(redis, &claim.has.version, version, &audit).await?;
        }
        if let Some(lists) = copy.lists {
            check_lists(&lists)?;
            let subject = format!("lists and switches after {} changes", lists.generation);
            let audit = audit(region, Action::AddEntry, subject);
            adopted.lists = adopt_lists(redis, &claim.has.lists, lists, &audit).await?;
        }
        if adopted != Adopted::default() {
            self.0.changed.notify_one();
        }
        Ok(adopted)
    }

    /// Records that a comparison with the writing region has succeeded.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn compared(&self, claim: &CopyClaim) -> ControlResult<()> {
        let operation = Operation::new("compared").with([argument(claim.now_ms)]);
        self.copied_store()?.client.run_once(&operation, ATTEMPT_TIMEOUT).await.map(drop)
    }

    /// Returns the changes of overrides that a copy of the state `known` lacks.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn overrides_after(
        &self,
        known: &OverridesHead,
        is_continued: bool,
    ) -> ControlResult<OverridesPage> {
        let page: &[u8] = if is_continued { b"next" } else { b"first" };
        let arguments = [
            known.lineage.as_str().into(),
            argument(known.revision),
            argument(known.epoch),
            page.into(),
            argument(overrides::PAGE_CHANGES),
        ];
        let mut parts = Parts::of(
            self.copied_store()?.client.run(&Operation::of_overrides("read").with(arguments)).await?,
        )?;
        let (lineage, revision, epoch) = (parts.text()?, parts.number()?, parts.number()?);
        let is_whole = parts.bytes()? == b"whole";
        let changes = overrides::read_changes(parts)?;
        let has_more = changes.last().is_some_and(|last| last.revision < revision);
        let head = Some(OverridesHead { lineage, revision, epoch });
        Ok(OverridesPage { head, is_whole, has_more, changes })
    }

    pub(crate) fn copied_store(&self) -> ControlResult<&Redis> {
        let absent = || ControlError::Unavailable("rules are copied between Redis servers".into());
        self.shared_store().ok_or_else(absent)
    }
}

/// Timeout of an operation that carries a version or lists.
const COPY_TIMEOUT: Duration = Duration::from_secs(6);

/// Makes a version current; false if the current one is not `known`.
async fn adopt_version(
    redis: &Redis,
    known: &str,
    copy: VersionCopy,
    audit: &AuditEntry,
) -> ControlResult<bool> {
    let VersionCopy { number: version, token, trail, meta, files } = copy;
    let key = redis.client.keys.version(version);
    let arguments =
        [known.into(), token.into(), argument(version), meta, trail.into(), files, to_json(audit)?];
    let operation = Operation::new("copy_version").on([key]).with(arguments);
    let [result, oldest, stored] = list(redis.client.run_once(&operation, COPY_TIMEOUT).await?)?;
    let is_adopted = bytes(result)? == b"made";
    if is_adopted {
        versions::trim(&redis.client, version, oldest, stored).await;
    }
    Ok(is_adopted)
}

/// Replaces lists and switches; false if the present ones are not `known`.
async fn adopt_lists(redis: &Redis, known: &str, copy: ListsCopy, audit: &AuditEntry) -> ControlResult<bool> {
    let ListsCopy { generation, token, trail, entries, switches } = copy;
    let arguments = [token.into(), argument(generation), trail.into(), to_json(audit)?, known.into()];
    let mut operation = Operation::new("copy_runtime").with(arguments);
    for (key, fields) in [(ENTRIES_KEY, entries), (SWITCHES_KEY, switches)] {
        for StoredField { name, value } in fields {
            operation = operation.with([key.into(), name, value]);
        }
    }
    Ok(bytes(redis.client.run_once(&operation, COPY_TIMEOUT).await?)? == b"made")
}

/// Reads the fields of a hash.
fn fields(reply: Reply) -> ControlResult<Vec<StoredField>> {
    let (mut parts, mut fields) = (Parts::of(reply)?, Vec::new());
    while !parts.is_empty() {
        fields.push(StoredField { name: parts.bytes()?, value: parts.bytes()? });
    }
    Ok(fields)
}
