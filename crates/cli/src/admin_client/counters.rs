//! `tollgate counters` and `tollgate usage`.

use serde_json::{Value, json};
use tollgate_admin::api::counters::{LimitUsage, UsageView};
use tollgate_control::ListedBan;
use tollgate_core::ban::BanMode;

use super::client::{ApiClient, ClientError};
use super::output::{CommandOutput, escape_line, table_or, utc};
use super::records::descriptor;
use crate::flags::{CounterCommand, CounterSelector};

/// Bans of one request.
const PAGE_SIZE: &str = "500";

pub(super) fn run(api: &ApiClient, command: &CounterCommand) -> Result<CommandOutput, ClientError> {
    let json = match command {
        CounterCommand::Reset { counter: CounterSelector { domain, descriptor: of }, reason } => {
            let body = json!({ "domain": domain, "descriptor": descriptor(of), "reason": reason });
            api.post("counters/reset", &body)?
        }
        CounterCommand::Refund { counter: CounterSelector { domain, descriptor: of }, hits, reason } => {
            let body =
                json!({ "domain": domain, "descriptor": descriptor(of), "hits": hits, "reason": reason });
            api.post("counters/refund", &body)?
        }
        CounterCommand::Bans { domain, mode } => return bans(api, domain.as_deref(), *mode),
        CounterCommand::Lift { id, forgive } => return lift(api, id, *forgive),
    };
    api.output(json, texts)
}

/// Shows the use of the limits of a descriptor.
pub(super) fn usage(api: &ApiClient, counter: &CounterSelector) -> Result<CommandOutput, ClientError> {
    let pairs = &counter.descriptor;
    let pairs = pairs.iter().map(|(key, value)| format!("{key}={}", Value::from(&**value)));
    let descriptor = pairs.collect::<Vec<_>>().join(",");
    let json = api.get("usage", &[("domain", Some(&counter.domain)), ("descriptor", Some(&descriptor))])?;
    api.output(json, texts)
}

fn texts(usage: &UsageView) -> String {
    usage.limits.iter().map(limit_text).collect::<Vec<_>>().join("\n")
}

/// Lists all active bans.
fn bans(api: &ApiClient, domain: Option<&str>, mode: Option<BanMode>) -> Result<CommandOutput, ClientError> {
    let mode = mode.map(BanMode::name);
    let (mut bans, mut before) = (Vec::<ListedBan>::new(), None::<String>);
    loop {
        let query =
            [("limit", Some(PAGE_SIZE)), ("domain", domain), ("mode", mode), ("before", before.as_deref())];
        let (page, json) = api.list::<ListedBan>("bans", &query)?;
        bans.extend(page);
        before = api.field(&json, "next")?;
        if before.is_none() {
            break;
        }
    }
    let text = table_or(
        "there are no active bans",
        &bans,
        &[
            ("ID", |ban| ban.id.clone()),
            ("DOMAIN", |ban| ban.domain.clone()),
            ("RULE", |ban| ban.rule.clone()),
            ("DESCRIPTOR", ListedBan::key_text),
            ("MODE", |ban| ban.mode.name().to_owned()),
            ("LEVEL", |ban| ban.level.to_string()),
            ("ENDS", |ban| utc(ban.ends_at_ms)),
        ],
    );
    Ok(CommandOutput { text, json: json!({ "bans": bans }) })
}

/// Lifts a ban.
fn lift(api: &ApiClient, id: &str, forgive: bool) -> Result<CommandOutput, ClientError> {
    api.delete(&format!("bans/{id}"), &[("forgive", forgive.then_some("true"))])?;
    let done = if forgive { "lifted and forgiven" } else { "lifted" };
    Ok(CommandOutput {
        text: format!("ban {id} is {done}\n"),
        json: json!({ "id": id, "forgiven": forgive }),
    })
}

#[allow(clippy::float_arithmetic)] // Shown to people.
fn limit_text(usage: &LimitUsage) -> String {
    // A bucket holds another number of hits than the limit.
    let whole = match usage.remaining {
        0 => usage.limit_hits,
        remaining => usage.used.saturating_add(usage.reserved).saturating_add(remaining),
    };
    let percent = if whole == 0 { 100.0 } else { usage.used as f64 / whole as f64 * 100.0 };
    let unless_zero = |hits, text: String| if hits == 0 { String::new() } else { text };
    let held = unless_zero(usage.held, format!(", {} of them held by the instance", usage.held));
    let reserved = unless_zero(usage.reserved, format!("reserved    {}\n", usage.reserved));
    format!(
        "rule        {}\nlimit       {}\nused        {} ({percent:.1} %{held})\n{reserved}remaining   {}\nresets at   {}\n",
        escape_line(&usage.rule),
        escape_line(&usage.limit),
        usage.used,
        usage.remaining,
        utc(usage.resets_at_ms),
    )
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
        let text = |usage: &Value| limit_text(&serde_json::from_value(usage.clone()).expect("valid"));
        assert!(text(&usage).contains("\nused        500 (33.3 %)\nremaining   1000\n"), "{}", text(&usage));
        usage["reserved"] = json!(500);
        let expected = "\nused        500 (25.0 %)\nreserved    500\nremaining   1000\n";
        assert!(text(&usage).contains(expected), "{}", text(&usage));
    }
}
