//! `tollgate record`: what operators change at run time, mostly for a time.

use std::{fmt::Display, path::Path, time::Duration};

use serde_json::{Map, Value, json};
use tollgate_control::{
    AutomaticMode, List, Record, RecordKey, RecordKind, RecordView, Switch, SwitchMode, pairs_text,
};
use tollgate_flags::DescriptorArgument;
use tollgate_runtime::{bounded_file, redact};

use super::client::{ApiClient, ClientError, Violation};
use super::output::{CommandOutput, escape_line, table_or, utc, utc_or_never};
use crate::flags::{
    ChangeFlags, EntryFlags, LimitArgument, PutFlags, RecordCommand, RuleQuery, RuleSelector,
};

/// Maximum size of a file of records in bytes: more than that of all that there may be.
const MAX_IMPORT_BYTES: u64 = 256 << 20;

/// Number of records of one request.
const BATCH: usize = 1_000;

pub(super) fn run(api: &ApiClient, command: &RecordCommand) -> Result<CommandOutput, ClientError> {
    match command {
        RecordCommand::List { kind, of, limit } => list(api, *kind, of, *limit),
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
        RecordCommand::Ramp {
            rule: RuleSelector { domain, rule },
            steps,
            over,
            max_denied,
            min_hits,
            change,
        } => {
            let ramp = json!({
                "steps": steps, "over_s": over.as_secs(), "max_denied_percent": max_denied, "min_hits": min_hits,
            });
            let stated = json!({
                "kind": RecordKind::Switch, "domain": domain, "rule": rule, "mode": SwitchMode::Shadow, "ramp": ramp,
            });
            put_one(api, stated, change, None)
        }
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

fn list(
    api: &ApiClient,
    kind: Option<RecordKind>,
    RuleQuery { domain, rule }: &RuleQuery,
    limit: u16,
) -> Result<CommandOutput, ClientError> {
    let limit = limit.to_string();
    let query = [
        ("kind", kind.map(RecordKind::name)),
        ("domain", domain.as_deref()),
        ("rule", rule.as_deref()),
        ("limit", Some(&*limit)),
    ];
    let (records, json) = api.list::<RecordView>("records", &query)?;
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
    Ok(CommandOutput { text: table + more, json })
}

/// A record as a row of the table.
struct Row<'r> {
    domain: &'r str,
    /// Rule with a key, or descriptor.
    subject: String,
    effect: String,
    expires_at_ms: Option<u64>,
    author: &'r str,
    reason: &'r str,
    problem: Option<&'r str>,
}

impl<'r> Row<'r> {
    fn of(view: &'r RecordView) -> Self {
        let (domain, author, reason, expires_at_ms) = match &view.record {
            Record::Override(of) => (&of.domain, &of.author, &of.reason, of.expires_at_ms),
            Record::ListEntry(of) => (&of.domain, &of.author, &of.reason, of.expires_at_ms),
            Record::Automatic(of) => (&of.domain, &of.author, &of.reason, Some(of.expires_at_ms)),
            Record::Switch(of) => (&of.domain, &of.author, &of.reason, of.expires_at_ms),
        };
        let (subject, effect) = match &view.record {
            Record::Override(of) => {
                (format!("{} {}", of.rule, of.key_text()).trim_end().to_owned(), of.limit_text())
            }
            Record::ListEntry(of) => (pairs_text(&of.descriptor), of.list.name().to_owned()),
            Record::Automatic(of) => {
                let effect = match of.mode {
                    AutomaticMode::Enforce => List::Deny.name(),
                    AutomaticMode::Exempt => of.mode.name(),
                };
                (pairs_text(&of.descriptor), format!("{effect}, by {}", of.rule))
            }
            Record::Switch(of) => (of.rule.clone(), mode_text(of)),
        };
        Self { domain, subject, effect, expires_at_ms, author, reason, problem: view.problem.as_deref() }
    }

    fn reason_or_problem(&self) -> String {
        self.problem.map_or_else(|| self.reason.to_owned(), |problem| format!("without effect: {problem}"))
    }
}

/// The mode of a switch, with the share that is enforced and the state of its ramp.
fn mode_text(switch: &Switch) -> String {
    let mode = switch.mode.name();
    let Some(share) = switch.enforce_percent else { return mode.to_owned() };
    let ramp = switch.ramp.as_ref().map(|ramp| format!(", {}", ramp.note()));
    format!("{mode}, {share}% of keys enforced{}", ramp.unwrap_or_default())
}

/// A record in one line.
pub(super) fn line(view: &RecordView) -> String {
    let Row { domain, subject, effect, expires_at_ms, .. } = Row::of(view);
    let until = expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
    let text = format!("{domain} {subject}: {effect} until {until} ({})", view.key);
    escape_line(&text) + "\n"
}

fn details(view: &RecordView) -> String {
    let row = Row::of(view);
    let (author, reason) = (escape_line(row.author), escape_line(&row.reason_or_problem()));
    format!("{}revision {}, by {author}: {reason}\n", line(view), view.revision)
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
    let mut violations = Vec::new();
    for some in records.chunks(BATCH) {
        violations.extend(api.field::<Vec<Value>>(&put(api, some, flags)?, "violations")?);
    }
    let count = records.len();
    let done = if flags.dry_run { "are valid; nothing was changed" } else { "are set" };
    let needs_force = match violations.len() {
        needing if needing > 0 && flags.dry_run => format!("{needing} guardrails need --force\n"),
        _ => String::new(),
    };
    let text = format!("{count} records {done}\n{needs_force}");
    Ok(CommandOutput { text, json: json!({ "count": count, "violations": violations }) })
}

/// A descriptor in the JSON form of the API.
pub(super) fn descriptor(pairs: &DescriptorArgument) -> Value {
    pairs.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

/// A duration in seconds, rounded up so that it is not shorter than requested.
fn seconds(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)))
}
