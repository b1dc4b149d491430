//! `tollgate counters`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{CommandOutput, api::ApiClient, bans, error::ClientError, lists::descriptor, text::escape_line};
use crate::settings::{CounterCommand, CounterSelector};

/// State of a counter.
#[derive(Debug, Deserialize)]
struct Counter {
    rule: String,
    limit: String,
    used: u64,
    /// Hits among them that the instance holds; not reported by earlier versions.
    #[serde(default)]
    held: u64,
    remaining: u32,
    /// Unknown with a `min_interval`.
    would_pass: Option<bool>,
    reset_after_ms: u64,
}

pub(super) fn run(api: &ApiClient, command: &CounterCommand) -> Result<CommandOutput, ClientError> {
    let json = match command {
        CounterCommand::Read(counter) => api.post("counters/read", &body(counter, None, None))?,
        CounterCommand::Reset(counter, reason) => {
            api.post("counters/reset", &body(counter, None, reason.as_deref()))?
        }
        CounterCommand::Refund(counter, hits, reason) => {
            api.post("counters/refund", &body(counter, Some(hits.get()), reason.as_deref()))?
        }
        CounterCommand::Bans(domain, effect) => return bans::list(api, domain.as_deref(), *effect),
        CounterCommand::Lift { id, forgive } => return bans::lift(api, id, *forgive),
    };
    Ok(CommandOutput { text: api.read::<Counter>(&json)?.to_text(), json })
}

fn body(counter: &CounterSelector, hits: Option<u64>, reason: Option<&str>) -> Value {
    let mut body = json!({ "domain": counter.domain, "descriptor": descriptor(&counter.descriptor) });
    if let Some(body) = body.as_object_mut() {
        body.extend(hits.map(|hits| ("hits".to_owned(), hits.into())));
        body.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
    }
    body
}

impl Counter {
    fn to_text(&self) -> String {
        let next = match self.would_pass {
            Some(true) => "would pass",
            Some(false) => "would be over the limit",
            None => "would pass if the last one was min_interval ago",
        };
        let held = match self.held {
            0 => String::new(),
            held => format!(" ({held} of them held by this instance)"),
        };
        format!(
            "rule        {}\nlimit       {}\nused        {}{held}\nremaining   {}\nresets in   {:?}\nnext hit    {next}\n",
            escape_line(&self.rule),
            escape_line(&self.limit),
            self.used,
            self.remaining,
            Duration::from_millis(self.reset_after_ms),
        )
    }
}
