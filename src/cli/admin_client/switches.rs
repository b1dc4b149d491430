//! `tollgate switch`.

use serde::Deserialize;
use serde_json::json;

use super::{
    Answer,
    api::Api,
    failure::Failure,
    lists::end,
    plain::line,
    table::table,
    time::{utc, utc_or_never},
};
use crate::settings::SwitchTask;
use tollgate_control::Switch;

#[derive(Debug, Deserialize)]
struct Switches {
    switches: Vec<Switch>,
}

pub(super) fn run(api: &Api, task: &SwitchTask) -> Result<Answer, Failure> {
    match task {
        SwitchTask::Show => show(api),
        SwitchTask::Set { domain, rule, mode, reason, lasting } => {
            let mut body = json!({ "domain": domain, "rule": rule, "mode": mode, "reason": reason });
            end(&mut body, *lasting);
            let json = api.put("switches", &body)?;
            let switch: Switch = api.read(&json)?;
            let until = switch.expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
            let text = format!("{domain}.{rule} is switched to {} until {until}\n", switch.mode.name());
            Ok(Answer { text, json })
        }
        SwitchTask::Remove { domain, rule } => {
            api.delete("switches", &[("domain", domain), ("rule", rule)])?;
            let text = format!("the switch of {domain}.{rule} is removed\n");
            Ok(Answer { text, json: json!({ "domain": domain, "rule": rule }) })
        }
    }
}

fn show(api: &Api) -> Result<Answer, Failure> {
    let json = api.get("switches", &[])?;
    let switches = api.read::<Switches>(&json)?.switches;
    if switches.is_empty() {
        return Ok(Answer { text: "no rule is switched\n".to_owned(), json });
    }
    let rows = switches.iter().map(|switch| {
        [
            line(&switch.domain),
            line(&switch.rule),
            switch.mode.name().to_owned(),
            utc_or_never(switch.expires_at_ms),
            line(&switch.author),
            line(&switch.reason),
        ]
    });
    let head = ["DOMAIN", "RULE", "MODE", "ENDS", "BY", "REASON"];
    Ok(Answer { text: table(head, &rows.collect::<Vec<_>>()), json })
}
