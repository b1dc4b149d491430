//! Versions, lists and switches in the Redis that instances share.
//!
//! Each operation is one run of the script in `lua/control/`, on keys of one hash tag. An operation whose result is
//! unknown after an outage or a failover is repeated: the script recognizes by its token what it has already done.

pub(super) mod automatic;
pub(super) mod bans;
mod copies;
mod figures;
mod keys;
pub(super) mod overrides;
mod script_client;
mod streams;
mod values;
mod versions;

use std::{
    cmp::Reverse,
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};
use tollgate_store::{
    StoreError,
    redis::{RedisSettings, Reply},
};

use self::script_client::{
    ControlResult, HEARTBEAT_TIMEOUT, Operation, ScriptClient, bytes, list, malformed, number, read_json,
    text, to_json,
};
use self::streams::{Cursor, parts_of_id};
pub(super) use self::{
    copies::SharedCopies,
    figures::{ReportTopic, SharedFigures},
};
use super::{
    AuditEntry, ControlError, Instance, ListEntry, Runtime, Switch,
    change::Change,
    copies::MAX_LISTS_BYTES,
    region_record::RegionRecord,
    rule_overrides::BookHead,
    stored::{ActiveState, Connectivity, FilesPresence, Restore, StoreHead, StoredRuntime, VersionId, token},
};

/// Time between two attempts to subscribe with invalid settings, which were valid at the start.
const SUBSCRIBE_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Time for which records of the region outlive the last instance: a region that starts later joins the others.
const REGION_RECORD_TTL_MS: u64 = 30 * 24 * 3_600_000;

/// Records of instances that are read at once, which bounds the time that one call takes in Redis.
const INSTANCES_OF_CALL: usize = 50;

/// Backend in Redis.
#[derive(Debug)]
pub(super) struct Redis {
    client: ScriptClient,
    settings: RedisSettings,
    /// Whether this instance enforces lists or switches, so that a store that never had any has lost them.
    has_overrides: AtomicBool,
}

impl Redis {
    /// Connects in the background, by tasks on the current runtime.
    pub(super) fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        let client = ScriptClient::open(settings)?;
        Ok(Self { client, settings: settings.clone(), has_overrides: AtomicBool::new(false) })
    }

    /// Figures of the fleet.
    pub(super) const fn figures(&self) -> SharedFigures<'_> {
        SharedFigures(&self.client)
    }

    /// Copies of the rules of another region.
    pub(super) const fn copies(&self) -> SharedCopies<'_> {
        SharedCopies(&self.client)
    }

    /// Notifies `changed` of changes by other instances.
    pub(super) async fn subscribe(&self, changed: &Notify) -> Infallible {
        loop {
            match self.client.subscribe(&self.settings, || changed.notify_one()).await {
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
        active: ActiveState,
    ) -> ControlResult<StoreHead> {
        self.has_overrides.store(!active.runtime_token.is_empty(), Ordering::Relaxed);
        let key = active.version.as_ref().map(|version| self.client.keys.version(version.number));
        let (active_number, active_token) =
            active.version.map(|version| (version.number.to_string(), version.token)).unwrap_or_default();
        let operation = Operation::new("beat").on(key).with([
            instance.id.as_bytes().to_vec(),
            to_json(instance)?,
            active_number.into_bytes(),
            active_token.into_bytes(),
            active.runtime_token.into_bytes(),
        ]);
        let reply = self.client.run_once(&operation, HEARTBEAT_TIMEOUT).await?;
        let [current, token, has_files, generation, runtime_token, size, automatic, of @ ..]: [Reply; 11] =
            list(reply)?;
        let current = match (current, token) {
            (Reply::Bytes(current), Reply::Bytes(token)) => {
                Some(VersionId { number: number(&current)?, token: text(token)? })
            }
            _ => None,
        };
        let files = match has_files {
            Reply::Integer(1) => FilesPresence::Present,
            Reply::Integer(_) => FilesPresence::Lost,
            _ => FilesPresence::Unknown,
        };
        let (generation, size) = (number(&bytes(generation)?)?, number(&bytes(size)?)?);
        let [runtime_token, automatic_token] = [text(bytes(runtime_token)?)?, text(bytes(automatic)?)?];
        let [lineage, revision, epoch, floor] = of;
        let number_of = |reply| number(&bytes(reply)?);
        let overrides = BookHead {
            lineage: text(bytes(lineage)?)?,
            revision: number_of(revision)?,
            epoch: number_of(epoch)?,
            floor: number_of(floor)?,
        };
        Ok(StoreHead { current, files, size, generation, runtime_token, automatic_token, overrides })
    }

    pub(super) async fn current(&self) -> ControlResult<Option<u64>> {
        match self.client.run(&Operation::new("current")).await? {
            Reply::Nil => Ok(None),
            reply => number(&bytes(reply)?).map(Some),
        }
    }

    pub(super) async fn runtime(&self) -> ControlResult<StoredRuntime> {
        let reply = self.client.run(&Operation::new("runtime")).await?;
        let [generation, token, trail, entries, switches] = list(reply)?;
        let mut problems = Vec::new();
        let mut entries: Vec<ListEntry> = values::read("an entry of a list", entries, &mut problems)?;
        let mut switches: Vec<Switch> = values::read("a switch", switches, &mut problems)?;
        // Hashes in Redis are unordered.
        entries.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        switches.sort_by(|a, b| (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule)));
        let (automatic_token, automatic) = automatic::active(&self.client, &mut problems).await?;
        let runtime = Runtime { generation: number(&bytes(generation)?)?, entries, automatic, switches };
        let (token, trail) = (text(bytes(token)?)?, text(bytes(trail)?)?);
        Ok(StoredRuntime { runtime, token, trail, automatic_token, problems })
    }

    pub(super) async fn change(&self, change: Change, audit: AuditEntry) -> ControlResult<bool> {
        let what = match &change {
            Change::PutEntry(_) | Change::RemoveEntry(_) => "entries of lists",
            Change::PutSwitch(_)
            | Change::ReplaceSwitch { .. }
            | Change::RemoveSwitch { .. }
            | Change::AuditOnly => "switches",
        };
        let replaced = values::replaced(&change)?;
        let (action, key, field, value, most) = values::arguments(change)?;
        let operation = Operation::new("change").with([
            token().into_bytes(),
            to_json(&audit)?,
            action.into(),
            key.into(),
            field.into_bytes(),
            value,
            most.to_string().into_bytes(),
            self.earlier_overrides().into(),
            replaced,
        ]);
        match bytes(self.client.run(&operation).await?)?.as_slice() {
            b"made" => Ok(true),
            b"none" => Ok(false),
            b"full" => Err(ControlError::TooMany { what, most }),
            b"large" => Err(ControlError::TooLarge { what: "all lists and switches", most: MAX_LISTS_BYTES }),
            b"lost" => Err(ControlError::Unavailable(
                "it has lost the lists and switches, which are restored soon".into(),
            )),
            _ => Err(malformed("no result")),
        }
    }

    /// Whether this instance enforces lists or switches, as the script takes it.
    fn earlier_overrides(&self) -> &'static [u8] {
        if self.has_overrides.load(Ordering::Relaxed) { b"some" } else { b"none" }
    }

    pub(super) async fn restore_runtime(
        &self,
        stored: &StoredRuntime,
        audit: AuditEntry,
        connectivity: Connectivity,
    ) -> ControlResult<Restore> {
        let StoredRuntime { runtime, token, trail, .. } = stored;
        let mut arguments = vec![
            token.clone().into_bytes(),
            runtime.generation.to_string().into_bytes(),
            trail.clone().into_bytes(),
            to_json(&audit)?,
            script_name(connectivity),
        ];
        for entry in &runtime.entries {
            arguments.extend(values::entry_arguments(entry)?);
        }
        for switch in &runtime.switches {
            arguments.extend(values::switch_arguments(switch)?);
        }
        restored(self.client.run(&Operation::new("put_runtime_back").with(arguments)).await?)
    }

    pub(super) async fn audit(&self, before: Option<&str>, limit: usize) -> ControlResult<Vec<AuditEntry>> {
        let (mut all, mut cursor) = (Vec::new(), Cursor::before(before));
        while let Some((start, most)) = cursor.next(limit.saturating_sub(all.len())) {
            let part = self.some_audit(start, most).await?;
            cursor.passed(part.len(), part.last().map(|entry| &*entry.id));
            all.extend(part);
        }
        Ok(all)
    }

    async fn some_audit(&self, start: Vec<u8>, limit: usize) -> ControlResult<Vec<AuditEntry>> {
        let of_overrides = overrides::audit(start.clone(), limit);
        let operators = Operation::new("audit").with([start, limit.to_string().into_bytes()]);
        let automatic = operators.clone().on([self.client.keys.automatic_audit().to_vec()]);
        let mut all = Vec::new();
        for log in [operators, automatic, of_overrides] {
            all.extend(self.audit_of(&log).await?);
        }
        all.sort_by_key(|entry| Reverse(parts_of_id(&entry.id)));
        all.truncate(limit);
        Ok(all)
    }

    /// Client of the scripts.
    pub(super) const fn client(&self) -> &ScriptClient {
        &self.client
    }

    /// Reads one of the audit logs.
    async fn audit_of(&self, operation: &Operation) -> ControlResult<Vec<AuditEntry>> {
        let Reply::List(items) = self.client.run(operation).await? else { return Err(malformed("no list")) };
        let read = |item| {
            let [id, entry] = list(item)?;
            Ok(AuditEntry { id: text(bytes(id)?)?, ..read_json(&bytes(entry)?)? })
        };
        items.into_iter().map(read).collect()
    }

    /// Reads a record of the region, or replaces the one given first. Returns whether it was replaced, and unless it was,
    /// the record.
    pub(super) async fn region_record(
        &self,
        record: RegionRecord,
        change: Option<(&str, &str)>,
    ) -> ControlResult<(bool, String)> {
        let (from, to) = change.unwrap_or_default();
        let key = self.client.keys.named(record.key());
        let arguments = [from.into(), to.into(), REGION_RECORD_TTL_MS.to_string().into_bytes()];
        let operation = Operation::new("region_tables").on([key]).with(arguments);
        match self.client.run_once(&operation, HEARTBEAT_TIMEOUT).await? {
            Reply::Integer(1) => Ok((true, String::new())),
            record => Ok((false, text(bytes(record)?)?)),
        }
    }

    pub(super) async fn instances(&self) -> ControlResult<Vec<Instance>> {
        let read = |at, record| -> ControlResult<Instance> {
            Ok(Instance { seen_at_ms: number(&bytes(at)?)?, ..read_json(&bytes(record)?)? })
        };
        let (mut instances, mut after) = (Vec::new(), Vec::new());
        loop {
            let operation = Operation::new("instances").with([after, INSTANCES_OF_CALL.to_string().into()]);
            let Reply::List(records) = self.client.run(&operation).await? else {
                return Err(malformed("no list"));
            };
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

/// Name of the connectivity in the script.
fn script_name(connectivity: Connectivity) -> Vec<u8> {
    match connectivity {
        Connectivity::Steady => b"steady".to_vec(),
        Connectivity::Interrupted => b"cut off".to_vec(),
    }
}

/// Result of restoring lost state.
fn restored(reply: Reply) -> ControlResult<Restore> {
    match bytes(reply)?.as_slice() {
        b"made" => Ok(Restore::Restored),
        b"kept" => Ok(Restore::Present),
        b"other" => Ok(Restore::Superseded),
        _ => Err(malformed("no result")),
    }
}
