//! `tollgate record`: what operators change at run time, mostly for a time.

use std::{fmt::Display, path::Path, time::Duration};

use serde_json::{Map, Value, json};
use tollgate_control::{List, RecordKey, RecordKind, RecordView, SwitchMode};
use tollgate_core::clock::now_ms;
use tollgate_flags::DescriptorArgument;
use tollgate_runtime::{bounded_file, redact};

use super::client::{ApiClient, ClientError, Violation};
use super::output::{CommandOutput, table_or, utc_or_never};
use super::record_text::{Row, details, line};
use crate::flags::{
    ChangeFlags, EntryFlags, LimitArgument, PutFlags, RampFlags, RecordCommand, RecordQuery, RuleQuery,
    RuleSelector,
};

/// Maximum size of a file of records in bytes: more than that of all that there may be.
const MAX_IMPORT_BYTES: u64 = 256 << 20;

/// Number of records of one request.
const BATCH: usize = 1_000;

/// Fields that state a record, beside its end.
const STATED_FIELDS: [&str; 8] =
    ["kind", "list", "domain", "rule", "descriptor", "rate_limit", "mode", "enforce_percent"];

pub(super) fn run(api: &ApiClient, command: &RecordCommand) -> Result<CommandOutput, ClientError> {
    match command {
        RecordCommand::List(query) => list(api, query),
        RecordCommand::Show { key } => api.output(api.get(&format!("records/{key}"), &[])?, details),
        RecordCommand::Remove { key, base, dry_run } => remove(api, *key, *base, *dry_run),
        RecordCommand::Exempt { key, reason, lifetime } => {
            let body = json!({ "reason": reason, "expires_in_s": seconds(*lifetime) });
            api.output(api.post(&format!("records/{key}/exempt"), &body)?, line)
        }
        RecordCommand::Import { file, put } => import(api, file, put),
        RecordCommand::Deny(entry) => put_entry(api, List::Deny, entry),
        RecordCommand::Allow(entry) => put_entry(api, List::Allow, entry),
        RecordCommand::Switch { mode, rule: RuleSelector { domain, rule }, enforce_percent, change, end } => {
            let stated = json!({
                "kind": RecordKind::Switch, "domain": domain, "rule": rule, "mode": mode,
                "enforce_percent": enforce_percent,
            });
            put_one(api, stated, change, end.lifetime)
        }
        RecordCommand::Ramp(ramp) => put_ramp(api, ramp),
        RecordCommand::Override { domain, rule, counter, rate_limit, change, end } => {
            let limit = rate_limit.iter().map(|LimitArgument { key, value }| (key.clone(), value.clone()));
            let stated = json!({
                "kind": RecordKind::Override, "domain": domain, "rule": rule,
                "descriptor": counter.as_ref().map_or_else(|| json!([]), descriptor),
                "rate_limit": limit.collect::<Map<_, _>>(),
            });
            put_one(api, stated, change, end.lifetime)
        }
    }
}

/// Lists the selected records up to a number of them, which may take several pages.
fn list(api: &ApiClient, query: &RecordQuery) -> Result<CommandOutput, ClientError> {
    let RecordQuery { kind, of: RuleQuery { domain, rule }, search, limit } = query;
    let mut records = Vec::<RecordView>::new();
    let mut json = loop {
        let after = records.last().map(|last| last.key.to_string());
        let size = BATCH.min(limit.saturating_sub(records.len())).to_string();
        let query = [
            ("kind", kind.map(RecordKind::name)),
            ("domain", domain.as_deref()),
            ("rule", rule.as_deref()),
            ("search", search.as_deref()),
            ("after", after.as_deref()),
            ("limit", Some(&*size)),
        ];
        let (page, json) = api.list("records", &query)?;
        records.extend(page);
        if records.len() >= *limit || !api.field(&json, "is_truncated")? {
            break json;
        }
    };
    let more = if api.field(&json, "is_truncated")? { "there are more; see --limit\n" } else { "" };
    let table = table_or(
        "there are no such records",
        &records,
        &[
            ("KEY", |view| view.key.to_string()),
            ("KIND", |view| view.record.kind().name().to_owned()),
            ("DOMAIN", |view| Row::of(view).domain.to_owned()),
            ("SUBJECT", |view| Row::of(view).subject),
            ("EFFECT", |view| Row::of(view).effect),
            ("EXPIRES", |view| utc_or_never(Row::of(view).expires_at_ms)),
            ("AUTHOR", |view| Row::of(view).author.to_owned()),
            ("REASON", |view| Row::of(view).reason_or_problem()),
        ],
    );
    if let Some(fields) = json.as_object_mut() {
        fields.insert("records".to_owned(), json!(records));
    }
    Ok(CommandOutput { text: table + more, json })
}

fn remove(
    api: &ApiClient,
    key: RecordKey,
    base: Option<u64>,
    is_dry_run: bool,
) -> Result<CommandOutput, ClientError> {
    let base = base.map(|base| base.to_string());
    let query = [("base", base.as_deref()), ("dry_run", is_dry_run.then_some("true"))];
    api.delete(&format!("records/{key}"), &query)?;
    let done = if is_dry_run { "can be removed; nothing was changed" } else { "is removed" };
    Ok(CommandOutput { text: format!("record {key} {done}\n"), json: json!({ "key": key }) })
}

fn put_entry(api: &ApiClient, list: List, entry: &EntryFlags) -> Result<CommandOutput, ClientError> {
    let EntryFlags { domain, descriptor, change, end } = entry;
    let stated = json!({
        "kind": RecordKind::ListEntry, "list": list, "domain": domain, "descriptor": descriptor.0,
    });
    put_one(api, stated, change, end.lifetime)
}

fn put_ramp(api: &ApiClient, flags: &RampFlags) -> Result<CommandOutput, ClientError> {
    let RampFlags { rule: RuleSelector { domain, rule }, steps, over, max_denied, min_hits, change } = flags;
    let ramp = json!({
        "steps": steps, "over_s": over.as_secs(), "max_denied_percent": max_denied, "min_hits": min_hits,
    });
    let stated = json!({
        "kind": RecordKind::Switch, "domain": domain, "rule": rule, "mode": SwitchMode::Shadow, "ramp": ramp,
    });
    put_one(api, stated, change, None)
}

fn put_one(
    api: &ApiClient,
    mut stated: Value,
    ChangeFlags { put: flags, base }: &ChangeFlags,
    lifetime: Option<Duration>,
) -> Result<CommandOutput, ClientError> {
    if let Some(stated) = stated.as_object_mut() {
        stated.insert("base".to_owned(), json!(base));
        stated.insert("expires_in_s".to_owned(), json!(seconds(lifetime)));
    }
    let json = put(api, &[stated], flags)?;
    let records: Vec<RecordView> = api.field(&json, "records")?;
    let mut text: String = records.iter().map(line).collect();
    if flags.dry_run {
        let violations: Vec<Violation> = api.field(&json, "violations")?;
        text.extend(violations.iter().map(|violation| format!("needs --force: {violation}\n")));
        text.push_str("nothing was changed\n");
    }
    Ok(CommandOutput { text, json })
}

fn put(api: &ApiClient, records: &[Value], flags: &PutFlags) -> Result<Value, ClientError> {
    let PutFlags { reason, force, dry_run } = flags;
    api.put("records", &json!({ "records": records, "reason": reason, "force": force, "dry_run": dry_run }))
}

/// Puts the records of a file, a line of JSON each.
fn import(api: &ApiClient, file: &Path, flags: &PutFlags) -> Result<CommandOutput, ClientError> {
    let fails = |reason: &dyn Display| ClientError::of_file(&redact::path(file), reason);
    let text = bounded_file::read_text(file, MAX_IMPORT_BYTES).map_err(|error| fails(&error))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let records = lines.map(|(number, line)| {
        serde_json::from_str(line)
            .map_err(|_| fails(&format_args!("line {number} is no JSON; expected a record")))
    });
    let records: Vec<Value> = records.collect::<Result<_, _>>()?;
    let all = records.len();
    let records: Vec<Value> = records.into_iter().filter_map(stated).collect();
    let (count, omitted) = (records.len(), all.saturating_sub(records.len()));
    let mut violations = Vec::new();
    for some in records.chunks(BATCH) {
        violations.extend(api.field::<Vec<Value>>(&put(api, some, flags)?, "violations")?);
    }
    let done = if flags.dry_run { "are valid; nothing was changed" } else { "are set" };
    let need_force = if flags.dry_run { violations.len() } else { 0 };
    let notes = [(omitted, "left out: automatic or ended"), (need_force, "guardrails need --force")];
    let notes = notes.iter().filter(|(count, _)| *count > 0);
    let notes = notes.map(|(count, note)| format!("{count} {note}\n"));
    let text = format!("{count} records {done}\n") + &notes.collect::<String>();
    let json = json!({ "count": count, "omitted": omitted, "violations": violations });
    Ok(CommandOutput { text, json })
}

/// The stated form of a line. Of a listed record, it has what states it, with the rest of its lifetime; `None` if it is automatic
/// or has ended.
fn stated(mut line: Value) -> Option<Value> {
    let Some(listed) = line.as_object_mut().filter(|fields| fields.contains_key("revision")) else {
        return Some(line);
    };
    let end = listed.get("expires_at_ms").and_then(Value::as_u64);
    let rest = end.map(|end| end.saturating_sub(now_ms()).div_ceil(1_000));
    if rest == Some(0) || listed.get("kind") == Some(&json!(RecordKind::Automatic)) {
        return None;
    }
    listed.retain(|name, _| STATED_FIELDS.contains(&&**name));
    listed.insert("expires_in_s".to_owned(), json!(rest));
    Some(line)
}

/// A descriptor in the JSON form of the API.
pub(super) fn descriptor(pairs: &DescriptorArgument) -> Value {
    pairs.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

/// A duration in seconds, rounded up so that it is not shorter than requested.
fn seconds(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_records_are_put_by_what_states_them_until_their_end() {
        let view = |kind: &str, end: Option<u64>| {
            json!({
                "key": "0", "revision": 7, "kind": kind, "domain": "shop", "mode": "off", "reason": "r",
                "ramp": {}, "problem": null, "expires_at_ms": end,
            })
        };
        let put = json!({"kind": "switch", "domain": "shop", "mode": "off", "expires_in_s": null});
        assert_eq!(stated(view("switch", None)), Some(put));
        let ending = stated(view("switch", Some(now_ms() + 60_000))).expect("it has not ended");
        assert!(ending["expires_in_s"].as_u64().is_some_and(|rest| (1..=60).contains(&rest)), "{ending}");
        assert_eq!(stated(view("switch", Some(1))), None);
        assert_eq!(stated(view("automatic", None)), None);
        let line = json!({"kind": "switch", "expires_at_ms": 1});
        assert_eq!(stated(line.clone()), Some(line));
    }
}
