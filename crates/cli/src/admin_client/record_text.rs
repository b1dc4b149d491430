//! Records as text.

use serde_json::{Map, Value};
use tollgate_control::{AutomaticMode, List, Record, RecordView, Switch, pairs_text};

use super::output::{escape_line, utc};

/// A record as a row of the table.
pub(super) struct Row<'r> {
    pub(super) domain: &'r str,
    /// Rule with a key, or descriptor.
    pub(super) subject: String,
    pub(super) effect: String,
    pub(super) expires_at_ms: Option<u64>,
    pub(super) author: &'r str,
    reason: &'r str,
    problem: Option<&'r str>,
}

impl<'r> Row<'r> {
    pub(super) fn of(view: &'r RecordView) -> Self {
        let (domain, author, reason, expires_at_ms) = match &view.record {
            Record::Override(of) => (&of.domain, &of.author, &of.reason, of.expires_at_ms),
            Record::ListEntry(of) => (&of.domain, &of.author, &of.reason, of.expires_at_ms),
            Record::Automatic(of) => (&of.domain, &of.author, &of.reason, Some(of.expires_at_ms)),
            Record::Switch(of) => (&of.domain, &of.author, &of.reason, of.expires_at_ms),
        };
        let (subject, effect) = match &view.record {
            Record::Override(of) => {
                (format!("{} {}", of.rule, of.key_text()).trim_end().to_owned(), limit_text(&of.rate_limit))
            }
            Record::ListEntry(of) => (pairs_text(&of.descriptor), of.list.name().to_owned()),
            Record::Automatic(of) => {
                let effect = match of.mode {
                    AutomaticMode::Enforce => List::Deny.name(),
                    AutomaticMode::Exempt => of.mode.name(),
                };
                (pairs_text(&of.descriptor), format!("{effect}, by {}", of.rule))
            }
            Record::Switch(of) => (of.rule.clone(), mode_text(of)),
        };
        Self { domain, subject, effect, expires_at_ms, author, reason, problem: view.problem.as_deref() }
    }

    pub(super) fn reason_or_problem(&self) -> String {
        self.problem.map_or_else(|| self.reason.to_owned(), |problem| format!("without effect: {problem}"))
    }
}

/// The keys of `rate_limit` that are stated, as the dashboard shows them: `20 per minute, burst=500`.
fn limit_text(limit: &Map<String, Value>) -> String {
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut others = limit.clone();
    let amount = others.remove("requests_per_unit").map(|amount| {
        let unit = others.remove("unit").map_or_else(|| "unit".to_owned(), text);
        format!("{amount} per {unit}")
    });
    let others = others.into_iter().map(|(key, value)| format!("{key}={}", text(value)));
    let others = others.collect::<Vec<_>>().join(" ");
    let parts = amount.into_iter().chain((!others.is_empty()).then_some(others));
    parts.collect::<Vec<_>>().join(", ")
}

/// The mode of a switch, with the share that is enforced and the state of its ramp.
fn mode_text(switch: &Switch) -> String {
    let mode = switch.mode.name();
    let Some(share) = switch.enforce_percent else { return mode.to_owned() };
    let ramp = switch.ramp.as_ref().map(|ramp| format!(", {}", ramp.note()));
    format!("{mode}, {share}% of keys enforced{}", ramp.unwrap_or_default())
}

/// A record in one line.
pub(super) fn line(view: &RecordView) -> String {
    let Row { domain, subject, effect, expires_at_ms, .. } = Row::of(view);
    let until = expires_at_ms.map_or_else(|| "it is removed".to_owned(), utc);
    let text = format!("{domain} {subject}: {effect} until {until} ({})", view.key);
    escape_line(&text) + "\n"
}

pub(super) fn details(view: &RecordView) -> String {
    let row = Row::of(view);
    let (author, reason) = (escape_line(row.author), escape_line(&row.reason_or_problem()));
    format!("{}revision {}, by {author}: {reason}\n", line(view), view.revision)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_shown_by_what_is_stated_of_them() {
        let text = |limit: Value| limit_text(limit.as_object().expect("an object"));
        let full =
            json!({"requests_per_unit": 20, "unit": "minute", "burst": 500, "algorithm": "token_bucket"});
        assert_eq!(text(full), "20 per minute, algorithm=token_bucket burst=500");
        assert_eq!(text(json!({ "requests_per_unit": 20 })), "20 per unit");
        assert_eq!(text(json!({ "unit": "hour", "burst": null })), "burst=null unit=hour");
    }
}
