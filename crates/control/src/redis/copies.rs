//! Copies of rules in Redis. `lua/control/copies.lua` has the operations.

use std::time::Duration;

use tollgate_store::redis::Reply;

use super::{
    Redis,
    reply::{Parts, argument, bytes, list, malformed, number, text, to_json},
    runtime::{ENTRIES_KEY, SWITCHES_KEY},
    script_client::{ATTEMPT_TIMEOUT, Operation},
};
use crate::{
    AuditEntry, ControlResult,
    copies::{
        CopiedOverrides, CopyClaim, ListsCopy, NO_LISTS, OverridesHead, RulesCopy, RulesIdentity,
        StoredField, VersionCopy,
    },
};

/// Timeout of an operation that carries a version or lists.
const COPY_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) async fn rules_after(
    redis: &Redis,
    known: &RulesIdentity,
    has_versions: bool,
) -> ControlResult<RulesCopy> {
    let known_lists = if known.lists == NO_LISTS { "" } else { &known.lists };
    let operation = Operation::new("rules").with([known_lists.into()]);
    let mut parts = Parts::of(redis.client.run_once(&operation, COPY_TIMEOUT).await?)?;
    let (current, token, generation) = (parts.number()?, parts.text()?, parts.number()?);
    let (mut lists_token, trail) = (parts.text()?, parts.text()?);
    let (entries, switches) = (fields(parts.reply()?)?, fields(parts.reply()?)?);
    let (lineage, revision, epoch) = (parts.text()?, parts.number()?, parts.number()?);
    let mut copy =
        RulesCopy { overrides: Some(OverridesHead { lineage, revision, epoch }), ..RulesCopy::default() };
    if has_versions && current > 0 && token != known.version {
        copy.version = Some(version_copy(redis, current, &token).await?);
    }
    if lists_token.is_empty() {
        NO_LISTS.clone_into(&mut lists_token);
    }
    if lists_token != known.lists {
        copy.lists = Some(ListsCopy { generation, token: lists_token, trail, entries, switches });
    }
    Ok(copy)
}

async fn version_copy(redis: &Redis, number: u64, expected: &str) -> ControlResult<VersionCopy> {
    let fields = ["meta", "token", "trail", "files"];
    let [meta, token, trail, files] =
        list(redis.client.read(&redis.client.keys.version(number), &fields).await?)?;
    let (token, trail) = (text(token)?, text(trail)?);
    if token != expected {
        return Err(malformed("another version"));
    }
    Ok(VersionCopy { number, token, trail, meta: bytes(meta)?, files: bytes(files)? })
}

pub(crate) async fn claim_copy(redis: &Redis, interval: Duration) -> ControlResult<CopyClaim> {
    let operation = Operation::new("claim_copy").with([argument(interval.as_millis())]);
    let [is_claimed, now, compared, version, lists, source, revision] =
        list(redis.client.run_once(&operation, ATTEMPT_TIMEOUT).await?)?;
    Ok(CopyClaim {
        is_claimed: is_claimed == Reply::Integer(1),
        now_ms: number(now)?,
        compared_ms: Some(number(compared)?).filter(|at| *at > 0),
        has: RulesIdentity { version: text(version)?, lists: text(lists)? },
        overrides: CopiedOverrides { source: text(source)?, revision: number(revision)? },
    })
}

pub(crate) async fn record_comparison(redis: &Redis, began_ms: u64) -> ControlResult<()> {
    let operation = Operation::new("compared").with([argument(began_ms)]);
    redis.client.run_once(&operation, ATTEMPT_TIMEOUT).await.map(drop)
}

/// Makes a version current; false if the current one is not `known`.
pub(crate) async fn adopt_version(
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
        super::versions::trim(&redis.client, version, oldest, stored).await;
    }
    Ok(is_adopted)
}

/// Replaces lists and switches; false if the present ones are not `known`.
pub(crate) async fn adopt_lists(
    redis: &Redis,
    known: &str,
    copy: ListsCopy,
    audit: &AuditEntry,
) -> ControlResult<bool> {
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
