//! `tollgate counters bans` and `tollgate counters lift`.

use serde::Deserialize;
use serde_json::json;
use tollgate_control::ListedBan;

use super::{
    CommandOutput,
    api::ApiClient,
    error::ClientError,
    text::{escape_line, table, utc},
};
use crate::settings::BanModeArgument;

/// Bans of one request.
const PAGE_SIZE: &str = "500";

#[derive(Debug, Deserialize)]
struct Bans {
    bans: Vec<ListedBan>,
    next: Option<String>,
}

/// Lists all active bans.
pub(super) fn list(
    api: &ApiClient,
    domain: Option<&str>,
    mode: Option<BanModeArgument>,
) -> Result<CommandOutput, ClientError> {
    let mut query = vec![("limit", PAGE_SIZE)];
    query.extend(domain.map(|domain| ("domain", domain)));
    query.extend(mode.map(|mode| ("mode", mode.name())));
    let (mut bans, mut before): (_, Option<String>) = (Vec::new(), None);
    loop {
        let mut query = query.clone();
        query.extend(before.as_deref().map(|before| ("before", before)));
        let page: Bans = api.read(&api.get("bans", &query)?)?;
        bans.extend(page.bans);
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    let json = json!({ "bans": bans });
    if bans.is_empty() {
        return Ok(CommandOutput { text: "there are no active bans\n".to_owned(), json });
    }
    let rows = bans.iter().map(|ban| {
        [
            escape_line(&ban.id),
            escape_line(&ban.domain),
            escape_line(&ban.rule),
            escape_line(&ban.key_text()),
            ban.mode.name().to_owned(),
            ban.level.to_string(),
            utc(ban.ends_at_ms),
        ]
    });
    let head = ["ID", "DOMAIN", "RULE", "DESCRIPTOR", "MODE", "LEVEL", "ENDS"];
    Ok(CommandOutput { text: table(head, &rows.collect::<Vec<_>>()), json })
}

/// Lifts a ban.
pub(super) fn lift(api: &ApiClient, id: &str, forgive: bool) -> Result<CommandOutput, ClientError> {
    let query: &[(&str, &str)] = if forgive { &[("forgive", "true")] } else { &[] };
    api.delete(&format!("bans/{id}"), query)?;
    let done = if forgive { "lifted and forgiven" } else { "lifted" };
    Ok(CommandOutput {
        text: format!("ban {id} is {done}\n"),
        json: json!({ "id": id, "forgiven": forgive }),
    })
}
