//! `tollgate counters` and `tollgate usage`.

use serde_json::{Value, json};

use super::{
    CommandOutput,
    api::ApiClient,
    bans,
    error::ClientError,
    lists::descriptor,
    text::{escape_line, utc},
};
use crate::{
    http::admin::api::counters::{LimitUsage, UsageView},
    settings::{CounterCommand, CounterSelector, DescriptorArgument},
};

pub(super) fn run(api: &ApiClient, command: &CounterCommand) -> Result<CommandOutput, ClientError> {
    let json = match command {
        CounterCommand::Reset { counter, reason } => {
            api.post("counters/reset", &body(counter, None, reason.as_deref()))?
        }
        CounterCommand::Refund { counter, hits, reason } => {
            api.post("counters/refund", &body(counter, Some(hits.get()), reason.as_deref()))?
        }
        CounterCommand::Bans { domain, mode } => return bans::list(api, domain.as_deref(), *mode),
        CounterCommand::Lift { id, forgive } => return bans::lift(api, id, *forgive),
    };
    output(api, json)
}

/// Shows the use of the limits of a descriptor.
pub(super) fn usage(api: &ApiClient, counter: &CounterSelector) -> Result<CommandOutput, ClientError> {
    let DescriptorArgument(pairs) = &counter.descriptor;
    let pairs: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{key}={}", Value::from(&**value))).collect();
    let descriptor = pairs.join(",");
    let json = api.get("usage", &[("domain", &counter.domain), ("descriptor", &descriptor)])?;
    output(api, json)
}

fn output(api: &ApiClient, json: Value) -> Result<CommandOutput, ClientError> {
    let texts: Vec<String> = api.read::<UsageView>(&json)?.limits.iter().map(LimitUsage::to_text).collect();
    Ok(CommandOutput { text: texts.join("\n"), json })
}

fn body(counter: &CounterSelector, hits: Option<u64>, reason: Option<&str>) -> Value {
    let mut body = json!({ "domain": counter.domain, "descriptor": descriptor(&counter.descriptor) });
    if let Some(body) = body.as_object_mut() {
        body.extend(hits.map(|hits| ("hits".to_owned(), hits.into())));
        body.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
    }
    body
}

impl LimitUsage {
    #[allow(clippy::float_arithmetic)] // Shown to people.
    fn to_text(&self) -> String {
        // A bucket holds another number of hits than the limit.
        let whole = match self.remaining {
            0 => self.limit_hits,
            remaining => self.used.saturating_add(self.reserved).saturating_add(remaining),
        };
        let percent = if whole == 0 { 100.0 } else { self.used as f64 / whole as f64 * 100.0 };
        let held = match self.held {
            0 => String::new(),
            held => format!(", {held} of them held by the instance"),
        };
        format!(
            "rule        {}\nlimit       {}\nused        {} ({percent:.1} %{held})\n{}remaining   {}\nresets at   {}\n",
            escape_line(&self.rule),
            escape_line(&self.limit),
            self.used,
            reserved(self.reserved),
            self.remaining,
            utc(self.resets_at_ms),
        )
    }
}

/// The line of hits that open leases hold; none for limits without any.
fn reserved(hits: u64) -> String {
    match hits {
        0 => String::new(),
        hits => format!("reserved    {hits}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_leases_hold_have_a_line_and_are_a_part_of_the_whole() {
        let mut usage = json!({
            "rule": "user", "name": "", "limit": "2000 per day, fixed_window", "limit_hits": 2_000, "used": 500, "reserved": 0,
            "remaining": 1_000, "resets_at_ms": 0, "held": 0,
        });
        let text =
            |usage: &Value| serde_json::from_value::<LimitUsage>(usage.clone()).expect("valid").to_text();
        assert!(text(&usage).contains("\nused        500 (33.3 %)\nremaining   1000\n"), "{}", text(&usage));
        usage["reserved"] = json!(500);
        let expected = "\nused        500 (25.0 %)\nreserved    500\nremaining   1000\n";
        assert!(text(&usage).contains(expected), "{}", text(&usage));
    }
}
