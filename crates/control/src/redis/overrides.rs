//! Overrides of rules in Redis.

use tollgate_rules::OverrideId;
use tollgate_store::redis::Reply;

use super::{
    script_client::{
        ControlResult, Operation, ScriptClient, bytes, malformed, number, read_json, text, to_json,
    },
    token,
};
use crate::{
    AuditEntry, ControlError,
    bounds::MAX_OVERRIDES,
    copies::{CopiedChange, OverridesHead, OverridesPage},
    rule_overrides::{BookHead, OverrideChange, OverrideEntry},
};

/// Maximum number of changes that are read by one step; fewer if they are large.
const PAGE_CHANGES: usize = 500;

/// Number of changes that are stored by one step: it occupies Redis for a few milliseconds if they are large.
pub(crate) const STEP_CHANGES: usize = 50;

/// Changes after a revision.
#[derive(Debug)]
pub(crate) struct ChangesPage {
    /// Identity of the store; its floor is unknown.
    pub(crate) head: BookHead,
    /// The revision from which the next page follows, if there may be more.
    pub(crate) next: Option<u64>,
    /// Revision, identifier and payload of each change.
    stated: Vec<(u64, Vec<u8>, Vec<u8>)>,
}

impl ChangesPage {
    /// The changes, and why some could not be read. Slow.
    pub(crate) fn changes(self) -> (Vec<OverrideChange>, Vec<String>) {
        let (mut changes, mut problems) = (Vec::with_capacity(self.stated.len()), Vec::new());
        for (revision, id, payload) in self.stated {
            // An unreadable one, which a newer release may have written, does not affect the others.
            match change(revision, id, &payload) {
                Ok(change) => changes.push(change),
                Err(error) => problems.push(format!("an override is omitted: {error}")),
            }
        }
        (changes, problems)
    }
}

/// Puts overrides, from an instance whose earlier changes have a lineage, and returns the last revision.
pub(crate) async fn put(
    client: &ScriptClient,
    entries: &[OverrideEntry],
    audit: AuditEntry,
    lineage: &str,
) -> ControlResult<u64> {
    let mut arguments = vec![token().into_bytes(), to_json(&audit)?, MAX_OVERRIDES.to_string().into_bytes()];
    arguments.extend(lineage_arguments(lineage));
    for entry in entries {
        arguments.extend([entry.id.clone().into_bytes(), end(entry), to_json(entry)?]);
    }
    let operation = Operation::of_overrides("put").with(arguments);
    made(client.run(&operation).await?)?.ok_or_else(|| malformed("no result"))
}

/// Removes an override, and returns the revision; `None` if it does not exist.
pub(crate) async fn remove(
    client: &ScriptClient,
    id: &str,
    audit: AuditEntry,
    lineage: &str,
) -> ControlResult<Option<u64>> {
    let [known, new] = lineage_arguments(lineage);
    let arguments = [token().into_bytes(), to_json(&audit)?, known, new, id.as_bytes().to_vec()];
    made(client.run(&Operation::of_overrides("remove").with(arguments)).await?)
}

/// Reads the first changes after a revision.
pub(crate) async fn since(client: &ScriptClient, revision: u64) -> ControlResult<ChangesPage> {
    let arguments = [revision, PAGE_CHANGES as u64].map(|number| number.to_string().into_bytes());
    let Reply::List(reply) = client.run(&Operation::of_overrides("since").with(arguments)).await? else {
        return Err(malformed("no list"));
    };
    let mut parts = reply.into_iter();
    let mut part = || parts.next().ok_or_else(|| malformed("a short list")).and_then(bytes);
    let lineage = text(part()?)?;
    let head = BookHead { lineage, revision: number(&part()?)?, epoch: number(&part()?)?, floor: 0 };
    let (mut stated, mut last) = (Vec::with_capacity(PAGE_CHANGES), revision);
    while let Some(part) = parts.next() {
        let mut next = || parts.next().ok_or_else(|| malformed("a short list")).and_then(bytes);
        last = number(&bytes(part)?)?;
        stated.push((last, next()?, next()?));
    }
    let next = (!stated.is_empty() && last < head.revision).then_some(last);
    Ok(ChangesPage { head, next, stated })
}

/// Reads changes for another region, whose copy is one of the state `known`.
pub(crate) async fn read(
    client: &ScriptClient,
    known: &OverridesHead,
    is_continued: bool,
) -> ControlResult<OverridesPage> {
    let page: &[u8] = if is_continued { b"next" } else { b"first" };
    let number_of = |number: u64| number.to_string().into_bytes();
    let arguments = [
        known.lineage.clone().into_bytes(),
        number_of(known.revision),
        number_of(known.epoch),
        page.to_vec(),
        number_of(PAGE_CHANGES as u64),
    ];
    let Reply::List(reply) = client.run(&Operation::of_overrides("read").with(arguments)).await? else {
        return Err(malformed("no list"));
    };
    let mut parts = reply.into_iter();
    let mut part = || parts.next().ok_or_else(|| malformed("a short list")).and_then(bytes);
    let (lineage, revision) = (text(part()?)?, number(&part()?)?);
    let head = OverridesHead { lineage, revision, epoch: number(&part()?)? };
    let is_whole = part()? == b"whole";
    let mut changes = Vec::new();
    while let Some(revision) = parts.next() {
        let mut next = || parts.next().ok_or_else(|| malformed("a short list")).and_then(bytes);
        let (id, payload) = (text(next()?)?, next()?);
        changes.push(CopiedChange { revision: number(&bytes(revision)?)?, id, payload });
    }
    let has_more = changes.last().is_some_and(|last: &CopiedChange| last.revision < head.revision);
    Ok(OverridesPage { head, is_whole, has_more, changes })
}

/// Step of a copy of another region's overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyStep {
    /// Further changes of the same state, after this revision.
    Part {
        from: u64,
    },
    /// Begins a copy of everything, beside what there is.
    Begin,
    More,
    /// Replaces all overrides by what the copy gathered: this number of them, of which `ending` have an end.
    End {
        overrides: usize,
        ending: usize,
    },
    /// Drops what a copy gathered that has failed.
    Release,
}

/// Source and last revision before and after a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySources<'s> {
    pub(crate) before: &'s str,
    pub(crate) after: &'s str,
    pub(crate) revision: u64,
}

/// Makes one step of a copy. Whether the store still has the source that it is made from.
///
/// # Errors
/// When the store does not respond, or has lost some of what the copy gathered.
pub(crate) async fn adopt(
    client: &ScriptClient,
    step: CopyStep,
    sources: CopySources<'_>,
    changes: &[OverrideChange],
    audit: &AuditEntry,
) -> ControlResult<bool> {
    let number_of = |number: usize| number.to_string().into_bytes();
    let (name, own) = match step {
        CopyStep::Part { from } => ("part", vec![from.to_string().into_bytes()]),
        CopyStep::Begin => ("begin", vec![Vec::new()]),
        CopyStep::More => ("more", vec![Vec::new()]),
        CopyStep::End { overrides, ending } => {
            ("end", vec![token().into_bytes(), number_of(overrides), number_of(ending)])
        }
        CopyStep::Release => ("release", vec![Vec::new()]),
    };
    let mut arguments = vec![
        token().into_bytes(),
        to_json(audit)?,
        sources.before.as_bytes().to_vec(),
        sources.after.as_bytes().to_vec(),
        sources.revision.to_string().into_bytes(),
        name.into(),
    ];
    arguments.extend(own);
    for change in changes {
        arguments.extend(change_arguments(change)?);
    }
    let gathered = client.keys.gathered_overrides();
    let operation = Operation::of_overrides("adopt").on(gathered).with(arguments);
    match bytes(client.run(&operation).await?)?.as_slice() {
        b"made" => Ok(true),
        b"other" => Ok(false),
        b"lacking" => Err(ControlError::Unavailable("it has lost a part of the copied overrides".into())),
        _ => Err(malformed("no result")),
    }
}

/// Revision, identifier, end and payload of a change.
fn change_arguments(change: &OverrideChange) -> ControlResult<[Vec<u8>; 4]> {
    let (ends, payload) = match &change.entry {
        Some(entry) => (end(entry), to_json(entry)?),
        None => (b"0".to_vec(), Vec::new()),
    };
    Ok([change.revision.to_string().into_bytes(), change.id.to_string().into_bytes(), ends, payload])
}

/// Restores changes that the store lacks, up to the revision of `head`. Not if it has another lineage and is a copy of another
/// region's: then `false`.
pub(crate) async fn restore(
    client: &ScriptClient,
    head: &BookHead,
    changes: &[OverrideChange],
    audit: AuditEntry,
) -> ControlResult<bool> {
    let (token, audit) = (token(), to_json(&audit)?);
    // Of a store in this process.
    let lineage = if head.lineage.is_empty() { &token } else { &head.lineage };
    let mut parts = changes.chunks(STEP_CHANGES).peekable();
    loop {
        let part = parts.next().unwrap_or_default();
        let is_last = parts.peek().is_none();
        let mut arguments = vec![
            token.clone().into_bytes(),
            audit.clone(),
            lineage.clone().into_bytes(),
            head.revision.to_string().into_bytes(),
            if is_last { b"last".to_vec() } else { b"more".to_vec() },
        ];
        for change in part {
            arguments.extend(change_arguments(change)?);
        }
        let operation = Operation::of_overrides("restore").with(arguments);
        match bytes(client.run(&operation).await?)?.as_slice() {
            b"made" if is_last => return Ok(true),
            b"made" => {}
            b"other" => return Ok(false),
            _ => return Err(malformed("no result")),
        }
    }
}

/// Audit log entries of overrides, newest first.
pub(super) fn audit(start: Vec<u8>, limit: usize) -> Operation {
    Operation::of_overrides("audit").with([start, limit.to_string().into_bytes()])
}

/// Whether the instance has earlier changes, and the lineage that begins if there were none at all.
fn lineage_arguments(lineage: &str) -> [Vec<u8>; 2] {
    let known: &[u8] = if lineage.is_empty() { b"none" } else { b"some" };
    [known.to_vec(), token().into_bytes()]
}

fn end(entry: &OverrideEntry) -> Vec<u8> {
    entry.expires_at_ms.unwrap_or_default().to_string().into_bytes()
}

/// The revision of a change that was made; `None` if there was nothing to change.
fn made(reply: Reply) -> ControlResult<Option<u64>> {
    let Reply::List(reply) = reply else { return Err(malformed("no result")) };
    let mut parts = reply.into_iter();
    let mut part = || parts.next().ok_or_else(|| malformed("no result")).and_then(bytes);
    match part()?.as_slice() {
        b"made" => number(&part()?).map(Some),
        b"none" => Ok(None),
        b"full" => Err(ControlError::TooMany { what: "overrides", most: MAX_OVERRIDES }),
        b"lost" => {
            Err(ControlError::Unavailable("it has lost the overrides, which are restored soon".into()))
        }
        _ => Err(malformed("no result")),
    }
}

pub(crate) fn change(revision: u64, id: Vec<u8>, payload: &[u8]) -> ControlResult<OverrideChange> {
    let id = u128::from_str_radix(&text(id)?, 16).map_err(|_| malformed("no identifier"))?;
    let entry = match payload {
        [] => None,
        payload => Some(read_json(payload)?),
    };
    Ok(OverrideChange { revision, id: OverrideId(id), entry })
}
