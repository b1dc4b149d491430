//! Versions in Redis.

use std::{sync::Arc, time::Duration};

use tokio::task::spawn_blocking;
use tollgate_store::redis::Reply;

use super::reply::{argument, items, list, malformed, number, read_json, text, to_json};
use super::script_client::{ATTEMPT_TIMEOUT, Operation, ScriptClient};
use super::{Redis, restored};
use crate::bounds::{MAX_STORED_BYTES, MAX_VERSION_BYTES, MAX_VERSIONS};
use crate::stored::{Connectivity, Restore, StoredVersion};
use crate::{AuditEntry, ControlError, ControlResult, Files, Version};

/// Versions that are read or dropped by one operation.
const PAGE_VERSIONS: u64 = 200;
/// Maximum size of a version's files as stored: with what escaping adds, which for text is little.
const MAX_PACKED_BYTES: usize = MAX_VERSION_BYTES * 9 / 8;

pub(crate) async fn versions(
    redis: &Redis,
    before: Option<u64>,
    limit: usize,
) -> ControlResult<Vec<Version>> {
    let Some(current) = redis.current().await? else { return Ok(Vec::new()) };
    let oldest = oldest(current);
    let mut next = before.unwrap_or(u64::MAX).min(current.saturating_add(1));
    let mut versions = Vec::new();
    while next > oldest && versions.len() < limit {
        let first = next.saturating_sub(PAGE_VERSIONS).max(oldest);
        let keys = (first..next).rev().map(|number| redis.client.keys.version(number));
        for meta in items(redis.client.run(&Operation::new("versions").on(keys)).await?)? {
            // A missing one was lost or dropped, or never existed.
            if let Reply::Bytes(meta) = meta {
                versions.push(read_json(&meta)?);
            }
        }
        next = first;
    }
    versions.truncate(limit);
    Ok(versions)
}

/// Meta, token, trail and files of a version, which never changes, so that it need not be read by a script.
pub(crate) async fn fields_of(redis: &Redis, number: u64) -> ControlResult<[Reply; 4]> {
    let fields = ["meta", "token", "trail", "files"];
    list(redis.client.read(&redis.client.keys.version(number), &fields).await?)
}

pub(crate) async fn version(redis: &Redis, number: u64) -> ControlResult<Option<Arc<StoredVersion>>> {
    let [meta, token, trail, files] = fields_of(redis, number).await?;
    let (Reply::Bytes(meta), token @ Reply::Bytes(_), Reply::Bytes(files)) = (meta, token, files) else {
        return Ok(None);
    };
    // Parsing large files takes a while.
    let read = spawn_blocking(move || {
        let (version, files) = (read_json(&meta)?, Arc::new(read_json(&files)?));
        Ok(Arc::new(StoredVersion { version, token: text(token)?, files, trail: text(trail)? }))
    });
    read.await?.map(Some)
}

pub(crate) async fn apply(redis: &Redis, stored: StoredVersion, audit: AuditEntry) -> ControlResult<Version> {
    let StoredVersion { version, token, files, trail: _ } = stored;
    let files = packed(files).await?;
    let timeout = timeout_for(&files);
    let operation = Operation::new("apply").on([redis.client.keys.version(version.number)]).with([
        token.into(),
        version.based_on.map(argument).unwrap_or_default(),
        argument(version.number),
        to_json(&version)?,
        files,
        to_json(&audit)?,
    ]);
    let mut reply = items(redis.client.run_with_timeout(&operation, timeout).await?)?.into_iter();
    match (reply.next(), reply.next(), reply.next()) {
        (Some(Reply::Bytes(result)), Some(oldest), Some(bytes)) if result == b"made" => {
            trim(&redis.client, version.number, oldest, bytes).await;
            Ok(version)
        }
        (Some(Reply::Bytes(result)), Some(Reply::Bytes(meta)), _) if result == b"stale" => {
            Err(ControlError::Stale { current: Box::new(read_json(&meta)?) })
        }
        (Some(Reply::Bytes(result)), ..) if result == b"lost" => {
            Err(ControlError::Unavailable("it has lost the current version, which is restored soon".into()))
        }
        _ => Err(malformed("no result")),
    }
}

pub(crate) async fn restore_version(
    redis: &Redis,
    stored: &StoredVersion,
    audit: AuditEntry,
    connectivity: Connectivity,
) -> ControlResult<Restore> {
    let StoredVersion { version, token, files, trail } = stored.clone();
    let files = packed(files).await?;
    let timeout = timeout_for(&files);
    let operation = Operation::new("put_back").on([redis.client.keys.version(version.number)]).with([
        token.into(),
        argument(version.number),
        to_json(&version)?,
        trail.into(),
        files,
        to_json(&audit)?,
        argument(oldest(version.number)),
        connectivity.name().into(),
    ]);
    restored(redis.client.run_with_timeout(&operation, timeout).await?)
}

/// Drops the oldest versions until the others are few and small enough. If this change cannot, the next one does.
pub(crate) async fn trim(client: &ScriptClient, current: u64, oldest: Reply, stored: Reply) {
    if let Err(error) = try_to_trim(client, current, oldest, stored).await {
        tracing::warn!(%error, "cannot drop old versions of the rules");
    }
}

async fn try_to_trim(client: &ScriptClient, current: u64, first: Reply, stored: Reply) -> ControlResult<()> {
    let (mut first, mut stored) = (number(first)?, number(stored)?);
    let (least, max_bytes) = (oldest(current), MAX_STORED_BYTES as u64);
    while first < current && (first < least || stored > max_bytes) {
        let last = first.saturating_add(PAGE_VERSIONS).min(current);
        let keys = (first..last).map(|number| client.keys.version(number));
        let operation = Operation::new("trim").on(keys).with([first, least, max_bytes].map(argument));
        let [lowest, bytes_left] = list(client.run(&operation).await?)?;
        let next = number(lowest)?;
        if next <= first {
            break;
        }
        (first, stored) = (next, number(bytes_left)?);
    }
    Ok(())
}

/// Number of the oldest version to retain.
fn oldest(current: u64) -> u64 {
    current.saturating_sub(MAX_VERSIONS) + 1
}

async fn packed(files: Arc<Files>) -> ControlResult<Vec<u8>> {
    let packed = spawn_blocking(move || to_json(&*files)).await??;
    if packed.len() > MAX_PACKED_BYTES {
        return Err(ControlError::TooLarge { what: "an escaped version", most: MAX_PACKED_BYTES });
    }
    Ok(packed)
}

/// Timeout of an attempt that sends these files, over a slow network with half a MiB in a second.
fn timeout_for(files: &[u8]) -> Duration {
    ATTEMPT_TIMEOUT + Duration::from_millis(files.len() as u64 / 512)
}
