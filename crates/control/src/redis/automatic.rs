//! Automatic entries in Redis: a sorted set of ids by their ends, a hash of payloads, and an audit log.

use std::time::Duration;

use tollgate_store::redis::Reply;

use super::script_client::{
    ControlResult, Operation, ScriptClient, bytes, list, malformed, read_json, text, to_json,
};
use crate::{
    Added, AuditEntry, AutomaticEntry,
    bounds::MAX_AUTOMATIC_ENTRIES,
    stored::{now_ms, token},
};

/// Timeout of an attempt to read all entries.
const LIST_TIMEOUT: Duration = Duration::from_secs(6);

fn operation(client: &ScriptClient, name: &'static str) -> Operation {
    Operation::new(name).on(client.keys.automatic().iter().cloned())
}

pub(crate) async fn add(
    client: &ScriptClient,
    new: Vec<(AutomaticEntry, AuditEntry)>,
) -> ControlResult<Vec<Added>> {
    let mut arguments = vec![token().into_bytes(), MAX_AUTOMATIC_ENTRIES.to_string().into_bytes()];
    for (entry, audit) in new {
        arguments.extend(arguments_of(&entry)?);
        arguments.push(to_json(&audit)?);
    }
    let Reply::List(replies) = client.run(&operation(client, "add_automatic").with(arguments)).await? else {
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
    exemption: Option<&AutomaticEntry>,
    audit: AuditEntry,
) -> ControlResult<bool> {
    let [_, ends, payload] = exemption.map(arguments_of).transpose()?.unwrap_or_default();
    let arguments = [token().into_bytes(), id.as_bytes().to_vec(), to_json(&audit)?, ends, payload];
    match bytes(client.run(&operation(client, "lift_automatic").with(arguments)).await?)?.as_slice() {
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
    let reply = client.run_with_timeout(&operation(client, "automatic"), LIST_TIMEOUT).await?;
    let [token, payloads] = list(reply)?;
    let Reply::List(payloads) = payloads else { return Err(malformed("no entries")) };
    let (mut entries, now_ms) = (Vec::new(), now_ms());
    for payload in payloads {
        match read_json::<AutomaticEntry>(&bytes(payload)?) {
            Ok(entry) if entry.expires_at_ms > now_ms => entries.push(entry),
            Ok(_) => {}
            Err(error) => problems.push(format!("an automatic entry is omitted: {error}")),
        }
    }
    entries.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
    Ok((text(bytes(token)?)?, entries))
}

/// Restores entries that the store lost.
pub(crate) async fn restore(
    client: &ScriptClient,
    token: &str,
    entries: &[AutomaticEntry],
) -> ControlResult<()> {
    let mut arguments = vec![token.as_bytes().to_vec()];
    for entry in entries {
        arguments.extend(arguments_of(entry)?);
    }
    client.run(&operation(client, "put_automatic_back").with(arguments)).await.map(drop)
}

/// Id, end and payload of an entry.
fn arguments_of(entry: &AutomaticEntry) -> ControlResult<[Vec<u8>; 3]> {
    Ok([entry.id.clone().into_bytes(), entry.expires_at_ms.to_string().into_bytes(), to_json(entry)?])
}
