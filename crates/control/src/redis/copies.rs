//! Copies of rules in Redis. `lua/copy.lua` has the operations.

use std::time::Duration;

use tollgate_store::redis::Reply;

use super::script_client::{
    ATTEMPT_TIMEOUT, ControlResult, HEARTBEAT_TIMEOUT, ScriptClient, bytes, list, malformed, number, text,
    to_json,
};
use crate::{
    AuditEntry,
    copies::{
        CopiedOverrides, CopyClaim, ListsCopy, NO_LISTS, OverridesHead, RulesCopy, RulesIdentity,
        StoredField, VersionCopy,
    },
};

/// Indexes in the script's KEYS.
const ENTRIES_KEY: &[u8] = b"3";
const SWITCHES_KEY: &[u8] = b"4";
/// Timeout of an operation that carries a version or lists.
const COPY_TIMEOUT: Duration = Duration::from_secs(6);

/// Operations on copies.
pub(crate) struct SharedCopies<'c>(pub(super) &'c ScriptClient);

impl SharedCopies<'_> {
    pub(crate) async fn rules_after(
        &self,
        known: &RulesIdentity,
        has_versions: bool,
    ) -> ControlResult<RulesCopy> {
        let known_lists = if known.lists == NO_LISTS { "" } else { &known.lists };
        let reply = self.run("read", None, vec![known_lists.into()], COPY_TIMEOUT).await?;
        let [current, token, generation, lists_token, trail, entries, switches, lineage, revision, epoch] =
            list(reply)?;
        let overrides = OverridesHead {
            lineage: text(bytes(lineage)?)?,
            revision: number(&bytes(revision)?)?,
            epoch: number(&bytes(epoch)?)?,
        };
        let (current, token) = (number(&bytes(current)?)?, text(bytes(token)?)?);
        let version = match has_versions && current > 0 && token != known.version {
            true => Some(self.version(current, token).await?),
            false => None,
        };
        let lists_token = text(bytes(lists_token)?)?;
        let lists_token = if lists_token.is_empty() { NO_LISTS.to_owned() } else { lists_token };
        let lists = match lists_token == known.lists {
            true => None,
            false => Some(ListsCopy {
                generation: number(&bytes(generation)?)?,
                token: lists_token,
                trail: text(bytes(trail)?)?,
                entries: fields(entries)?,
                switches: fields(switches)?,
            }),
        };
        Ok(RulesCopy { version, lists, overrides: Some(overrides) })
    }

    async fn version(&self, current: u64, expected: String) -> ControlResult<VersionCopy> {
        let fields = ["meta", "token", "trail", "files"];
        let reply = self.0.read(&self.0.keys.version(current), &fields).await?;
        let [meta, token, trail, files] = list(reply)?;
        let copy = VersionCopy {
            number: current,
            token: text(bytes(token)?)?,
            trail: text(bytes(trail)?)?,
            meta: bytes(meta)?,
            files: bytes(files)?,
        };
        match copy.token == expected {
            true => Ok(copy),
            false => Err(malformed("another version")),
        }
    }

    pub(crate) async fn claim(&self, interval: Duration) -> ControlResult<CopyClaim> {
        let arguments = vec![interval.as_millis().to_string().into_bytes()];
        let reply = self.run("claim", None, arguments, HEARTBEAT_TIMEOUT).await?;
        let [is_claimed, now, compared, version, lists, source, revision] = list(reply)?;
        let compared_ms = number(&bytes(compared)?)?;
        Ok(CopyClaim {
            is_claimed: matches!(is_claimed, Reply::Integer(1)),
            now_ms: number(&bytes(now)?)?,
            compared_ms: (compared_ms > 0).then_some(compared_ms),
            has: RulesIdentity { version: text(bytes(version)?)?, lists: text(bytes(lists)?)? },
            overrides: CopiedOverrides {
                source: text(bytes(source)?)?,
                revision: number(&bytes(revision)?)?,
            },
        })
    }

    pub(crate) async fn record_comparison(&self, began_ms: u64) -> ControlResult<()> {
        let arguments = vec![began_ms.to_string().into_bytes()];
        self.run("compared", None, arguments, HEARTBEAT_TIMEOUT).await.map(drop)
    }

    /// Makes a version current; false if the current one is not `known`.
    pub(crate) async fn adopt_version(
        &self,
        known: &str,
        copy: VersionCopy,
        audit: &AuditEntry,
    ) -> ControlResult<bool> {
        let VersionCopy { number: version, token, trail, meta, files } = copy;
        let arguments = vec![
            known.into(),
            token.into_bytes(),
            version.to_string().into_bytes(),
            meta,
            trail.into_bytes(),
            files,
            to_json(audit)?,
        ];
        let reply = self.run("version", Some(version), arguments, COPY_TIMEOUT).await?;
        let [result, oldest, stored] = list(reply)?;
        let is_adopted = bytes(result)? == b"made";
        if is_adopted && let Err(error) = super::versions::trim(self.0, version, oldest, stored).await {
            tracing::warn!(%error, "cannot drop old versions of the rules");
        }
        Ok(is_adopted)
    }

    /// Replaces lists and switches; false if the present ones are not `known`.
    pub(crate) async fn adopt_lists(
        &self,
        known: &str,
        copy: ListsCopy,
        audit: &AuditEntry,
    ) -> ControlResult<bool> {
        let ListsCopy { generation, token, trail, entries, switches } = copy;
        let generation = generation.to_string().into_bytes();
        let mut arguments =
            vec![known.into(), token.into_bytes(), generation, trail.into_bytes(), to_json(audit)?];
        for (key, fields) in [(ENTRIES_KEY, entries), (SWITCHES_KEY, switches)] {
            for StoredField { name, value } in fields {
                arguments.extend([key.to_vec(), name, value]);
            }
        }
        Ok(bytes(self.run("lists", None, arguments, COPY_TIMEOUT).await?)? == b"made")
    }

    async fn run(
        &self,
        operation: &str,
        version: Option<u64>,
        arguments: Vec<Vec<u8>>,
        timeout: Duration,
    ) -> ControlResult<Reply> {
        let fixed = self.0.keys.fixed().iter().take(4).cloned();
        let keys: Vec<Vec<u8>> = fixed.chain(version.map(|number| self.0.keys.version(number))).collect();
        self.0.run_copy(operation, &keys, &arguments, timeout.max(ATTEMPT_TIMEOUT)).await
    }
}

/// Reads the fields of a hash.
fn fields(reply: Reply) -> ControlResult<Vec<StoredField>> {
    let Reply::List(items) = reply else { return Err(malformed("no list")) };
    let (mut items, mut fields) = (items.into_iter(), Vec::new());
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        fields.push(StoredField { name: bytes(name)?, value: bytes(value)? });
    }
    Ok(fields)
}
