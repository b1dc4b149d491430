//! Overrides of rules in Redis.

use tollgate_rules::OverrideId;
use tollgate_store::redis::Reply;

use super::reply::{Parts, argument, malformed, read_json, result_of, to_json};
use super::script_client::{Operation, ScriptClient};
use crate::copies::CopiedChange;
use crate::rule_overrides::{BookHead, OverrideChange, OverrideEntry};
use crate::{AuditEntry, ControlError, ControlResult, bounds::MAX_OVERRIDES, stored::token};

/// Maximum number of changes that are read by one step; fewer if they are large.
pub(crate) const PAGE_CHANGES: usize = 500;

/// Number of changes that are stored by one step: it occupies Redis for a few milliseconds if they are large.
pub(crate) const STEP_CHANGES: usize = 50;

/// Changes after a revision.
#[derive(Debug)]
pub(crate) struct ChangesPage {
    /// Identity of the store; its floor is unknown.
    pub(crate) head: BookHead,
    /// The revision from which the next page follows, if there may be more.
    pub(crate) next: Option<u64>,
    stated: Vec<CopiedChange>,
}

impl ChangesPage {
    /// The changes, and why some could not be read. Slow.
    pub(crate) fn changes(self) -> (Vec<OverrideChange>, Vec<String>) {
        let (mut changes, mut problems) = (Vec::with_capacity(self.stated.len()), Vec::new());
        for stated in self.stated {
            // An unreadable one, which a newer release may have written, does not affect the others.
            match change(&stated) {
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
    let mut arguments = vec![token().into(), to_json(&audit)?, argument(MAX_OVERRIDES)];
    arguments.extend(lineage_arguments(lineage));
    for entry in entries {
        arguments.extend([entry.id.as_str().into(), end(entry), to_json(entry)?]);
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
    let arguments = [token().into(), to_json(&audit)?, known, new, id.into()];
    made(client.run(&Operation::of_overrides("remove").with(arguments)).await?)
}

/// Reads the first changes after a revision.
pub(crate) async fn since(client: &ScriptClient, revision: u64) -> ControlResult<ChangesPage> {
    let operation = Operation::of_overrides("since").with([argument(revision), argument(PAGE_CHANGES)]);
    let mut parts = Parts::of(client.run(&operation).await?)?;
    let (lineage, last, epoch) = (parts.text()?, parts.number()?, parts.number()?);
    let stated = read_changes(parts)?;
    let next = stated.last().map(|change| change.revision).filter(|revision| *revision < last);
    Ok(ChangesPage { head: BookHead { lineage, revision: last, epoch, floor: 0 }, next, stated })
}

pub(crate) fn read_changes(mut parts: Parts) -> ControlResult<Vec<CopiedChange>> {
    let mut changes = Vec::new();
    while !parts.is_empty() {
        let (revision, id, payload) = (parts.number()?, parts.text()?, parts.bytes()?);
        changes.push(CopiedChange { revision, id, payload });
    }
    Ok(changes)
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
    let (name, own) = match step {
        CopyStep::Part { from } => ("part", vec![argument(from)]),
        CopyStep::Begin => ("begin", vec![Vec::new()]),
        CopyStep::More => ("more", vec![Vec::new()]),
        CopyStep::End { overrides, ending } => {
            ("end", vec![token().into(), argument(overrides), argument(ending)])
        }
        CopyStep::Release => ("release", vec![Vec::new()]),
    };
    let mut arguments = vec![
        token().into(),
        to_json(audit)?,
        sources.before.into(),
        sources.after.into(),
        argument(sources.revision),
        name.into(),
    ];
    arguments.extend(own);
    for change in changes {
        arguments.extend(change_arguments(change)?);
    }
    let gathered = ["copied-overrides", "copied-override-revisions", "copied-override-ends"];
    let gathered = gathered.map(|name| client.keys.named(name));
    let operation = Operation::of_overrides("adopt").on(gathered).with(arguments);
    let lacking = ControlError::Unavailable("it has lost a part of the copied overrides".into());
    let words = [("made", Ok(true)), ("other", Ok(false)), ("lacking", Err(lacking))];
    result_of(client.run(&operation).await?, words)?
}

/// Revision, identifier, end and payload of a change.
fn change_arguments(change: &OverrideChange) -> ControlResult<[Vec<u8>; 4]> {
    let (ends, payload) = match &change.entry {
        Some(entry) => (end(entry), to_json(entry)?),
        None => (b"0".to_vec(), Vec::new()),
    };
    Ok([argument(change.revision), argument(change.id), ends, payload])
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
            token.as_str().into(),
            audit.clone(),
            lineage.as_str().into(),
            argument(head.revision),
            if is_last { "last".into() } else { "more".into() },
        ];
        for change in part {
            arguments.extend(change_arguments(change)?);
        }
        let operation = Operation::of_overrides("restore").with(arguments);
        let made = result_of(client.run(&operation).await?, [("made", true), ("other", false)])?;
        if is_last || !made {
            return Ok(made);
        }
    }
}

/// Whether the instance has earlier changes, and the lineage that begins if there were none at all.
fn lineage_arguments(lineage: &str) -> [Vec<u8>; 2] {
    let known: &[u8] = if lineage.is_empty() { b"none" } else { b"some" };
    [known.to_vec(), token().into()]
}

fn end(entry: &OverrideEntry) -> Vec<u8> {
    argument(entry.expires_at_ms.unwrap_or_default())
}

/// The revision of a change that was made; `None` if there was nothing to change.
fn made(reply: Reply) -> ControlResult<Option<u64>> {
    let mut parts = Parts::of(reply)?;
    match parts.bytes()?.as_slice() {
        b"made" => parts.number().map(Some),
        b"none" => Ok(None),
        b"full" => Err(ControlError::TooMany { what: "overrides", most: MAX_OVERRIDES }),
        b"lost" => {
            Err(ControlError::Unavailable("it has lost the overrides, which are restored soon".into()))
        }
        _ => Err(malformed("no result")),
    }
}

/// Reads a change as it is stored.
pub(crate) fn change(stated: &CopiedChange) -> ControlResult<OverrideChange> {
    let id = u128::from_str_radix(&stated.id, 16).map_err(|_| malformed("no identifier"))?;
    let entry = match &*stated.payload {
        [] => None,
        payload => Some(read_json(payload)?),
    };
    Ok(OverrideChange { revision: stated.revision, id: OverrideId(id), entry })
}
