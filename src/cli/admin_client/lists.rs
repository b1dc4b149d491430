//! `tollgate ban`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Answer,
    api::Api,
    failure::Failure,
    plain::line,
    table::table,
    time::{utc, utc_or_never},
};
use crate::settings::{DescriptorWords, ListTask};
use tollgate_control::{List, ListEntry, Pair};

#[derive(Debug, Deserialize)]
struct Lists {
    entries: Vec<ListEntry>,
}

pub(super) fn run(api: &Api, task: &ListTask) -> Result<Answer, Failure> {
    match task {
        ListTask::Show(list) => show(api, *list),
        ListTask::Add { list, domain, descriptor: words, reason, lasting } => {
            let mut body =
                json!({ "list": list, "domain": domain, "descriptor": descriptor(words), "reason": reason });
            end(&mut body, *lasting);
            let json = api.post("lists", &body)?;
            Ok(Answer { text: added(&api.read(&json)?), json })
        }
        ListTask::Remove(id) => {
            api.delete(&format!("lists/{id}"), &[])?;
            Ok(Answer { text: format!("entry {id} is removed\n"), json: json!({ "id": id }) })
        }
    }
}

fn show(api: &Api, list: List) -> Result<Answer, Failure> {
    let json = api.get("lists", &[])?;
    let mut entries = api.read::<Lists>(&json)?.entries;
    entries.retain(|entry| entry.list == list);
    let json = json!({ "entries": entries });
    if entries.is_empty() {
        return Ok(Answer { text: format!("the {} list is empty\n", list.name()), json });
    }
    let rows = entries.iter().map(|entry| {
        [
            line(&entry.id),
            line(&entry.domain),
            shown(&entry.descriptor),
            utc_or_never(entry.expires_at_ms),
            line(&entry.author),
            line(&entry.reason),
        ]
    });
    let head = ["ID", "DOMAIN", "DESCRIPTOR", "ENDS", "BY", "REASON"];
    Ok(Answer { text: table(head, &rows.collect::<Vec<_>>()), json })
}

fn added(entry: &ListEntry) -> String {
    let does = match entry.list {
        List::Allow => "allows",
        List::Deny => "denies",
    };
    let until = entry.expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
    let (id, domain) = (line(&entry.id), line(&entry.domain));
    format!("entry {id} {does} {} in {domain} until {until}\n", shown(&entry.descriptor))
}

fn shown(pairs: &[Pair]) -> String {
    let pairs: Vec<String> =
        pairs.iter().map(|Pair { key, value }| line(&format!("{key}={value}"))).collect();
    pairs.join(",")
}

/// A descriptor in the JSON form of the API.
pub(super) fn descriptor(DescriptorWords(pairs): &DescriptorWords) -> Value {
    pairs.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

/// Adds the duration in seconds, rounded up so that it is not shorter than requested.
pub(super) fn end(body: &mut Value, lasting: Option<Duration>) {
    if let (Some(lasting), Some(body)) = (lasting, body.as_object_mut()) {
        let seconds = lasting.as_secs().saturating_add(u64::from(lasting.subsec_nanos() > 0));
        body.insert("expires_in_s".to_owned(), seconds.into());
    }
}
