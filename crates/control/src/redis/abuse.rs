//! Automatic entries in Redis, and the exchange of reports.

use std::time::Duration;

use tollgate_store::redis::Reply;

use super::{
    script_client::{
        ControlResult, HEARTBEAT_TIMEOUT, Operation, ScriptClient, bytes, list, malformed, number, read_json,
        text, to_json,
    },
    token,
};
use crate::{
    AuditEntry,
    abuse::{Added, AutomaticEntry, AutomaticMode, Exchange, NewEntry, book::millis},
    bounds::{MAX_ABUSE_RECORDS, MAX_AUTOMATIC_ENTRIES, MAX_DRY_RUN_ENTRIES},
};

/// Age above which a report no longer counts: longer than two intervals of reports.
const MAX_REPORT_AGE_MS: u64 = 5_000;
/// Time for which an instance leads after its last report.
const LEAD_MS: u64 = 10_000;
/// Timeout of an attempt to read all entries.
const LIST_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) async fn exchange(
    client: &ScriptClient,
    instance: &str,
    report: Vec<u8>,
    watch: Option<Vec<u8>>,
) -> ControlResult<Exchange> {
    let operation = Operation::of_abuse("exchange").with([
        instance.as_bytes().to_vec(),
        report,
        MAX_REPORT_AGE_MS.to_string().into_bytes(),
        LEAD_MS.to_string().into_bytes(),
        watch.unwrap_or_default(),
    ]);
    let [is_leader, count, watch, reports] = list(client.run_once(&operation, HEARTBEAT_TIMEOUT).await?)?;
    let Reply::List(reports) = reports else { return Err(malformed("no reports")) };
    let mut present = Vec::new();
    let mut reports = reports.into_iter();
    while let (Some(id), Some(report)) = (reports.next(), reports.next()) {
        present.push((text(bytes(id)?)?, bytes(report)?));
    }
    Ok(Exchange {
        instances: u32::try_from(number(&bytes(count)?)?).unwrap_or(u32::MAX),
        watch: bytes(watch)?,
        reports: matches!(is_leader, Reply::Integer(1)).then_some(present),
    })
}

pub(crate) async fn add(
    client: &ScriptClient,
    new: Vec<(NewEntry, AuditEntry)>,
) -> ControlResult<Vec<Added>> {
    let mut arguments = vec![token().into_bytes()];
    let bounds = [MAX_AUTOMATIC_ENTRIES, MAX_DRY_RUN_ENTRIES, MAX_ABUSE_RECORDS];
    arguments.extend(bounds.map(|bound| bound.to_string().into_bytes()));
    for (NewEntry { entry, duration, max_duration, forgive }, audit) in new {
        arguments.push(entry.id.clone().into_bytes());
        arguments.push(mode_name(entry.mode).as_bytes().to_vec());
        let times = [duration, max_duration, forgive].map(millis);
        arguments.extend(times.map(|time| time.max(1).to_string().into_bytes()));
        arguments.push(to_json(&entry)?);
        arguments.push(to_json(&audit)?);
    }
    let Reply::List(replies) = client.run(&Operation::of_abuse("add").with(arguments)).await? else {
        return Err(malformed("no list"));
    };
    let read = |reply| match bytes(reply)?.as_slice() {
        b"listed" => Ok(Added::Listed),
        b"known" => Ok(Added::Known),
        b"full" => Ok(Added::Full),
        _ => Err(malformed("no result")),
    };
    replies.into_iter().map(read).collect()
}

pub(crate) async fn lift(
    client: &ScriptClient,
    id: &str,
    exemption: Option<AutomaticEntry>,
    audit: AuditEntry,
) -> ControlResult<bool> {
    let (ends, created, payload) = match &exemption {
        Some(entry) => (entry.expires_at_ms, entry.created_at_ms, to_json(entry)?),
        None => (0, 0, Vec::new()),
    };
    let operation = Operation::of_abuse("lift").with([
        token().into_bytes(),
        id.as_bytes().to_vec(),
        to_json(&audit)?,
        ends.to_string().into_bytes(),
        created.to_string().into_bytes(),
        payload,
    ]);
    match bytes(client.run(&operation).await?)?.as_slice() {
        b"made" => Ok(true),
        b"none" => Ok(false),
        _ => Err(malformed("no result")),
    }
}

/// Reads the token and the active entries. An unreadable entry, which a newer release may have written, is omitted.
pub(crate) async fn active(
    client: &ScriptClient,
    problems: &mut Vec<String>,
) -> ControlResult<(String, Vec<AutomaticEntry>)> {
    let reply = client.run_with_timeout(&Operation::of_abuse("list"), LIST_TIMEOUT).await?;
    let [token, found] = list(reply)?;
    let Reply::List(found) = found else { return Err(malformed("no entries")) };
    let (mut entries, mut found) = (Vec::new(), found.into_iter());
    while let (Some(record), Some(payload)) = (found.next(), found.next()) {
        match entry(&text(bytes(record)?)?, &bytes(payload)?) {
            Ok(entry) => entries.push(entry),
            Err(error) => problems.push(format!("an automatic entry is omitted: {error}")),
        }
    }
    entries.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
    Ok((text(bytes(token)?)?, entries))
}

/// Restores entries that the store lost. Of their offences the active ones are remembered until the end.
pub(crate) async fn restore(
    client: &ScriptClient,
    token: &str,
    entries: &[AutomaticEntry],
) -> ControlResult<()> {
    let mut arguments = vec![token.as_bytes().to_vec()];
    for entry in entries {
        let ends = entry.expires_at_ms.to_string();
        let (offences, created) = (entry.offences.to_string(), entry.created_at_ms.to_string());
        arguments.extend(
            [&*entry.id, &*ends, mode_name(entry.mode), &*offences, &*ends, &*created]
                .map(|text| text.as_bytes().to_vec()),
        );
        arguments.push(to_json(entry)?);
    }
    client.run(&Operation::of_abuse("restore").with(arguments)).await.map(drop)
}

/// Audit log entries of automatic entries, newest first.
pub(crate) fn audit(start: Vec<u8>, limit: usize) -> Operation {
    Operation::of_abuse("audit").with([start, limit.to_string().into_bytes()])
}

/// Reads an entry: the record has what the store determined.
fn entry(record: &str, payload: &[u8]) -> ControlResult<AutomaticEntry> {
    let mut parts = record.split(' ');
    let mut part = || parts.next().ok_or_else(|| malformed("a short record"));
    let (ends, mode, offences) = (part()?, part()?, part()?);
    let (_, created) = (part()?, part()?);
    let mode = AutomaticMode::ALL.into_iter().find(|known| mode_name(*known) == mode);
    Ok(AutomaticEntry {
        mode: mode.ok_or_else(|| malformed("an unknown mode"))?,
        created_at_ms: number(created.as_bytes())?,
        expires_at_ms: number(ends.as_bytes())?,
        offences: number(offences.as_bytes())?,
        ..read_json(payload)?
    })
}

/// Name of the mode in the script.
const fn mode_name(mode: AutomaticMode) -> &'static str {
    match mode {
        AutomaticMode::DryRun => "d",
        AutomaticMode::Enforce => "e",
        AutomaticMode::Exempt => "x",
    }
}
