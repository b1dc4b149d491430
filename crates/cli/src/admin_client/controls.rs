//! `tollgate lists`, `tollgate switch` and `tollgate override`: what operators set, mostly for a time.

use std::{fmt::Display, path::Path, time::Duration};

use serde_json::{Map, Value, json};
use tollgate_admin::api::controls::OverrideView;
use tollgate_control::{
    AutomaticEntry, AutomaticMode, List, ListEntry, OverrideEntry, Switch, SwitchMode, pairs_text,
};
use tollgate_flags::DescriptorArgument;
use tollgate_runtime::{bounded_file, redact};

use super::client::{ApiClient, ClientError};
use super::output::{CommandOutput, escape_line, table_or, utc, utc_or_never};
use crate::flags::{LimitArgument, ListCommand, OverrideCommand, RuleSelector, SwitchCommand};

/// Maximum size of a file of overrides in bytes: more than that of all that there may be.
const MAX_IMPORT_BYTES: u64 = 256 << 20;

/// Number of overrides of one request.
const BATCH: usize = 1_000;

pub(super) fn lists(api: &ApiClient, command: &ListCommand) -> Result<CommandOutput, ClientError> {
    let list = |allow| if allow { List::Allow } else { List::Deny };
    match command {
        ListCommand::Show { allow } => show_list(api, list(*allow)),
        ListCommand::Add { allow, domain, descriptor, reason, lifetime, force } => {
            let body = json!({
                "list": list(*allow),
                "domain": domain,
                "descriptor": descriptor.0,
                "reason": reason,
                "expires_in_s": seconds(*lifetime),
                "force": force,
            });
            api.output(api.post("lists", &body)?, added)
        }
        ListCommand::Exempt { id, reason, lifetime } => {
            let body = json!({ "reason": reason, "expires_in_s": seconds(*lifetime) });
            api.output(api.post(&format!("automatic/{id}/exempt"), &body)?, |entry: &AutomaticEntry| {
                let (descriptor, domain) = (pairs_text(&entry.descriptor), escape_line(&entry.domain));
                let until = utc(entry.expires_at_ms);
                format!("{} in {domain} is exempt until {until}\n", escape_line(&descriptor))
            })
        }
        ListCommand::Remove { id } => {
            api.delete(&format!("lists/{id}"), &[])?;
            Ok(CommandOutput::removed("entry", id))
        }
    }
}

pub(super) fn switches(api: &ApiClient, command: &SwitchCommand) -> Result<CommandOutput, ClientError> {
    match command {
        SwitchCommand::List => show_switches(api),
        SwitchCommand::Set { rule, mode, enforce_percent, reason, lifetime } => {
            let RuleSelector { domain, rule } = rule;
            let body = json!({
                "domain": domain,
                "rule": rule,
                "mode": mode,
                "enforce_percent": enforce_percent,
                "reason": reason,
                "expires_in_s": seconds(*lifetime),
            });
            api.output(api.put("switches", &body)?, |switch| {
                let (mode, until) = (mode_text(switch), end(switch.expires_at_ms));
                format!("{domain}.{rule} is switched to {mode} until {until}\n")
            })
        }
        SwitchCommand::Ramp { rule, steps, over, max_denied, min_hits, reason } => {
            let RuleSelector { domain, rule } = rule;
            let ramp = json!({
                "steps": steps,
                "over_s": over.as_secs(),
                "max_denied_percent": max_denied,
                "min_hits": min_hits,
            });
            let body = json!({
                "domain": domain, "rule": rule, "mode": SwitchMode::Shadow, "ramp": ramp, "reason": reason,
            });
            api.output(api.put("switches", &body)?, |switch| {
                format!("{domain}.{rule} is switched to {}\n", mode_text(switch))
            })
        }
        SwitchCommand::Remove { rule: RuleSelector { domain, rule } } => {
            api.delete("switches", &[("domain", Some(domain)), ("rule", Some(rule))])?;
            let text = format!("the switch of {domain}.{rule} is removed\n");
            Ok(CommandOutput { text, json: json!({ "domain": domain, "rule": rule }) })
        }
    }
}

pub(super) fn overrides(api: &ApiClient, command: &OverrideCommand) -> Result<CommandOutput, ClientError> {
    match command {
        OverrideCommand::List { domain, rule, limit } => {
            show_overrides(api, domain.as_deref(), rule.as_deref(), *limit)
        }
        OverrideCommand::Set { domain, rule, counter, rate_limit, reason, lifetime, force } => {
            let keys = rate_limit.iter().map(|LimitArgument { key, value }| (key.clone(), value.clone()));
            let body = json!({
                "domain": domain,
                "rule": rule,
                "key": counter.as_ref().map_or_else(|| json!([]), descriptor),
                "rate_limit": keys.collect::<Map<_, _>>(),
                "reason": reason,
                "expires_in_s": seconds(*lifetime),
                "force": force,
            });
            api.output(api.put("overrides", &body)?, overridden)
        }
        OverrideCommand::Import { file, reason, force } => import(api, file, reason, *force),
        OverrideCommand::Remove { id } => {
            api.delete(&format!("overrides/{id}"), &[])?;
            Ok(CommandOutput::removed("override", id))
        }
    }
}

fn show_list(api: &ApiClient, list: List) -> Result<CommandOutput, ClientError> {
    let response = api.get("lists", &[])?;
    let mut entries: Vec<ListEntry> = api.field(&response, "entries")?;
    // Absent in responses of older releases.
    let mut automatic = api.field::<Option<Vec<AutomaticEntry>>>(&response, "automatic")?.unwrap_or_default();
    entries.retain(|entry| entry.list == list);
    automatic.retain(|_| list == List::Deny);
    let json = json!({ "entries": entries, "automatic": automatic });
    entries.extend(automatic.into_iter().map(as_entry));
    let text = table_or(
        &format!("the {} list is empty", list.name()),
        &entries,
        &[
            ("ID", |entry| entry.id.clone()),
            ("DOMAIN", |entry| entry.domain.clone()),
            ("DESCRIPTOR", |entry| pairs_text(&entry.descriptor)),
            ("EXPIRES", |entry| utc_or_never(entry.expires_at_ms)),
            ("AUTHOR", |entry| entry.author.clone()),
            ("REASON", |entry| entry.reason.clone()),
        ],
    );
    Ok(CommandOutput { text, json })
}

/// An automatic entry as one of an operator, with its rule or its exemption in the reason.
fn as_entry(entry: AutomaticEntry) -> ListEntry {
    let AutomaticEntry { id, mode, domain, descriptor, rule, reason, author, created_at_ms, .. } = entry;
    let reason = match mode {
        AutomaticMode::Exempt => format!("exempt: {reason}"),
        AutomaticMode::Enforce => format!("{rule}: {reason}"),
    };
    let expires_at_ms = Some(entry.expires_at_ms);
    ListEntry { id, list: List::Deny, domain, descriptor, reason, author, created_at_ms, expires_at_ms }
}

fn added(entry: &ListEntry) -> String {
    let does = match entry.list {
        List::Allow => "allows",
        List::Deny => "denies",
    };
    let (id, domain) = (escape_line(&entry.id), escape_line(&entry.domain));
    let descriptor = escape_line(&pairs_text(&entry.descriptor));
    format!("entry {id} {does} {descriptor} in {domain} until {}\n", end(entry.expires_at_ms))
}

fn show_switches(api: &ApiClient) -> Result<CommandOutput, ClientError> {
    let (switches, json) = api.list::<Switch>("switches", &[])?;
    let text = table_or(
        "no rule is switched",
        &switches,
        &[
            ("DOMAIN", |switch| switch.domain.clone()),
            ("RULE", |switch| switch.rule.clone()),
            ("MODE", mode_text),
            ("EXPIRES", |switch| utc_or_never(switch.expires_at_ms)),
            ("AUTHOR", |switch| switch.author.clone()),
            ("REASON", |switch| switch.reason.clone()),
        ],
    );
    Ok(CommandOutput { text, json })
}

/// The mode of a switch, with the share that is enforced and the state of its ramp.
fn mode_text(switch: &Switch) -> String {
    let mode = switch.mode.name();
    let Some(share) = switch.enforce_percent else { return mode.to_owned() };
    let ramp = switch.ramp.as_ref().map(|ramp| format!(", {}", ramp.note()));
    format!("{mode}, {share}% of keys enforced{}", ramp.unwrap_or_default())
}

fn show_overrides(
    api: &ApiClient,
    domain: Option<&str>,
    rule: Option<&str>,
    limit: usize,
) -> Result<CommandOutput, ClientError> {
    let query = [("domain", domain), ("rule", rule), ("limit", Some(&*limit.to_string()))];
    let (overrides, json) = api.list::<OverrideView>("overrides", &query)?;
    let more = if api.field(&json, "is_truncated")? { "there are more; see --limit\n" } else { "" };
    let table = table_or(
        "no rule is overridden",
        &overrides,
        &[
            ("ID", |view| view.entry.id.clone()),
            ("DOMAIN", |view| view.entry.domain.clone()),
            ("RULE", |view| view.entry.rule.clone()),
            ("KEY", |view| view.entry.key_text()),
            ("LIMIT", |view| view.entry.limit_text()),
            ("EXPIRES", |view| utc_or_never(view.entry.expires_at_ms)),
            ("AUTHOR", |view| view.entry.author.clone()),
            ("REASON", |OverrideView { entry, problem }| match problem {
                None => entry.reason.clone(),
                Some(problem) => format!("without effect: {problem}"),
            }),
        ],
    );
    Ok(CommandOutput { text: table + more, json })
}

fn overridden(entry: &OverrideEntry) -> String {
    let key = match &*entry.key_text() {
        "" => String::new(),
        key => format!(" for {}", escape_line(key)),
    };
    let (domain, rule, limit) =
        (escape_line(&entry.domain), escape_line(&entry.rule), escape_line(&entry.limit_text()));
    let (until, id) = (end(entry.expires_at_ms), escape_line(&entry.id));
    format!("{domain}.{rule}{key} has {limit} until {until} (override {id})\n")
}

/// Sets the overrides of a file, a line of JSON each.
fn import(api: &ApiClient, file: &Path, reason: &str, force: bool) -> Result<CommandOutput, ClientError> {
    let fails = |reason: &dyn Display| ClientError::of_file(&redact::path(file), reason);
    let text = bounded_file::read_text(file, MAX_IMPORT_BYTES).map_err(|error| fails(&error))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let overrides = lines.map(|(number, line)| {
        serde_json::from_str(line)
            .map_err(|_| fails(&format_args!("line {number} is no JSON; expected an override")))
    });
    let overrides: Vec<Value> = overrides.collect::<Result<_, _>>()?;
    for some in overrides.chunks(BATCH) {
        api.post("overrides/batch", &json!({ "overrides": some, "reason": reason, "force": force }))?;
    }
    let count = overrides.len();
    Ok(CommandOutput { text: format!("{count} overrides are set\n"), json: json!({ "count": count }) })
}

/// A descriptor in the JSON form of the API.
pub(super) fn descriptor(pairs: &DescriptorArgument) -> Value {
    pairs.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

/// A duration in seconds, rounded up so that it is not shorter than requested.
fn seconds(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)))
}

/// End of something that an operator set.
fn end(expires_at_ms: Option<u64>) -> String {
    expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc)
}
