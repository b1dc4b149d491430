//! List entries and switches as values of hashes.

use serde::{Serialize, de::DeserializeOwned};
use tollgate_store::redis::Reply;

use super::script_client::{ControlResult, bytes, malformed, read_json, to_json};
use crate::{
    ListEntry, Switch,
    bounds::{MAX_ENTRIES, MAX_SWITCHES},
    change::Change,
};

/// Indexes in the script's KEYS.
const ENTRIES_KEY: &str = "3";
const SWITCHES_KEY: &str = "4";

/// Arguments of a change: the action, the index of its key, the field, its value, and the maximum number of fields.
type ChangeArguments = (&'static str, &'static str, String, Vec<u8>, usize);

pub(super) fn arguments(change: Change) -> ControlResult<ChangeArguments> {
    Ok(match change {
        Change::PutEntry(entry) => {
            ("put", ENTRIES_KEY, entry.id.clone(), value(entry.expires_at_ms, &entry)?, MAX_ENTRIES)
        }
        Change::RemoveEntry(id) => ("remove", ENTRIES_KEY, id, Vec::new(), 0),
        Change::PutSwitch(switch) => {
            let field = switch_field(&switch.domain, &switch.rule);
            ("put", SWITCHES_KEY, field, value(switch.expires_at_ms, &switch)?, MAX_SWITCHES)
        }
        Change::ReplaceSwitch { to: switch, .. } => {
            let field = switch_field(&switch.domain, &switch.rule);
            ("replace", SWITCHES_KEY, field, value(switch.expires_at_ms, &switch)?, MAX_SWITCHES)
        }
        Change::RemoveSwitch { domain, rule } => {
            ("remove", SWITCHES_KEY, switch_field(&domain, &rule), Vec::new(), 0)
        }
        Change::AuditOnly => ("note", ENTRIES_KEY, String::new(), Vec::new(), 0),
    })
}

/// The value that a change replaces; empty if it does not depend on one.
pub(super) fn replaced(change: &Change) -> ControlResult<Vec<u8>> {
    match change {
        Change::ReplaceSwitch { from, .. } => value(from.expires_at_ms, from),
        _ => Ok(Vec::new()),
    }
}

/// Index of the key, field and value of an entry.
pub(super) fn entry_arguments(entry: &ListEntry) -> ControlResult<[Vec<u8>; 3]> {
    Ok([ENTRIES_KEY.into(), entry.id.clone().into_bytes(), value(entry.expires_at_ms, entry)?])
}

/// Index of the key, field and value of a switch.
pub(super) fn switch_arguments(switch: &Switch) -> ControlResult<[Vec<u8>; 3]> {
    let field = switch_field(&switch.domain, &switch.rule).into_bytes();
    Ok([SWITCHES_KEY.into(), field, value(switch.expires_at_ms, switch)?])
}

/// Field of a rule's switch; injective for any names.
fn switch_field(domain: &str, rule: &str) -> String {
    format!("{}:{domain}:{rule}", domain.len())
}

/// Encodes a value. The expiry stands before the JSON, where the script finds it.
fn value(expires_at_ms: Option<u64>, of: &impl Serialize) -> ControlResult<Vec<u8>> {
    let mut value = format!("{}\n", expires_at_ms.unwrap_or_default()).into_bytes();
    value.extend(to_json(of)?);
    Ok(value)
}

/// Reads the values of a hash. An unreadable value, which a newer release may have written, does not affect the others.
pub(super) fn read<T: DeserializeOwned>(
    what: &str,
    reply: Reply,
    problems: &mut Vec<String>,
) -> ControlResult<Vec<T>> {
    let Reply::List(values) = reply else { return Err(malformed("no list")) };
    let read = |value| {
        let value = bytes(value)?;
        let rest = value.iter().position(|byte| *byte == b'\n').and_then(|at| value.get(at..));
        read_json(rest.ok_or_else(|| malformed("no expiry"))?)
    };
    let mut all = Vec::new();
    for value in values {
        match read(value) {
            Ok(value) => all.push(value),
            Err(error) => problems.push(format!("{what} is omitted: {error}")),
        }
    }
    Ok(all)
}
