//! Versions in Redis.

use std::{sync::Arc, time::Duration};

use tokio::task::spawn_blocking;

use super::{
    Redis, name_of,
    script_client::{self, Answer, Operation, bytes, garbled, list, read_json, text, to_json},
};
use crate::{
    AuditEntry, ControlError, Files, Version,
    bounds::{MOST_BYTES, MOST_KEPT_BYTES, MOST_VERSIONS},
    stored::{Kept, PutBack, Reach},
};
use tollgate_store::redis::Reply;

/// Versions that are asked for or dropped at once.
const MOST_AT_ONCE: u64 = 200;
/// Bytes of a version's files as they are kept: with what escaping them adds, which for text is little.
const MOST_PACKED: usize = MOST_BYTES.saturating_mul(3).saturating_div(2);

impl Redis {
    pub(crate) async fn versions(&self, before: Option<u64>, most: usize) -> Answer<Vec<Version>> {
        let Some(current) = self.current().await? else { return Ok(Vec::new()) };
        let oldest = oldest(current);
        let mut next = before.unwrap_or(u64::MAX).min(current.saturating_add(1));
        let mut versions = Vec::new();
        while next > oldest && versions.len() < most {
            let first = next.saturating_sub(MOST_AT_ONCE).max(oldest);
            let keys = (first..next).rev().map(|number| self.keys.version(number));
            let reply = self.ask(&Operation::new("versions").on(keys)).await?;
            let Reply::List(metas) = reply else { return Err(garbled("no versions")) };
            for meta in metas {
                // One that is not there was lost or dropped, or never was.
                if let Reply::Bytes(meta) = meta {
                    versions.push(read_json(&meta)?);
                }
            }
            next = first;
        }
        versions.truncate(most);
        Ok(versions)
    }

    pub(crate) async fn version(&self, number: u64) -> Answer<Option<Arc<Kept>>> {
        // It never changes, so no script has to hold it still.
        let fields = ["meta", "token", "trail", "files"];
        let [meta, token, trail, files] = list(self.read(&self.keys.version(number), &fields).await?)?;
        let (Reply::Bytes(meta), Reply::Bytes(token), Reply::Bytes(files)) = (meta, token, files) else {
            return Ok(None);
        };
        // There may be much to read.
        let read = spawn_blocking(move || {
            let (version, files) = (read_json(&meta)?, read_json(&files)?);
            let trail = text(bytes(trail)?)?;
            Ok(Arc::new(Kept { version, token: text(token)?, files: Arc::new(files), trail }))
        });
        read.await.unwrap_or_else(|error| Err(garbled(error))).map(Some)
    }

    pub(crate) async fn apply(&self, kept: Kept, audit: AuditEntry) -> Answer<Version> {
        let Kept { version, token, files, trail: _ } = kept;
        let files = packed(files).await?;
        let within = time_for(&files);
        let based_on = version.based_on.map(|number| number.to_string()).unwrap_or_default();
        let operation = Operation::new("apply").on([self.keys.version(version.number)]).with([
            token.into_bytes(),
            based_on.into_bytes(),
            version.number.to_string().into_bytes(),
            to_json(&version)?,
            files,
            to_json(&audit)?,
        ]);
        let reply = self.ask_within(&operation, within).await?;
        let Reply::List(reply) = reply else { return Err(garbled("no outcome")) };
        let mut reply = reply.into_iter();
        match (reply.next(), reply.next(), reply.next()) {
            (Some(Reply::Bytes(said)), Some(oldest), Some(bytes)) if said == b"made" => {
                // What is too much goes with the next change, if it does not now.
                if let Err(error) = self.trim(version.number, oldest, bytes).await {
                    tracing::warn!("old versions of the rules are not dropped: {error}");
                }
                Ok(version)
            }
            (Some(Reply::Bytes(said)), Some(Reply::Bytes(meta)), _) if said == b"stale" => {
                Err(ControlError::Stale { current: Box::new(read_json(&meta)?) })
            }
            (Some(Reply::Bytes(said)), ..) if said == b"lost" => Err(ControlError::Unavailable(
                "it has lost the current version, which is put back soon".into(),
            )),
            _ => Err(garbled("no outcome")),
        }
    }

    /// Drops the oldest versions until the others are few and small enough.
    async fn trim(&self, current: u64, oldest: Reply, kept: Reply) -> Answer<()> {
        let (mut first, mut kept) =
            (script_client::number(&bytes(oldest)?)?, script_client::number(&bytes(kept)?)?);
        let (least, most) = (self::oldest(current), u64::try_from(MOST_KEPT_BYTES).unwrap_or(u64::MAX));
        while first < current && (first < least || kept > most) {
            let last = first.saturating_add(MOST_AT_ONCE).min(current);
            let operation =
                Operation::new("trim").on((first..last).map(|number| self.keys.version(number))).with([
                    first.to_string().into_bytes(),
                    least.to_string().into_bytes(),
                    most.to_string().into_bytes(),
                ]);
            let [oldest, bytes_left] = list(self.ask(&operation).await?)?;
            let next = script_client::number(&bytes(oldest)?)?;
            if next <= first {
                break;
            }
            (first, kept) = (next, script_client::number(&bytes(bytes_left)?)?);
        }
        Ok(())
    }

    pub(crate) async fn put_back(&self, kept: &Kept, audit: AuditEntry, reach: Reach) -> Answer<PutBack> {
        let Kept { version, token, files, trail } = kept.clone();
        let files = packed(files).await?;
        let within = time_for(&files);
        let operation = Operation::new("put_back").on([self.keys.version(version.number)]).with([
            token.into_bytes(),
            version.number.to_string().into_bytes(),
            to_json(&version)?,
            trail.into_bytes(),
            files,
            to_json(&audit)?,
            oldest(version.number).to_string().into_bytes(),
            name_of(reach),
        ]);
        outcome(self.ask_within(&operation, within).await?)
    }
}

/// What came of putting something back.
pub(super) fn outcome(reply: Reply) -> Answer<PutBack> {
    match bytes(reply)?.as_slice() {
        b"made" => Ok(PutBack::Made),
        b"kept" => Ok(PutBack::Kept),
        b"other" => Ok(PutBack::Other),
        _ => Err(garbled("no outcome")),
    }
}

/// The first version that is kept by its number.
fn oldest(current: u64) -> u64 {
    current.saturating_sub(MOST_VERSIONS).saturating_add(1)
}

async fn packed(files: Arc<Files>) -> Answer<Vec<u8>> {
    let packed = spawn_blocking(move || to_json(&*files)).await;
    let packed = packed.unwrap_or_else(|error| Err(garbled(error)))?;
    match packed.len() > MOST_PACKED {
        true => Err(ControlError::TooLarge { what: "the files of a version, escaped,", most: MOST_PACKED }),
        false => Ok(packed),
    }
}

/// How long an attempt may take that sends so much: half a MiB in a second is a slow network.
fn time_for(files: &[u8]) -> Duration {
    let bytes = u64::try_from(files.len()).unwrap_or(u64::MAX);
    script_client::ATTEMPT.saturating_add(Duration::from_millis(bytes.saturating_div(512)))
}
