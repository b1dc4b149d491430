//! Versions in Redis.

use std::{sync::Arc, time::Duration};

use tokio::task::spawn_blocking;
use tollgate_store::redis::Reply;

use super::{
    Redis, restored,
    script_client::{
        ATTEMPT_TIMEOUT, ControlResult, Operation, ScriptClient, bytes, list, malformed, number, read_json,
        text, to_json,
    },
    script_name,
};
use crate::{
    AuditEntry, ControlError, Files, Version,
    bounds::{MAX_STORED_BYTES, MAX_VERSION_BYTES, MAX_VERSIONS},
    stored::{Connectivity, Restore, StoredVersion},
};

/// Versions that are read or dropped by one operation.
const PAGE_VERSIONS: u64 = 200;
/// Maximum size of a version's files as stored: with what escaping adds, which for text is little.
const MAX_PACKED_BYTES: usize = MAX_VERSION_BYTES.saturating_mul(9).saturating_div(8);

impl Redis {
    pub(crate) async fn versions(&self, before: Option<u64>, limit: usize) -> ControlResult<Vec<Version>> {
        let Some(current) = self.current().await? else { return Ok(Vec::new()) };
        let oldest = oldest(current);
        let mut next = before.unwrap_or(u64::MAX).min(current.saturating_add(1));
        let mut versions = Vec::new();
        while next > oldest && versions.len() < limit {
            let first = next.saturating_sub(PAGE_VERSIONS).max(oldest);
            let keys = (first..next).rev().map(|number| self.client.keys.version(number));
            let reply = self.client.run(&Operation::new("versions").on(keys)).await?;
            let Reply::List(metas) = reply else { return Err(malformed("no versions")) };
            for meta in metas {
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

    pub(crate) async fn version(&self, number: u64) -> ControlResult<Option<Arc<StoredVersion>>> {
        // A version never changes, so it need not be read by a script.
        let fields = ["meta", "token", "trail", "files"];
        let [meta, token, trail, files] =
            list(self.client.read(&self.client.keys.version(number), &fields).await?)?;
        let (Reply::Bytes(meta), Reply::Bytes(token), Reply::Bytes(files)) = (meta, token, files) else {
            return Ok(None);
        };
        // Parsing large files takes a while.
        let read = spawn_blocking(move || {
            let (version, files) = (read_json(&meta)?, read_json(&files)?);
            let trail = text(bytes(trail)?)?;
            Ok(Arc::new(StoredVersion { version, token: text(token)?, files: Arc::new(files), trail }))
        });
        read.await.unwrap_or_else(|error| Err(malformed(error))).map(Some)
    }

    pub(crate) async fn apply(&self, stored: StoredVersion, audit: AuditEntry) -> ControlResult<Version> {
        let StoredVersion { version, token, files, trail: _ } = stored;
        let files = packed(files).await?;
        let timeout = timeout_for(&files);
        let based_on = version.based_on.map(|number| number.to_string()).unwrap_or_default();
        let operation = Operation::new("apply").on([self.client.keys.version(version.number)]).with([
            token.into_bytes(),
            based_on.into_bytes(),
            version.number.to_string().into_bytes(),
            to_json(&version)?,
            files,
            to_json(&audit)?,
        ]);
        let reply = self.client.run_with_timeout(&operation, timeout).await?;
        let Reply::List(reply) = reply else { return Err(malformed("no result")) };
        let mut reply = reply.into_iter();
        match (reply.next(), reply.next(), reply.next()) {
            (Some(Reply::Bytes(result)), Some(oldest), Some(bytes)) if result == b"made" => {
                // The next change drops them if this one cannot.
                if let Err(error) = trim(&self.client, version.number, oldest, bytes).await {
                    tracing::warn!(%error, "cannot drop old versions of the rules");
                }
                Ok(version)
            }
            (Some(Reply::Bytes(result)), Some(Reply::Bytes(meta)), _) if result == b"stale" => {
                Err(ControlError::Stale { current: Box::new(read_json(&meta)?) })
            }
            (Some(Reply::Bytes(result)), ..) if result == b"lost" => Err(ControlError::Unavailable(
                "it has lost the current version, which is restored soon".into(),
            )),
            _ => Err(malformed("no result")),
        }
    }

    pub(crate) async fn restore_version(
        &self,
        stored: &StoredVersion,
        audit: AuditEntry,
        connectivity: Connectivity,
    ) -> ControlResult<Restore> {
        let StoredVersion { version, token, files, trail } = stored.clone();
        let files = packed(files).await?;
        let timeout = timeout_for(&files);
        let operation = Operation::new("put_back").on([self.client.keys.version(version.number)]).with([
            token.into_bytes(),
            version.number.to_string().into_bytes(),
            to_json(&version)?,
            trail.into_bytes(),
            files,
            to_json(&audit)?,
            oldest(version.number).to_string().into_bytes(),
            script_name(connectivity),
        ]);
        restored(self.client.run_with_timeout(&operation, timeout).await?)
    }
}

/// Drops the oldest versions until the others are few and small enough.
pub(super) async fn trim(
    client: &ScriptClient,
    current: u64,
    first: Reply,
    stored: Reply,
) -> ControlResult<()> {
    let (mut first, mut stored) = (number(&bytes(first)?)?, number(&bytes(stored)?)?);
    let (least, max_bytes) = (oldest(current), u64::try_from(MAX_STORED_BYTES).unwrap_or(u64::MAX));
    while first < current && (first < least || stored > max_bytes) {
        let last = first.saturating_add(PAGE_VERSIONS).min(current);
        let operation =
            Operation::new("trim").on((first..last).map(|number| client.keys.version(number))).with([
                first.to_string().into_bytes(),
                least.to_string().into_bytes(),
                max_bytes.to_string().into_bytes(),
            ]);
        let [lowest, bytes_left] = list(client.run(&operation).await?)?;
        let next = number(&bytes(lowest)?)?;
        if next <= first {
            break;
        }
        (first, stored) = (next, number(&bytes(bytes_left)?)?);
    }
    Ok(())
}

/// Number of the oldest version to retain.
fn oldest(current: u64) -> u64 {
    current.saturating_sub(MAX_VERSIONS).saturating_add(1)
}

async fn packed(files: Arc<Files>) -> ControlResult<Vec<u8>> {
    let packed = spawn_blocking(move || to_json(&*files)).await;
    let packed = packed.unwrap_or_else(|error| Err(malformed(error)))?;
    match packed.len() > MAX_PACKED_BYTES {
        true => Err(ControlError::TooLarge { what: "an escaped version", most: MAX_PACKED_BYTES }),
        false => Ok(packed),
    }
}

/// Timeout of an attempt that sends these files, over a slow network with half a MiB in a second.
fn timeout_for(files: &[u8]) -> Duration {
    let bytes = u64::try_from(files.len()).unwrap_or(u64::MAX);
    ATTEMPT_TIMEOUT.saturating_add(Duration::from_millis(bytes.saturating_div(512)))
}
