//! `tollgate top` and `tollgate events`.

use serde::Deserialize;
use tollgate_control::LoggedEvent;
use tollgate_limiter::talkers::{DomainTop, Talker};

use super::{
    client::{ApiClient, ClientError},
    output::{Column, CommandOutput, escape_line, table_or, utc},
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

/// Row of a table of top talkers.
struct TopRow<'a> {
    domain: String,
    hits: &'static str,
    talker: &'a Talker,
}

/// Shows top talkers.
pub(super) fn top(api: &ApiClient, query: &TopQuery) -> Result<CommandOutput, ClientError> {
    let query = [
        ("limit", Some(&*query.limit.to_string())),
        ("domain", query.domain.as_deref()),
        ("scope", query.instance.then_some("instance")),
    ];
    let json = api.get("top", &query)?;
    Ok(CommandOutput { text: top_text(&api.read(&json)?), json })
}

fn top_text(top: &Top) -> String {
    let mut rows = Vec::new();
    for ShownTop { top: DomainTop { domain, heaviest, denied }, has_rules } in &top.domains {
        let domain = format!("{domain}{}", if *has_rules { "" } else { " (no rules)" });
        for (talkers, hits) in [(heaviest, "requested"), (denied, "denied")] {
            rows.extend(talkers.iter().map(|talker| TopRow { domain: domain.clone(), hits, talker }));
        }
    }
    let columns: [Column<TopRow<'_>>; 5] = [
        ("DOMAIN", |row| row.domain.clone()),
        ("HITS", |row| row.hits.to_owned()),
        ("IN A MINUTE", |row| row.talker.hits.to_string()),
        ("AT MOST TOO HIGH BY", |row| row.talker.error.to_string()),
        ("KEY", |row| row.talker.key.clone()),
    ];
    table_or("no requests within the last minute", &rows, &columns) + &origin(top)
}

/// Lines that name the instances in the sum, and those that are missing.
fn origin(top: &Top) -> String {
    let (included, missing): (Vec<_>, Vec<_>) =
        top.instances.iter().partition(|instance| instance.status == ReportStatus::Included);
    let included: Vec<_> = included.into_iter().map(|instance| escape_line(&instance.id)).collect();
    let missing = missing
        .into_iter()
        .map(|instance| format!("{} ({})", escape_line(&instance.id), instance.status.name()));
    let missing: Vec<_> = missing.collect();
    let mut lines = String::new();
    if !included.is_empty() {
        lines += &format!("sum of {}: {}\n", included.len(), included.join(", "));
    }
    if !missing.is_empty() {
        lines += &format!("not in the sum: {}\n", missing.join(", "));
    }
    if let Some(problem) = &top.problem {
        lines += &format!("one instance only: {}\n", escape_line(problem));
    }
    lines
}

/// Shows events.
pub(super) fn events(api: &ApiClient, query: &EventsQuery) -> Result<CommandOutput, ClientError> {
    let (events, json) = api.list::<LoggedEvent>("events", &[("limit", Some(&query.limit.to_string()))])?;
    let text = table_or(
        "no events",
        &events,
        &[
            ("TIME", |event| utc(event.at_ms)),
            ("KIND", |event| event.kind.clone()),
            ("DOMAIN", |event| event.domain.clone()),
            ("OBJECT", |event| event.key.as_ref().or(event.rule.as_ref()).cloned().unwrap_or_default()),
            ("MESSAGE", |event| event.message.clone()),
        ],
    );
    Ok(CommandOutput { text, json })
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
