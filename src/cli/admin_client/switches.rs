//! `tollgate switch`.

use serde::Deserialize;
use serde_json::json;
use tollgate_control::{Switch, SwitchMode};

use super::{
    CommandOutput,
    api::ApiClient,
    error::ClientError,
    lists::set_expiry,
    text::{escape_line, table, utc, utc_or_never},
};
use crate::settings::{RuleSelector, SwitchCommand};

#[derive(Debug, Deserialize)]
struct Switches {
    switches: Vec<Switch>,
}

pub(super) fn run(api: &ApiClient, command: &SwitchCommand) -> Result<CommandOutput, ClientError> {
    match command {
        SwitchCommand::List => show(api),
        SwitchCommand::Set {
            rule: RuleSelector { domain, rule },
            mode,
            enforce_percent,
            reason,
            lifetime,
        } => {
            let mut body = json!({ "domain": domain, "rule": rule, "mode": mode, "reason": reason });
            if let (Some(percent), Some(body)) = (enforce_percent, body.as_object_mut()) {
                body.insert("enforce_percent".to_owned(), json!(percent));
            }
            set_expiry(&mut body, *lifetime);
            let json = api.put("switches", &body)?;
            let switch: Switch = api.read(&json)?;
            let until = switch.expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
            let text = format!("{domain}.{rule} is switched to {} until {until}\n", mode_text(&switch));
            Ok(CommandOutput { text, json })
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
            let json = api.put("switches", &body)?;
            let switch: Switch = api.read(&json)?;
            let text = format!("{domain}.{rule} is switched to {}\n", mode_text(&switch));
            Ok(CommandOutput { text, json })
        }
        SwitchCommand::Remove { rule: RuleSelector { domain, rule } } => {
            api.delete("switches", &[("domain", domain), ("rule", rule)])?;
            let text = format!("the switch of {domain}.{rule} is removed\n");
            Ok(CommandOutput { text, json: json!({ "domain": domain, "rule": rule }) })
        }
    }
}

/// The mode of a switch, with the share that is enforced and the state of its ramp.
fn mode_text(switch: &Switch) -> String {
    let mode = switch.mode.name();
    let Some(share) = switch.enforce_percent else { return mode.to_owned() };
    let ramp = switch.ramp.as_ref().map(|ramp| format!(", {}", ramp.note()));
    format!("{mode}, {share}% of keys enforced{}", ramp.unwrap_or_default())
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
            mode_text(switch),
            utc_or_never(switch.expires_at_ms),
            escape_line(&switch.author),
            escape_line(&switch.reason),
        ]
    });
    let head = ["DOMAIN", "RULE", "MODE", "EXPIRES", "AUTHOR", "REASON"];
    Ok(CommandOutput { text: table(head, &rows.collect::<Vec<_>>()), json })
}
