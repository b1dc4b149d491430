//! Versions and the book in the Redis that instances share.
//!
//! Each operation is one run of a script of `lua/control/` or `lua/book/`, on keys of one hash tag. An operation whose result is
//! unknown after an outage or a failover is repeated: the script recognizes by its token what it has already done.

pub(super) mod bans;
pub(super) mod book;
pub(super) mod reply;
mod script_client;
pub(super) mod versions;

use std::{cmp::Reverse, convert::Infallible, time::Duration};

use tokio::{sync::Notify, time::sleep};
use tollgate_store::StoreError;
use tollgate_store::redis::{RedisSettings, Reply};

#[cfg(test)]
pub(crate) use self::script_client::BOOK_KEYS;
pub(crate) use self::script_client::{ATTEMPT_TIMEOUT, Operation};
#[doc(hidden)]
pub use self::script_client::{BOOK_SCRIPT, CONTROL_SCRIPT};
use self::{
    reply::{Parts, argument, bytes, items, list, number, parse, read_json, result_of, text, to_json},
    script_client::{HEARTBEAT_TIMEOUT, ScriptClient},
};
use crate::stored::{FilesPresence, Restore, StoreHead, VersionId, token};
use crate::{
    AuditEntry, ControlResult, Instance, RegionRecord,
    book::{BookHead, BookName},
};

/// Time between two attempts to subscribe with invalid settings, which were valid at the start.
const SUBSCRIBE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Time for which records of the region outlive the last instance: a region that starts later joins the others.
const REGION_RECORD_TTL_MS: u64 = 30 * 24 * 3_600_000;

/// Records of instances that are read at once, which bounds the time that one call takes in Redis.
const INSTANCES_OF_CALL: usize = 50;

/// Entries of a stream that are read at once, for the same reason.
const ENTRIES_OF_CALL: usize = 250;

/// Backend in Redis.
#[derive(Debug)]
pub(super) struct Redis {
    /// Client of the scripts.
    pub(crate) client: ScriptClient,
    settings: RedisSettings,
}

impl Redis {
    /// Connects in the background, by tasks on the current runtime.
    pub(super) fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        let client = ScriptClient::open(settings)?;
        Ok(Self { client, settings: settings.clone() })
    }

    /// Notifies `changed` of changes by other instances.
    pub(super) async fn subscribe(&self, changed: &Notify) -> Infallible {
        let client = &self.client;
        loop {
            match client.store.subscribe(&self.settings, &client.keys.channel, || changed.notify_one()).await
            {
                Ok(never) => match never {},
                Err(error) => {
                    tracing::error!(%error, "cannot subscribe to changes; polling instead");
                    sleep(SUBSCRIBE_RETRY_INTERVAL).await;
                }
            }
        }
    }

    pub(super) async fn heartbeat(
        &self,
        instance: &Instance,
        active: Option<VersionId>,
    ) -> ControlResult<StoreHead> {
        let key = active.as_ref().map(|version| self.client.keys.version(version.number));
        let (active_number, active_token) =
            active.map(|version| (version.number.to_string(), version.token)).unwrap_or_default();
        let operation = Operation::new("beat").on(key).with([
            instance.id.as_str().into(),
            to_json(instance)?,
            active_number.into(),
            active_token.into(),
        ]);
        let mut parts = Parts::of(self.client.run_once(&operation, HEARTBEAT_TIMEOUT).await?)?;
        // In the order of the reply.
        Ok(StoreHead {
            current: match (parts.reply()?, parts.reply()?) {
                (Reply::Bytes(number), token @ Reply::Bytes(_)) => {
                    Some(VersionId { number: parse(&number)?, token: text(token)? })
                }
                _ => None,
            },
            files: match parts.reply()? {
                Reply::Integer(1) => FilesPresence::Present,
                Reply::Integer(_) => FilesPresence::Lost,
                _ => FilesPresence::Unknown,
            },
            size: parts.number()?,
            lifted_bans: parts.number()?,
            books: [read_head(&mut parts)?, read_head(&mut parts)?],
        })
    }

    pub(super) async fn current(&self) -> ControlResult<Option<u64>> {
        match self.client.run(&Operation::new("current")).await? {
            Reply::Nil => Ok(None),
            reply => number(reply).map(Some),
        }
    }

    pub(super) async fn audit(&self, before: Option<&str>, limit: usize) -> ControlResult<Vec<AuditEntry>> {
        latest(before, limit, |start, most| async move {
            let part = self.some_audit(start, most).await?;
            Ok(part.into_iter().map(|entry| (entry.id.clone(), Some(entry))).collect())
        })
        .await
    }

    /// Records a change outside this store in the audit log.
    pub(super) async fn note(&self, audit: &AuditEntry) -> ControlResult<()> {
        let operation = Operation::new("note").with([token().into(), to_json(audit)?]);
        self.client.run(&operation).await.map(drop)
    }

    async fn some_audit(&self, start: Vec<u8>, limit: usize) -> ControlResult<Vec<AuditEntry>> {
        let arguments = [start, argument(limit)];
        let mut all = Vec::new();
        for log in BookName::ALL.map(|book| Operation::of_book(book, "audit")) {
            for item in items(self.client.run(&log.with(arguments.clone())).await?)? {
                let [id, entry] = list(item)?;
                all.push(AuditEntry { id: text(id)?, ..read_json(&bytes(entry)?)? });
            }
        }
        all.sort_by_key(|entry| Reverse(parts_of_id(&entry.id)));
        all.truncate(limit);
        Ok(all)
    }

    /// Reads a record of the region, or replaces the one given first. Returns whether it was replaced, and unless it was,
    /// the record.
    pub(super) async fn region_record(
        &self,
        record: RegionRecord,
        change: Option<(&str, &str)>,
    ) -> ControlResult<(bool, String)> {
        let (from, to) = change.unwrap_or_default();
        let key = self.client.keys.named(record.name());
        let arguments = [from.into(), to.into(), argument(REGION_RECORD_TTL_MS)];
        let operation = Operation::new("region_tables").on([key]).with(arguments);
        match self.client.run_once(&operation, HEARTBEAT_TIMEOUT).await? {
            Reply::Integer(1) => Ok((true, String::new())),
            record => Ok((false, text(record)?)),
        }
    }

    pub(super) async fn instances(&self) -> ControlResult<Vec<Instance>> {
        let read = |at, record| -> ControlResult<Instance> {
            Ok(Instance { seen_at_ms: number(at)?, ..read_json(&bytes(record)?)? })
        };
        let (mut instances, mut after) = (Vec::new(), Vec::new());
        loop {
            let operation = Operation::new("instances").with([after, argument(INSTANCES_OF_CALL)]);
            let records = items(self.client.run(&operation).await?)?;
            let is_last = records.len() < INSTANCES_OF_CALL;
            after = Vec::new();
            for record in records {
                let [id, at, record] = list(record)?;
                // An unreadable record of another release does not hide the others.
                instances.extend(read(at, record));
                after = bytes(id)?;
            }
            if is_last {
                instances.sort_by(|a: &Instance, b| a.id.cmp(&b.id));
                return Ok(instances);
            }
        }
    }
}

fn read_head(parts: &mut Parts) -> ControlResult<BookHead> {
    Ok(BookHead {
        lineage: parts.text()?,
        revision: parts.number()?,
        epoch: parts.number()?,
        floor: parts.number()?,
    })
}

/// Result of restoring lost state.
fn restored(reply: Reply) -> ControlResult<Restore> {
    let words = [("made", Restore::Restored), ("kept", Restore::Present), ("other", Restore::Superseded)];
    result_of(reply, words)
}

/// Reads at most `limit` of the latest entries of a stream before the one with this id, or of all, newest first. `read` returns
/// a part with the ids, from a place as `XREVRANGE` takes it; entries that it cannot read are left out.
pub(crate) async fn latest<T, R: Future<Output = ControlResult<Vec<(String, Option<T>)>>>>(
    before: Option<&str>,
    limit: usize,
    read: impl Fn(Vec<u8>, usize) -> R,
) -> ControlResult<Vec<T>> {
    let after = |id: &str| format!("({id}").into_bytes();
    let mut all = Vec::new();
    // Before a text that is no id there are none.
    let mut start = before.map_or(Some(b"+".to_vec()), |id| parts_of_id(id).map(|_| after(id)));
    while let Some(from) = start.filter(|_| all.len() < limit) {
        let most = ENTRIES_OF_CALL.min(limit - all.len());
        let part = read(from, most).await?;
        start = part.last().filter(|_| part.len() >= most).map(|(id, _)| after(id));
        all.extend(part.into_iter().filter_map(|(_, entry)| entry));
    }
    Ok(all)
}

/// The time and the sequence number of an entry's id.
fn parts_of_id(text: &str) -> Option<(u64, u64)> {
    let (time, sequence) = text.split_once('-')?;
    Some((time.parse().ok()?, sequence.parse().ok()?))
}
