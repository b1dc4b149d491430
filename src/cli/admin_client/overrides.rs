//! `tollgate override`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_control::OverrideEntry;
use tollgate_runtime::{bounded_file, redact};

use super::{
    CommandOutput,
    api::{ApiClient, stated},
    error::ClientError,
    lists::{descriptor, set_expiry},
    text::{escape_line, table, utc, utc_or_never},
};
use crate::settings::{LimitArgument, OverrideCommand};

/// Maximum size of a file of overrides in bytes: more than that of all that there may be.
const MAX_IMPORT_BYTES: u64 = 256 << 20;

/// Number of overrides of one request.
const BATCH: usize = 1_000;

#[derive(Debug, Deserialize)]
struct Overrides {
    overrides: Vec<OverrideView>,
    is_truncated: bool,
}

#[derive(Debug, Deserialize)]
struct OverrideView {
    #[serde(flatten)]
    entry: OverrideEntry,
    problem: Option<String>,
}

pub(super) fn run(api: &ApiClient, command: &OverrideCommand) -> Result<CommandOutput, ClientError> {
    match command {
        OverrideCommand::List { domain, rule, limit } => {
            show(api, domain.as_deref(), rule.as_deref(), *limit)
        }
        OverrideCommand::Set { domain, rule, counter, rate_limit, reason, lifetime, force } => {
            let mut body = json!({
                "domain": domain,
                "rule": rule,
                "rate_limit": rate_limit_of(rate_limit),
                "reason": reason,
                "force": force,
            });
            set_expiry(&mut body, *lifetime);
            if let (Some(key), Some(body)) = (counter, body.as_object_mut()) {
                body.insert("key".to_owned(), descriptor(key));
            }
            let json = api.put("overrides", &body)?;
            Ok(CommandOutput { text: set_text(&api.read(&json)?), json })
        }
        OverrideCommand::Import { file, reason, force } => import(api, file, reason, *force),
        OverrideCommand::Remove { id } => {
            api.delete(&format!("overrides/{id}"), &[])?;
            Ok(CommandOutput { text: format!("override {id} is removed\n"), json: json!({ "id": id }) })
        }
    }
}

/// The keys of `rate_limit` in the JSON form of the API.
fn rate_limit_of(arguments: &[LimitArgument]) -> Map<String, Value> {
    arguments.iter().map(|LimitArgument { key, value }| (key.clone(), value.clone())).collect()
}

fn show(
    api: &ApiClient,
    domain: Option<&str>,
    rule: Option<&str>,
    limit: usize,
) -> Result<CommandOutput, ClientError> {
    let limit = limit.to_string();
    let query = stated([("domain", domain), ("rule", rule), ("limit", Some(&*limit))]);
    let json = api.get("overrides", &query)?;
    let Overrides { overrides, is_truncated } = api.read(&json)?;
    if overrides.is_empty() {
        return Ok(CommandOutput { text: "no rule is overridden\n".to_owned(), json });
    }
    let rows = overrides.iter().map(|OverrideView { entry, problem }| {
        [
            escape_line(&entry.id),
            escape_line(&entry.domain),
            escape_line(&entry.rule),
            escape_line(&entry.key_text()),
            escape_line(&entry.limit_text()),
            utc_or_never(entry.expires_at_ms),
            escape_line(&entry.author),
            escape_line(
                &problem
                    .as_ref()
                    .map_or_else(|| entry.reason.clone(), |problem| format!("without effect: {problem}")),
            ),
        ]
    });
    let head = ["ID", "DOMAIN", "RULE", "KEY", "LIMIT", "EXPIRES", "AUTHOR", "REASON"];
    let more = if is_truncated { "there are more; see --limit\n" } else { "" };
    Ok(CommandOutput { text: format!("{}{more}", table(head, &rows.collect::<Vec<_>>())), json })
}

fn set_text(entry: &OverrideEntry) -> String {
    let until = entry.expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
    let key = match &*entry.key_text() {
        "" => String::new(),
        key => format!(" for {}", escape_line(key)),
    };
    let (domain, rule, limit) =
        (escape_line(&entry.domain), escape_line(&entry.rule), escape_line(&entry.limit_text()));
    format!("{domain}.{rule}{key} has {limit} until {until} (override {})\n", escape_line(&entry.id))
}

/// Sets the overrides of a file, a line of JSON each.
fn import(api: &ApiClient, file: &Path, reason: &str, force: bool) -> Result<CommandOutput, ClientError> {
    let fails = |reason: String| ClientError::File { name: redact::path(file), reason };
    let text = bounded_file::read_text(file, MAX_IMPORT_BYTES).map_err(|error| fails(error.to_string()))?;
    let mut overrides = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let stated: Value = serde_json::from_str(line)
            .map_err(|_| fails(format!("line {number} is no JSON; expected an override")))?;
        overrides.push(stated);
    }
    for some in overrides.chunks(BATCH) {
        let body = json!({ "overrides": some, "reason": reason, "force": force });
        api.post("overrides/batch", &body)?;
    }
    let count = overrides.len();
    Ok(CommandOutput { text: format!("{count} overrides are set\n"), json: json!({ "count": count }) })
}
