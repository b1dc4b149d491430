//! `tollgate top` and `tollgate events`.

use serde::Deserialize;
use tollgate_control::LoggedEvent;
use tollgate_limiter::talkers::{DomainTop, Talker};

use super::{
    CommandOutput,
    api::{ApiClient, stated},
    error::ClientError,
    text::{escape_line, table, utc},
};
use crate::{
    fleet::{InstanceStatus, ReportStatus},
    http::admin::api::traffic::ShownTop,
    settings::{EventsQuery, TopQuery},
};

#[derive(Debug, Deserialize)]
struct Top {
    domains: Vec<ShownTop>,
    /// Missing in the response of an older release, which has its own traffic only.
    #[serde(default)]
    instances: Vec<InstanceStatus>,
    problem: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Events {
    events: Vec<LoggedEvent>,
}

/// Shows top talkers.
pub(super) fn top(api: &ApiClient, query: &TopQuery) -> Result<CommandOutput, ClientError> {
    let limit = query.limit.to_string();
    let scope = query.instance.then_some("instance");
    let query = stated([("limit", Some(&*limit)), ("domain", query.domain.as_deref()), ("scope", scope)]);
    let json = api.get("top", &query)?;
    Ok(CommandOutput { text: top_text(&api.read(&json)?), json })
}

fn top_text(top: &Top) -> String {
    let mut rows = Vec::new();
    for ShownTop { top: DomainTop { domain, heaviest, denied }, has_rules } in &top.domains {
        let domain = escape_line(domain) + if *has_rules { "" } else { " (no rules)" };
        for (talkers, hits) in [(heaviest, "requested"), (denied, "denied")] {
            rows.extend(talkers.iter().map(|talker| row(&domain, hits, talker)));
        }
    }
    let keys = match rows.is_empty() {
        true => "no requests within the last minute\n".to_owned(),
        false => table(["DOMAIN", "HITS", "IN A MINUTE", "AT MOST TOO HIGH BY", "KEY"], &rows),
    };
    keys + &origin(top)
}

fn row(domain: &str, hits: &str, talker: &Talker) -> [String; 5] {
    let (count, error) = (talker.hits.to_string(), talker.error.to_string());
    [domain.to_owned(), hits.to_owned(), count, error, escape_line(&talker.key)]
}

/// Lines that name the instances in the sum, and those that are missing.
fn origin(top: &Top) -> String {
    let is_included = |instance: &&InstanceStatus| instance.status == ReportStatus::Included;
    let names = |instances: Vec<String>| instances.join(", ");
    let included: Vec<_> =
        top.instances.iter().filter(is_included).map(|instance| escape_line(&instance.id)).collect();
    let missing: Vec<_> = top
        .instances
        .iter()
        .filter(|instance| !is_included(instance))
        .map(|instance| format!("{} ({})", escape_line(&instance.id), instance.status.name()))
        .collect();
    let mut lines = String::new();
    if !included.is_empty() {
        lines += &format!("sum of {}: {}\n", included.len(), names(included));
    }
    if !missing.is_empty() {
        lines += &format!("not in the sum: {}\n", names(missing));
    }
    if let Some(problem) = &top.problem {
        lines += &format!("one instance only: {}\n", escape_line(problem));
    }
    lines
}

/// Shows events.
pub(super) fn events(api: &ApiClient, query: &EventsQuery) -> Result<CommandOutput, ClientError> {
    let json = api.get("events", &[("limit", &query.limit.to_string())])?;
    let events = api.read::<Events>(&json)?.events;
    if events.is_empty() {
        return Ok(CommandOutput { text: "no events\n".to_owned(), json });
    }
    let rows = events.iter().map(|event| {
        let object = event.key.as_ref().or(event.rule.as_ref());
        [
            utc(event.at_ms),
            escape_line(&event.kind),
            escape_line(&event.domain),
            object.map_or_else(String::new, |object| escape_line(object)),
            escape_line(&event.message),
        ]
    });
    let head = ["TIME", "KIND", "DOMAIN", "OBJECT", "MESSAGE"];
    Ok(CommandOutput { text: table(head, &rows.collect::<Vec<_>>()), json })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_instances_are_named_below_the_keys() {
        let json = serde_json::json!({
            "domains": [{
                "domain": "edge",
                "heaviest": [{"key": "k=\u{1b}[2J", "hits": 12, "error": 1}],
                "denied": [],
                "has_rules": true,
            }, {
                "domain": "egde",
                "heaviest": [{"key": "k=v", "hits": 3, "error": 0}],
                "denied": [],
                "has_rules": false,
            }],
            "instances": [{"id": "a", "status": "included"}, {"id": "b", "status": "stale"}],
            "problem": null,
        });
        let text = top_text(&serde_json::from_value(json).expect("a response"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "edge             requested  12           1                    k=\\u{1b}[2J",
                "egde (no rules)  requested  3            0                    k=v",
                "sum of 1: a",
                "not in the sum: b (stale)"
            ]
        );
    }

    #[test]
    fn an_older_release_names_no_instances() {
        let text = top_text(
            &serde_json::from_value(serde_json::json!({"domains": [], "window_s": 60})).expect("read"),
        );
        assert_eq!(text, "no requests within the last minute\n");
    }
}
