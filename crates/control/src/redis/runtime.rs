//! Entries of lists and switches as hashes have them.

use std::sync::atomic::Ordering;

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Redis, name_of,
    script_client::{self, Answer, Operation, bytes, garbled, list, read_json, text, to_json},
    versions::outcome,
};
use crate::{
    AuditEntry, ControlError, ListEntry, Runtime, Switch,
    bounds::{MOST_ENTRIES, MOST_SWITCHES},
    change::Change,
    stored::{KeptRuntime, PutBack, Reach, token},
};
use tollgate_store::redis::Reply;

/// What the script makes of a change: what it does, to which of its keys and to which field of that, with which value,
/// and how many fields there may be.
type Made = (&'static str, &'static str, String, Vec<u8>, usize);

impl Redis {
    pub(crate) async fn runtime(&self) -> Answer<KeptRuntime> {
        let reply = self.ask(&Operation::new("runtime")).await?;
        let [generation, token, trail, entries, switches] = list(reply)?;
        let mut problems = Vec::new();
        let mut entries: Vec<ListEntry> = read_values("an entry of a list", entries, &mut problems)?;
        let mut switches: Vec<Switch> = read_values("a switch", switches, &mut problems)?;
        // Redis keeps no order.
        entries.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        switches.sort_by(|a, b| (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule)));
        let runtime = Runtime { generation: script_client::number(&bytes(generation)?)?, entries, switches };
        Ok(KeptRuntime { runtime, token: text(bytes(token)?)?, trail: text(bytes(trail)?)?, problems })
    }

    pub(crate) async fn make(&self, change: Change, audit: AuditEntry) -> Answer<bool> {
        let what = match &change {
            Change::PutEntry(_) | Change::RemoveEntry(_) => "entries of lists",
            Change::PutSwitch(_) | Change::RemoveSwitch { .. } | Change::Note => "switches",
        };
        let (does, key, field, value, most) = made(change)?;
        let known: &[u8] = if self.has_lists.load(Ordering::Relaxed) { b"some" } else { b"none" };
        let operation = Operation::new("change").with([
            token().into_bytes(),
            to_json(&audit)?,
            does.into(),
            key.into(),
            field.into_bytes(),
            value,
            most.to_string().into_bytes(),
            known.into(),
        ]);
        match bytes(self.ask(&operation).await?)?.as_slice() {
            b"made" => Ok(true),
            b"none" => Ok(false),
            b"full" => Err(ControlError::TooMany { what, most }),
            b"lost" => Err(ControlError::Unavailable(
                "it has lost the lists and switches, which are put back soon".into(),
            )),
            _ => Err(garbled("no outcome")),
        }
    }

    pub(crate) async fn put_runtime_back(
        &self,
        kept: &KeptRuntime,
        audit: AuditEntry,
        reach: Reach,
    ) -> Answer<PutBack> {
        let KeptRuntime { runtime, token, trail, problems: _ } = kept;
        let mut arguments = vec![
            token.clone().into_bytes(),
            runtime.generation.to_string().into_bytes(),
            trail.clone().into_bytes(),
            to_json(&audit)?,
            name_of(reach),
        ];
        for entry in &runtime.entries {
            arguments.extend([b"3".to_vec(), entry.id.clone().into_bytes(), entry_value(entry)?]);
        }
        for switch in &runtime.switches {
            let field = switch_field(&switch.domain, &switch.rule).into_bytes();
            arguments.extend([b"4".to_vec(), field, switch_value(switch)?]);
        }
        outcome(self.ask(&Operation::new("put_runtime_back").with(arguments)).await?)
    }
}

fn made(change: Change) -> Answer<Made> {
    Ok(match change {
        Change::PutEntry(entry) => ("put", "3", entry.id.clone(), entry_value(&entry)?, MOST_ENTRIES),
        Change::RemoveEntry(id) => ("remove", "3", id, Vec::new(), 0),
        Change::PutSwitch(switch) => {
            let field = switch_field(&switch.domain, &switch.rule);
            ("put", "4", field, switch_value(&switch)?, MOST_SWITCHES)
        }
        Change::RemoveSwitch { domain, rule } => ("remove", "4", switch_field(&domain, &rule), Vec::new(), 0),
        Change::Note => ("note", "3", String::new(), Vec::new(), 0),
    })
}

/// The field of a rule's switch: injective whatever the names have.
fn switch_field(domain: &str, rule: &str) -> String {
    format!("{}:{domain}:{rule}", domain.len())
}

fn entry_value(entry: &ListEntry) -> Answer<Vec<u8>> {
    value(entry.expires_at_ms, entry)
}

fn switch_value(switch: &Switch) -> Answer<Vec<u8>> {
    value(switch.expires_at_ms, switch)
}

/// The end stands before the rest, where the script finds it.
fn value(expires_at_ms: Option<u64>, of: &impl Serialize) -> Answer<Vec<u8>> {
    let mut value = format!("{}\n", expires_at_ms.unwrap_or_default()).into_bytes();
    value.extend(to_json(of)?);
    Ok(value)
}

/// Reads the values of a hash. One that makes no sense, as a newer release may have written it, costs no other its effect.
fn read_values<T: DeserializeOwned>(what: &str, reply: Reply, problems: &mut Vec<String>) -> Answer<Vec<T>> {
    let Reply::List(values) = reply else { return Err(garbled("no list")) };
    let read = |value| {
        let value = bytes(value)?;
        let rest = value.iter().position(|byte| *byte == b'\n').and_then(|at| value.get(at..));
        read_json(rest.ok_or_else(|| garbled("no end"))?)
    };
    let mut all = Vec::new();
    for value in values {
        match read(value) {
            Ok(value) => all.push(value),
            Err(error) => problems.push(format!("{what} is left out: {error}")),
        }
    }
    Ok(all)
}
