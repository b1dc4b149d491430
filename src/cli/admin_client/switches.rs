//! `tollgate switch`.

use serde::Deserialize;
use serde_json::json;
use tollgate_control::Switch;

use super::{
    CommandOutput,
    api::ApiClient,
    error::ClientError,
    lists::set_expiry,
    text::{escape_line, table, utc, utc_or_never},
};
use crate::settings::SwitchCommand;

#[derive(Debug, Deserialize)]
struct Switches {
    switches: Vec<Switch>,
}

pub(super) fn run(api: &ApiClient, command: &SwitchCommand) -> Result<CommandOutput, ClientError> {
    match command {
        SwitchCommand::Show => show(api),
        SwitchCommand::Set { domain, rule, mode, reason, lifetime } => {
            let mut body = json!({ "domain": domain, "rule": rule, "mode": mode, "reason": reason });
            set_expiry(&mut body, *lifetime);
            let json = api.put("switches", &body)?;
            let switch: Switch = api.read(&json)?;
            let until = switch.expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
            let text = format!("{domain}.{rule} is switched to {} until {until}\n", switch.mode.name());
            Ok(CommandOutput { text, json })
        }
        SwitchCommand::Remove { domain, rule } => {
            api.delete("switches", &[("domain", domain), ("rule", rule)])?;
            let text = format!("the switch of {domain}.{rule} is removed\n");
            Ok(CommandOutput { text, json: json!({ "domain": domain, "rule": rule }) })
        }
    }
}

fn show(api: &ApiClient) -> Result<CommandOutput, ClientError> {
    let json = api.get("switches", &[])?;
    let switches = api.read::<Switches>(&json)?.switches;
    if switches.is_empty() {
        return Ok(CommandOutput { text: "no rule is switched\n".to_owned(), json });
    }
    let rows = switches.iter().map(|switch| {
        [
            escape_line(&switch.domain),
            escape_line(&switch.rule),
            switch.mode.name().to_owned(),
            utc_or_never(switch.expires_at_ms),
            escape_line(&switch.author),
            escape_line(&switch.reason),
        ]
    });
    let head = ["DOMAIN", "RULE", "MODE", "EXPIRES", "AUTHOR", "REASON"];
    Ok(CommandOutput { text: table(head, &rows.collect::<Vec<_>>()), json })
}
