//! Lists, switches, automatic entries and the list of active bans in Redis.
//!
//! Lists and switches are values of two hashes; automatic entries are a sorted set of ids by their ends and a hash of payloads,
//! with an audit log of their own; bans are a sorted set of ids by their ends, the watched ones of it, and a hash of records.

use std::{sync::atomic::Ordering, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tollgate_core::clock::now_ms;
use tollgate_store::redis::Reply;

use super::reply::{
    argument, bytes, count, items, list, malformed, number, read_json, result_of, text, to_json,
};
use super::script_client::{ATTEMPT_TIMEOUT, Operation};
use super::{Redis, restored};
use crate::bounds::{MAX_AUTOMATIC_ENTRIES, MAX_BAN_PAGE, MAX_BANS, MAX_ENTRIES, MAX_SWITCHES};
use crate::stored::{Connectivity, Restore, StoredRuntime, token};
use crate::{
    Added, AuditEntry, AutomaticEntry, BanCounts, BanFilter, BanPage, BanPosition, ControlError,
    ControlResult, ListEntry, ListedBan, Runtime, Switch, copies::MAX_LISTS_BYTES, listed_bans::PageBuilder,
    lists::Change,
};

/// Indexes in the script's KEYS.
pub(crate) const ENTRIES_KEY: &str = "3";
pub(crate) const SWITCHES_KEY: &str = "4";

/// Timeout of an attempt to read all automatic entries.
const AUTOMATIC_TIMEOUT: Duration = Duration::from_secs(6);

impl Redis {
    pub(crate) async fn runtime(&self) -> ControlResult<StoredRuntime> {
        let [generation, token, trail, entries, switches] =
            list(self.client.run(&Operation::new("runtime")).await?)?;
        let mut problems = Vec::new();
        let mut entries: Vec<ListEntry> = read("an entry of a list", entries, &mut problems)?;
        let mut switches: Vec<Switch> = read("a switch", switches, &mut problems)?;
        // Hashes in Redis are unordered.
        entries.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        switches.sort_by(|a, b| (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule)));
        let (automatic_token, automatic) = self.automatic(&mut problems).await?;
        let runtime = Runtime { generation: number(generation)?, entries, automatic, switches };
        Ok(StoredRuntime { runtime, token: text(token)?, trail: text(trail)?, automatic_token, problems })
    }

    pub(crate) async fn change(&self, change: Change, audit: AuditEntry) -> ControlResult<bool> {
        let (what, most) = match &change {
            Change::PutEntry(_) | Change::RemoveEntry(_) => ("entries of lists", MAX_ENTRIES),
            _ => ("switches", MAX_SWITCHES),
        };
        let none = Vec::new;
        let (action, [key, field, value], replaced) = match change {
            Change::PutEntry(entry) => ("put", entry_arguments(&entry)?, none()),
            Change::RemoveEntry(id) => ("remove", [ENTRIES_KEY.into(), id.into(), none()], none()),
            Change::PutSwitch(switch) => ("put", switch_arguments(&switch)?, none()),
            Change::ReplaceSwitch { from, to } => {
                ("replace", switch_arguments(&to)?, value(from.expires_at_ms, &*from)?)
            }
            Change::RemoveSwitch { domain, rule } => {
                ("remove", [SWITCHES_KEY.into(), switch_field(&domain, &rule).into(), none()], none())
            }
            Change::AuditOnly => ("note", [ENTRIES_KEY.into(), none(), none()], none()),
        };
        let operation = Operation::new("change").with([
            token().into(),
            to_json(&audit)?,
            action.into(),
            key,
            field,
            value,
            argument(most),
            self.earlier_changes().into(),
            replaced,
        ]);
        let lost = "it has lost the lists and switches, which are restored soon";
        let words = [
            ("made", Ok(true)),
            ("none", Ok(false)),
            ("full", Err(ControlError::TooMany { what, most })),
            ("large", Err(ControlError::TooLarge { what: "all lists and switches", most: MAX_LISTS_BYTES })),
            ("lost", Err(ControlError::Unavailable(lost.to_owned()))),
        ];
        result_of(self.client.run(&operation).await?, words)?
    }

    /// Whether this instance enforces lists or switches, as the script takes it.
    pub(super) fn earlier_changes(&self) -> &'static [u8] {
        if self.has_changes.load(Ordering::Relaxed) { b"some" } else { b"none" }
    }

    pub(crate) async fn restore_runtime(
        &self,
        stored: &StoredRuntime,
        audit: AuditEntry,
        connectivity: Connectivity,
    ) -> ControlResult<Restore> {
        let StoredRuntime { runtime, token, trail, .. } = stored;
        let mut arguments = vec![
            token.as_str().into(),
            argument(runtime.generation),
            trail.as_str().into(),
            to_json(&audit)?,
            connectivity.name().into(),
        ];
        for entry in &runtime.entries {
            arguments.extend(entry_arguments(entry)?);
        }
        for switch in &runtime.switches {
            arguments.extend(switch_arguments(switch)?);
        }
        restored(self.client.run(&Operation::new("put_runtime_back").with(arguments)).await?)
    }

    fn on_automatic(&self, name: &'static str) -> Operation {
        Operation::new(name).on(self.client.keys.automatic.iter().cloned())
    }

    pub(crate) async fn add_automatic(
        &self,
        new: Vec<(AutomaticEntry, AuditEntry)>,
    ) -> ControlResult<Vec<Added>> {
        let mut arguments = vec![token().into(), argument(MAX_AUTOMATIC_ENTRIES)];
        for (entry, audit) in new {
            arguments.extend(automatic_arguments(&entry)?);
            arguments.push(to_json(&audit)?);
        }
        let replies = items(self.client.run(&self.on_automatic("add_automatic").with(arguments)).await?)?;
        let words = [("listed", Added::Listed), ("known", Added::Known), ("full", Added::Full)];
        replies.into_iter().map(|reply| result_of(reply, words)).collect()
    }

    pub(crate) async fn lift_automatic(
        &self,
        id: &str,
        exemption: Option<&AutomaticEntry>,
        audit: AuditEntry,
    ) -> ControlResult<bool> {
        let [_, ends, payload] = exemption.map(automatic_arguments).transpose()?.unwrap_or_default();
        let arguments = [token().into(), id.into(), to_json(&audit)?, ends, payload];
        let reply = self.client.run(&self.on_automatic("lift_automatic").with(arguments)).await?;
        result_of(reply, [("made", true), ("none", false)])
    }

    /// Reads the token and the active automatic entries. An unreadable entry, which a newer release may have written, is omitted.
    async fn automatic(&self, problems: &mut Vec<String>) -> ControlResult<(String, Vec<AutomaticEntry>)> {
        let operation = self.on_automatic("automatic");
        let [token, payloads] = list(self.client.run_with_timeout(&operation, AUTOMATIC_TIMEOUT).await?)?;
        let (mut entries, now_ms) = (Vec::new(), now_ms());
        for payload in items(payloads)? {
            match read_json::<AutomaticEntry>(&bytes(payload)?) {
                Ok(entry) if entry.expires_at_ms > now_ms => entries.push(entry),
                Ok(_) => {}
                Err(error) => problems.push(format!("an automatic entry is omitted: {error}")),
            }
        }
        entries.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        Ok((text(token)?, entries))
    }

    pub(crate) async fn restore_automatic(
        &self,
        token: &str,
        entries: &[AutomaticEntry],
    ) -> ControlResult<()> {
        let mut arguments = vec![token.into()];
        for entry in entries {
            arguments.extend(automatic_arguments(entry)?);
        }
        self.client.run(&self.on_automatic("put_automatic_back").with(arguments)).await.map(drop)
    }
}

/// Id, end and payload of an automatic entry.
fn automatic_arguments(entry: &AutomaticEntry) -> ControlResult<[Vec<u8>; 3]> {
    Ok([entry.id.as_str().into(), argument(entry.expires_at_ms), to_json(entry)?])
}

/// Index of the key, field and value of an entry.
fn entry_arguments(entry: &ListEntry) -> ControlResult<[Vec<u8>; 3]> {
    Ok([ENTRIES_KEY.into(), entry.id.as_str().into(), value(entry.expires_at_ms, entry)?])
}

/// Index of the key, field and value of a switch.
fn switch_arguments(switch: &Switch) -> ControlResult<[Vec<u8>; 3]> {
    let field = switch_field(&switch.domain, &switch.rule);
    Ok([SWITCHES_KEY.into(), field.into(), value(switch.expires_at_ms, switch)?])
}

/// Field of a rule's switch; injective for any names.
fn switch_field(domain: &str, rule: &str) -> String {
    format!("{}:{domain}:{rule}", domain.len())
}

/// Encodes a value. The expiry stands before the JSON, where the script finds it.
fn value(expires_at_ms: Option<u64>, of: &impl Serialize) -> ControlResult<Vec<u8>> {
    let mut value = format!("{}\n", expires_at_ms.unwrap_or_default()).into_bytes();
    value.extend(to_json(of)?);
    Ok(value)
}

/// Reads the values of a hash. An unreadable value, which a newer release may have written, does not affect the others.
fn read<T: DeserializeOwned>(what: &str, reply: Reply, problems: &mut Vec<String>) -> ControlResult<Vec<T>> {
    let read = |value| {
        let value = bytes(value)?;
        let rest = value.iter().position(|byte| *byte == b'\n').and_then(|at| value.get(at..));
        read_json(rest.ok_or_else(|| malformed("no expiry"))?)
    };
    let mut all = Vec::new();
    for value in items(reply)? {
        match read(value) {
            Ok(value) => all.push(value),
            Err(error) => problems.push(format!("{what} is omitted: {error}")),
        }
    }
    Ok(all)
}

fn on_bans(redis: &Redis, name: &'static str) -> Operation {
    Operation::new(name).on(redis.client.keys.bans.iter().cloned())
}

pub(crate) async fn record_bans(redis: &Redis, bans: &[ListedBan]) -> ControlResult<BanCounts> {
    let mut arguments = vec![argument(MAX_BANS)];
    for ban in bans {
        let (id, mode) = (ban.id.as_str().into(), ban.mode.name().into());
        arguments.extend([id, argument(ban.ends_at_ms), mode, to_json(ban)?]);
    }
    let operation = on_bans(redis, "record_bans").with(arguments);
    // Repeated by the caller, with what began since.
    let [enforce, watch] = list(redis.client.run_once(&operation, ATTEMPT_TIMEOUT).await?)?;
    Ok(BanCounts { enforce: count(&enforce)?, watch: count(&watch)? })
}

/// Returns bans behind a position, read in chunks so that no call takes long.
pub(crate) async fn bans(
    redis: &Redis,
    filter: BanFilter<'_>,
    after: Option<BanPosition>,
    limit: usize,
) -> ControlResult<BanPage> {
    let mut page = PageBuilder::new(filter, after, limit);
    loop {
        let BanPosition { ends_at_ms, id } =
            page.page.next.clone().unwrap_or(BanPosition { ends_at_ms: u64::MAX, id: String::new() });
        let arguments = [argument(ends_at_ms), id.into(), argument(MAX_BAN_PAGE)];
        let elements = items(redis.client.run(&on_bans(redis, "bans").with(arguments)).await?)?;
        let is_last = elements.len() < MAX_BAN_PAGE;
        for element in elements {
            let [id, end, record] = list(element)?;
            let position = BanPosition { ends_at_ms: number(end)?, id: text(id)? };
            // An unreadable record of another release does not hide the others.
            let ban = bytes(record).ok().and_then(|record| read_json(&record).ok());
            if !page.push(position, ban) {
                return Ok(page.page);
            }
        }
        if is_last {
            return Ok(page.last());
        }
    }
}

pub(crate) async fn ban(redis: &Redis, id: &str) -> ControlResult<Option<ListedBan>> {
    match redis.client.run(&on_bans(redis, "ban").with([id.into()])).await? {
        Reply::Nil => Ok(None),
        reply => read_json(&bytes(reply)?).map(Some),
    }
}

pub(crate) async fn remove_ban(redis: &Redis, id: &str) -> ControlResult<bool> {
    let arguments = [id.into(), token().into(), redis.earlier_changes().to_vec()];
    let reply = redis.client.run(&on_bans(redis, "remove_ban").with(arguments)).await?;
    Ok(count(&reply)? > 0)
}
