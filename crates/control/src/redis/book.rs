//! The book in Redis.

use std::collections::BTreeMap;

use super::reply::{Parts, argument, bytes, list, malformed, number, parse, read_json, result_of, to_json};
use super::script_client::{Operation, ScriptClient};
use crate::book::{BookHead, BookName, ChangeResult, Expected, NewChange, Record, RecordChange};
use crate::{
    AuditEntry, ControlError, ControlResult, RecordKey, RecordView,
    copies::CopiedChange,
    stored::{Restore, token},
};

/// Maximum number of changes that are read by one step; fewer if they are large.
pub(crate) const PAGE_CHANGES: usize = if cfg!(test) { 3 } else { 500 };

/// Number of changes that are stored by one step: it occupies Redis for a few milliseconds if they are large.
pub(crate) const STEP_CHANGES: usize = if cfg!(test) { 2 } else { 50 };

/// Changes after a revision.
#[derive(Debug)]
pub(crate) struct ChangesPage {
    /// State of the store.
    pub(crate) head: BookHead,
    /// The revision from which the next page follows, if there may be more.
    pub(crate) next: Option<u64>,
    /// The last revision that the store has in common with the caller, if it has lost later changes; then there are no others.
    pub(crate) common: Option<u64>,
    stated: Vec<CopiedChange>,
}

impl ChangesPage {
    /// The changes, and why others could not be read, by the keys of their records. Slow.
    pub(crate) fn changes(self) -> (Vec<RecordChange>, BTreeMap<String, String>) {
        let (mut changes, mut omitted) = (Vec::with_capacity(self.stated.len()), BTreeMap::new());
        for stated in self.stated {
            // An unreadable one, which a newer release may have written, does not affect the others.
            match read_change(&stated) {
                Ok(change) => changes.push(change),
                Err(error) => drop(omitted.insert(stated.id, error.to_string())),
            }
        }
        (changes, omitted)
    }
}

/// Makes changes, all or none in the operators' book, each that can be made in the system's, from an instance that holds
/// a state. Returns the last revision and the result of each.
pub(crate) async fn change(
    client: &ScriptClient,
    book: BookName,
    changes: &[NewChange],
    held: &BookHead,
) -> ControlResult<(u64, Vec<ChangeResult>)> {
    let scope: &[u8] = match book {
        BookName::Operators => b"all",
        BookName::System => b"each",
    };
    let is_of_system =
        changes.iter().filter_map(|change| change.audit.as_ref()).all(AuditEntry::is_of_system);
    let (log, ids): (_, &[u8]) =
        if is_of_system { (BookName::System, b"apart") } else { (BookName::Operators, b"next") };
    let most = argument(book.max_records());
    let mut arguments = vec![
        token().into(),
        scope.into(),
        most,
        held.lineage.as_str().into(),
        argument(held.revision),
        token().into(),
        ids.into(),
    ];
    for NewChange { key, expected, record, audit } in changes {
        let expected = match expected {
            Expected::Any => "any".into(),
            Expected::Absent => "absent".into(),
            Expected::Present => "present".into(),
            Expected::Revision(revision) => argument(*revision),
        };
        let [ends, payload] = stored(record.as_ref())?;
        let audit = audit.as_ref().map(to_json).transpose()?.unwrap_or_default();
        arguments.extend([argument(*key), expected, ends, payload, audit]);
    }
    let operation = Operation::of_book(book, "change").logged_by(log).with(arguments);
    let mut parts = Parts::of(client.run(&operation).await?)?;
    let first = parts.text()?;
    if first == "lost" {
        return Err(ControlError::Unavailable("it has lost the records, which are restored soon".into()));
    }
    let revision = first.parse().map_err(|_| malformed("no revision"))?;
    let mut results = Vec::with_capacity(changes.len());
    while !parts.is_empty() {
        let words = ChangeResult::ALL.map(|result| (result.name(), result));
        results.push(result_of(parts.reply()?, words)?);
    }
    Ok((revision, results))
}

/// Reads a record, which may have ended.
pub(crate) async fn get(
    client: &ScriptClient,
    book: BookName,
    key: RecordKey,
) -> ControlResult<Option<RecordView>> {
    let operation = Operation::of_book(book, "get").with([argument(key)]);
    let [revision, payload] = list(client.run(&operation).await?)?;
    match &*bytes(payload)? {
        [] => Ok(None),
        payload => Ok(Some(RecordView::new(key, number(revision)?, read_json(payload)?))),
    }
}

/// Reads the first changes after a revision, which is that of an instance with `is_head`.
pub(crate) async fn since(
    client: &ScriptClient,
    book: BookName,
    revision: u64,
    is_head: bool,
) -> ControlResult<ChangesPage> {
    let place: &[u8] = if is_head { b"head" } else { b"page" };
    let operation =
        Operation::of_book(book, "since").with([argument(revision), argument(PAGE_CHANGES), place.into()]);
    let mut parts = Parts::of(client.run(&operation).await?)?;
    let (lineage, last, epoch, floor) = (parts.text()?, parts.number()?, parts.number()?, parts.number()?);
    let common = parts.bytes()?;
    let common = if common.is_empty() { None } else { Some(parse(&common)?) };
    let stated = read_changes(parts)?;
    let next = stated.last().map(|change| change.revision).filter(|revision| *revision < last);
    Ok(ChangesPage { head: BookHead { lineage, revision: last, epoch, floor }, next, common, stated })
}

pub(crate) fn read_changes(mut parts: Parts) -> ControlResult<Vec<CopiedChange>> {
    let mut changes = Vec::new();
    while !parts.is_empty() {
        let (revision, id, payload) = (parts.number()?, parts.text()?, parts.bytes()?);
        changes.push(CopiedChange { revision, id, payload });
    }
    Ok(changes)
}

/// Step of a copy of another region's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyStep {
    /// Further changes of the same state, after this revision.
    Part {
        from: u64,
    },
    /// Begins a copy of everything, beside what there is.
    Begin,
    More,
    /// Replaces all records by what the copy gathered: this number of them, of which `ending` have an end.
    End {
        records: usize,
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
    changes: &[RecordChange],
    audit: &AuditEntry,
) -> ControlResult<bool> {
    let (name, own) = match step {
        CopyStep::Part { from } => ("part", vec![argument(from)]),
        CopyStep::Begin => ("begin", vec![Vec::new()]),
        CopyStep::More => ("more", vec![Vec::new()]),
        CopyStep::End { records, ending } => {
            ("end", vec![token().into(), argument(records), argument(ending)])
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
    let gathered = ["copied-records", "copied-record-revisions", "copied-record-ends"];
    let gathered = gathered.map(|name| client.keys.named(name));
    let operation = Operation::of_book(BookName::Operators, "adopt").on(gathered).with(arguments);
    let lacking = ControlError::Unavailable("it has lost a part of the copied records".into());
    let words = [("made", Ok(true)), ("other", Ok(false)), ("lacking", Err(lacking))];
    result_of(client.run(&operation).await?, words)?
}

/// Revision, key, end and payload of a change.
fn change_arguments(change: &RecordChange) -> ControlResult<[Vec<u8>; 4]> {
    let [ends, payload] = stored(change.record.as_ref())?;
    Ok([argument(change.revision), argument(change.key), ends, payload])
}

/// End and payload of a record, or of its removal.
fn stored(record: Option<&Record>) -> ControlResult<[Vec<u8>; 2]> {
    let Some(record) = record else { return Ok([b"0".to_vec(), Vec::new()]) };
    Ok([argument(record.ends_at_ms().unwrap_or_default()), to_json(record)?])
}

/// Restores changes after the revision `from` that the store lacks, up to the revision of `head`; not if it has another lineage
/// and is a copy of another region's.
///
/// # Errors
/// When the store does not respond, or has lost meanwhile what comes before the changes.
pub(crate) async fn restore(
    client: &ScriptClient,
    book: BookName,
    head: &BookHead,
    from: u64,
    changes: &[RecordChange],
    audit: AuditEntry,
) -> ControlResult<Restore> {
    let (token, audit) = (token(), to_json(&audit)?);
    // Of a store in this process.
    let lineage = if head.lineage.is_empty() { &token } else { &head.lineage };
    let (mut parts, mut place) = (changes.chunks(STEP_CHANGES).peekable(), "first");
    loop {
        let part = parts.next().unwrap_or_default();
        let is_last = parts.peek().is_none();
        let mut arguments = vec![
            token.as_str().into(),
            audit.clone(),
            lineage.as_str().into(),
            argument(head.revision),
            if is_last { "last".into() } else { "more".into() },
            argument(from),
            place.into(),
        ];
        place = "next";
        for change in part {
            arguments.extend(change_arguments(change)?);
        }
        let operation = Operation::of_book(book, "restore").with(arguments);
        let words = [
            ("made", Ok(Restore::Restored)),
            ("kept", Ok(Restore::Present)),
            ("other", Ok(Restore::Superseded)),
            ("lost", Err(ControlError::Unavailable("the store has lost records meanwhile".to_owned()))),
        ];
        let restored = result_of(client.run(&operation).await?, words)??;
        if is_last || restored != Restore::Restored {
            return Ok(restored);
        }
    }
}

/// Reads a change as it is stored.
pub(crate) fn read_change(stated: &CopiedChange) -> ControlResult<RecordChange> {
    let record = match &*stated.payload {
        [] => None,
        payload => Some(read_json(payload)?),
    };
    let key = RecordKey::read(&stated.id).ok_or_else(|| malformed("no key"))?;
    Ok(RecordChange { revision: stated.revision, key, record })
}
