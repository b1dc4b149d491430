//! Operations on copies for other regions, for which `lua/control/copies.lua` has the operations of Redis.

use std::{sync::Arc, time::Duration};

use tollgate_store::redis::Reply;

use crate::book::BookName;
use crate::copies::{CopiedRecords, VersionCopy, audit, check_version};
use crate::redis::reply::{Parts, argument, bytes, list, malformed, number, text, to_json};
use crate::redis::{ATTEMPT_TIMEOUT, Operation, Redis, book, versions};
use crate::{
    AuditEntry, Control, ControlError, ControlResult, CopyClaim, RecordsHead, RecordsPage, RulesCopy,
};

/// Copies.
impl Control {
    /// Sets the region that writes the rules and records of this store, unless it is this one. Then changes of
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

    /// Returns the version of this store if it is not the one with this token, and the state of its records.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn rules_after(&self, known_version: &str) -> ControlResult<RulesCopy> {
        let redis = self.copied_store()?;
        let mut parts = Parts::of(redis.client.run_once(&Operation::new("rules"), COPY_TIMEOUT).await?)?;
        let (current, token) = (parts.number()?, parts.text()?);
        let (lineage, revision, epoch) = (parts.text()?, parts.number()?, parts.number()?);
        let mut copy = RulesCopy { version: None, records: Some(RecordsHead { lineage, revision, epoch }) };
        if self.source().has_versions() && current > 0 && token != known_version {
            let [meta, read_token, trail, files] = versions::fields_of(redis, current).await?;
            if text(read_token)? != token {
                return Err(malformed("another version"));
            }
            let (trail, meta, files) = (text(trail)?, bytes(meta)?, bytes(files)?);
            copy.version = Some(VersionCopy { number: current, token, trail, meta, files });
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
        let [is_claimed, now, compared, version, source, revision] = list(claimed)?;
        Ok(CopyClaim {
            is_claimed: is_claimed == Reply::Integer(1),
            now_ms: number(now)?,
            compared_ms: Some(number(compared)?).filter(|at| *at > 0),
            version: text(version)?,
            records: CopiedRecords { source: text(source)?, revision: number(revision)? },
        })
    }

    /// Replaces the version by that of the writing region, unless it was replaced since `claim`; whether it was.
    ///
    /// # Errors
    /// When the copy is malformed, or the store does not respond; then it may have been replaced.
    pub async fn adopt_version(
        &self,
        region: &str,
        claim: &CopyClaim,
        version: Option<VersionCopy>,
    ) -> ControlResult<bool> {
        let redis = self.copied_store()?;
        let Some(version) = version.filter(|_| self.source().has_versions()) else { return Ok(false) };
        check_version(&version)?;
        let audit = audit(region, format!("version {}", version.number));
        let is_adopted = adopt_version(redis, &claim.version, version, &audit).await?;
        if is_adopted {
            self.0.changed.notify_one();
        }
        Ok(is_adopted)
    }

    /// Records that a comparison with the writing region has succeeded.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn compared(&self, claim: &CopyClaim) -> ControlResult<()> {
        let operation = Operation::new("compared").with([argument(claim.now_ms)]);
        self.copied_store()?.client.run_once(&operation, ATTEMPT_TIMEOUT).await.map(drop)
    }

    /// Returns the changes of records that a copy of the state `known` lacks.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn records_after(&self, known: &RecordsHead, is_continued: bool) -> ControlResult<RecordsPage> {
        let page: &[u8] = if is_continued { b"next" } else { b"first" };
        let arguments = [
            known.lineage.as_str().into(),
            argument(known.revision),
            argument(known.epoch),
            page.into(),
            argument(book::PAGE_CHANGES),
        ];
        let mut parts = Parts::of(
            self.copied_store()?
                .client
                .run(&Operation::of_book(BookName::Operators, "read").with(arguments))
                .await?,
        )?;
        let (lineage, revision, epoch) = (parts.text()?, parts.number()?, parts.number()?);
        let is_whole = parts.bytes()? == b"whole";
        let changes = book::read_changes(parts)?;
        let has_more = changes.last().is_some_and(|last| last.revision < revision);
        let head = Some(RecordsHead { lineage, revision, epoch });
        Ok(RecordsPage { head, is_whole, has_more, changes })
    }

    pub(crate) fn copied_store(&self) -> ControlResult<&Redis> {
        let absent = || ControlError::Unavailable("rules are copied between Redis servers".into());
        self.shared_store().ok_or_else(absent)
    }
}

/// Timeout of an operation that carries a version.
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
