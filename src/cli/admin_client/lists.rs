//! `tollgate lists`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::{AutomaticEntry, AutomaticMode, List, ListEntry, ListPair};

use super::{
    CommandOutput,
    api::ApiClient,
    error::ClientError,
    text::{escape_line, table, utc, utc_or_never},
};
use crate::settings::{DescriptorArgument, ListCommand};

#[derive(Debug, Deserialize)]
struct Lists {
    entries: Vec<ListEntry>,
    /// Absent in responses of older releases.
    #[serde(default)]
    automatic: Vec<AutomaticEntry>,
}

pub(super) fn run(api: &ApiClient, command: &ListCommand) -> Result<CommandOutput, ClientError> {
    match command {
        ListCommand::Show { allow } => show(api, list(*allow)),
        ListCommand::Add { allow, domain, descriptor, reason, lifetime, force } => {
            let mut body = json!({
                "list": list(*allow),
                "domain": domain,
                "descriptor": descriptor.0,
                "reason": reason,
            });
            set_expiry(&mut body, *lifetime);
            if let (true, Some(body)) = (*force, body.as_object_mut()) {
                body.insert("force".to_owned(), true.into());
            }
            let json = api.post("lists", &body)?;
            Ok(CommandOutput { text: added(&api.read(&json)?), json })
        }
        ListCommand::Exempt { id, reason, lifetime } => {
            let mut body = json!({ "reason": reason });
            set_expiry(&mut body, *lifetime);
            let json = api.post(&format!("automatic/{id}/exempt"), &body)?;
            let entry: AutomaticEntry = api.read(&json)?;
            let (until, descriptor) = (utc(entry.expires_at_ms), descriptor_text(&entry.descriptor));
            let domain = escape_line(&entry.domain);
            Ok(CommandOutput { text: format!("{descriptor} in {domain} is exempt until {until}\n"), json })
        }
        ListCommand::Remove { id } => {
            api.delete(&format!("lists/{id}"), &[])?;
            Ok(CommandOutput { text: format!("entry {id} is removed\n"), json: json!({ "id": id }) })
        }
    }
}

const fn list(allow: bool) -> List {
    if allow { List::Allow } else { List::Deny }
}

fn show(api: &ApiClient, list: List) -> Result<CommandOutput, ClientError> {
    let json = api.get("lists", &[])?;
    let Lists { mut entries, mut automatic } = api.read(&json)?;
    entries.retain(|entry| entry.list == list);
    automatic.retain(|_| list == List::Deny);
    let json = json!({ "entries": entries, "automatic": automatic });
    if entries.is_empty() && automatic.is_empty() {
        return Ok(CommandOutput { text: format!("the {} list is empty\n", list.name()), json });
    }
    let rows = entries.iter().map(|entry| {
        [
            escape_line(&entry.id),
            escape_line(&entry.domain),
            descriptor_text(&entry.descriptor),
            utc_or_never(entry.expires_at_ms),
            escape_line(&entry.author),
            escape_line(&entry.reason),
        ]
    });
    let automatic = automatic.iter().map(|entry| {
        [
            escape_line(&entry.id),
            escape_line(&entry.domain),
            descriptor_text(&entry.descriptor),
            utc(entry.expires_at_ms),
            escape_line(&entry.author),
            automatic_reason(entry),
        ]
    });
    let rows = rows.chain(automatic);
    let head = ["ID", "DOMAIN", "DESCRIPTOR", "EXPIRES", "AUTHOR", "REASON"];
    Ok(CommandOutput { text: table(head, &rows.collect::<Vec<_>>()), json })
}

fn automatic_reason(entry: &AutomaticEntry) -> String {
    let reason = escape_line(&entry.reason);
    match entry.mode {
        AutomaticMode::Exempt => format!("exempt: {reason}"),
        AutomaticMode::Enforce => format!("{}: {reason}", escape_line(&entry.rule)),
    }
}

fn added(entry: &ListEntry) -> String {
    let does = match entry.list {
        List::Allow => "allows",
        List::Deny => "denies",
    };
    let until = entry.expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
    let (id, domain) = (escape_line(&entry.id), escape_line(&entry.domain));
    format!("entry {id} {does} {} in {domain} until {until}\n", descriptor_text(&entry.descriptor))
}

/// The pairs as `tollgate lists add` takes them.
fn descriptor_text(pairs: &[ListPair]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|pair| escape_line(&pair.to_string())).collect();
    pairs.join(",")
}

/// A descriptor in the JSON form of the API.
pub(super) fn descriptor(DescriptorArgument(pairs): &DescriptorArgument) -> Value {
    pairs.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

/// Adds the duration in seconds, rounded up so that it is not shorter than requested.
pub(super) fn set_expiry(body: &mut Value, lifetime: Option<Duration>) {
    if let (Some(lifetime), Some(body)) = (lifetime, body.as_object_mut()) {
        let seconds = lifetime.as_secs().saturating_add(u64::from(lifetime.subsec_nanos() > 0));
        body.insert("expires_in_s".to_owned(), seconds.into());
    }
}
