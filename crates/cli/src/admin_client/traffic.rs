//! `tollgate top`, `events`, `candidates` and `recommend`.

use serde::Deserialize;
use tollgate_admin::api::traffic::ShownTop;
use tollgate_control::LoggedEvent;
use tollgate_fleet::rollouts::{CandidateView, KeyView};
use tollgate_fleet::{InstanceStatus, ReportStatus};
use tollgate_limiter::demand::{Recommendation, RecommendedLimit};
use tollgate_limiter::talkers::{DomainTop, Talker};

use super::client::{ApiClient, ClientError};
use super::output::{Column, CommandOutput, escape_line, table, table_or, utc};
use crate::flags::{EventsQuery, RuleQuery, TopQuery};

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
    api.output(api.get("top", &query)?, top_text)
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

/// Shows comparisons of rules with their candidates.
pub(super) fn candidates(api: &ApiClient, query: &RuleQuery) -> Result<CommandOutput, ClientError> {
    let query = [("domain", query.domain.as_deref()), ("rule", query.rule.as_deref())];
    let (candidates, json) = api.list("candidates", &query)?;
    let texts = candidates.iter().map(comparison);
    Ok(CommandOutput { text: sections("no rule has a candidate", texts), json })
}

/// Shows recommended limits.
pub(super) fn recommend(api: &ApiClient, query: &RuleQuery) -> Result<CommandOutput, ClientError> {
    let query = [("domain", query.domain.as_deref()), ("rule", query.rule.as_deref())];
    let (found, json) = api.list("recommendations", &query)?;
    let instances = api.field(&json, "instances")?;
    let texts = found.iter().map(|found| recommendation(found, instances));
    Ok(CommandOutput { text: sections("no rule was observed for a whole window yet", texts), json })
}

/// Texts with an empty line between them, or a sentence in place of none.
fn sections(none: &str, texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() { format!("{none}\n") } else { texts.join("\n") }
}

fn comparison(candidate: &CandidateView) -> String {
    let CandidateView { domain, rule, limit, candidate: other, since_ms, hits, keys, instances } = candidate;
    let head = format!(
        "{}.{}, compared since {} by {} instances\n  rule       {}\n  candidate  {}\n",
        escape_line(domain),
        escape_line(rule),
        utc(*since_ms),
        instances.len(),
        escape_line(limit),
        escape_line(other)
    );
    let counts = [
        ("admitted by both", hits.admitted),
        ("denied by the rule only", hits.rule_only),
        ("denied by the candidate only", hits.candidate_only),
        ("denied by both", hits.denied),
    ];
    let all = counts.iter().fold(0_u64, |sum, (_, hits)| sum.saturating_add(*hits));
    let outcomes = counts.map(|(outcome, hits)| (outcome, hits, percent(hits, all)));
    let columns: [Column<(&str, u64, String)>; 3] = [
        ("OUTCOME", |(outcome, ..)| (*outcome).to_owned()),
        ("HITS", |(_, hits, _)| hits.to_string()),
        ("SHARE", |(.., share)| share.clone()),
    ];
    let rule = keys.rule_only.iter().map(|key| ("the rule only", key));
    let denied: Vec<_> =
        rule.chain(keys.candidate_only.iter().map(|key| ("the candidate only", key))).collect();
    let key_columns: [Column<(&str, &KeyView)>; 3] = [
        ("DENIED BY", |(who, _)| (*who).to_owned()),
        ("HITS", |(_, key)| key.hits.to_string()),
        ("KEY", |(_, key)| key.key.clone()),
    ];
    let keys = if denied.is_empty() { String::new() } else { table(&denied, &key_columns) };
    head + &table(&outcomes, &columns) + &keys
}

/// A part of a whole in percent, with two decimals.
#[allow(clippy::float_arithmetic)] // Shown to people.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2}%", part as f64 * 100.0 / whole as f64) }
}

#[allow(clippy::float_arithmetic)] // Shown to people.
fn recommendation(found: &Recommendation, instances: u32) -> String {
    // The sum is never the negative zero, which would be shown as such.
    let percent = |part: f64| format!("{}%", (part * 10_000.0).round() / 100.0 + 0.0);
    let head = format!(
        "{}.{}: {} per {} s now, which denies {} of hits and {} of keys\n  seen in {} windows since {}: {:.0} keys and \
         {:.0} hits a window, by one of {instances} instances\n",
        escape_line(&found.domain),
        escape_line(&found.rule),
        found.limit,
        found.window_s,
        percent(found.denied_hits),
        percent(found.denied_keys),
        found.windows,
        utc(found.since_s.saturating_mul(1_000)),
        found.keys,
        found.hits,
    );
    let denies = |what, found: &RecommendedLimit| format!("{} of {what}", percent(found.part));
    let hits = found.by_hits.iter().map(|found| (denies("hits", found), found));
    let limits: Vec<_> =
        hits.chain(found.by_keys.iter().map(|found| (denies("keys", found), found))).collect();
    let columns: [Column<(String, &RecommendedLimit)>; 3] = [
        ("DENIES", |(denies, _)| denies.clone()),
        ("LIMIT", |(_, found)| found.limit.to_string()),
        ("95% CONFIDENCE", |(_, found)| match found.high {
            Some(high) => format!("{} to {high}", found.low),
            None => "too few keys".to_owned(),
        }),
    ];
    head + &table(&limits, &columns)
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

    #[test]
    fn a_comparison_states_both_limits_the_outcomes_and_the_keys() {
        let json = serde_json::json!({
            "domain": "edge", "rule": "api_key", "limit": "10 per second, fixed_window",
            "candidate": "10 per second, token_bucket", "since_ms": 0,
            "hits": {"admitted": 90, "rule_only": 0, "candidate_only": 9, "denied": 1},
            "keys": {"rule_only": [], "candidate_only": [{"key": "api_key=a\u{1b}", "hits": 9}]},
            "instances": [{"id": "a", "hits": {"admitted": 90, "rule_only": 0, "candidate_only": 9, "denied": 1}}],
        });
        let text = comparison(&serde_json::from_value(json).expect("a response"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "edge.api_key, compared since 1970-01-01 00:00:00 UTC by 1 instances");
        assert_eq!(lines[6], "denied by the candidate only  9     9.00%");
        assert_eq!(lines[9], "the candidate only  9     api_key=a\\u{1b}");
    }

    #[test]
    fn each_part_has_a_limit_and_its_interval() {
        let found = Recommendation {
            domain: "edge".to_owned(),
            rule: "api_key".to_owned(),
            limit: 100,
            window_s: 60,
            windows: 5,
            since_s: 0,
            keys: 10.0,
            hits: 1_000.0,
            denied_hits: 0.0123,
            denied_keys: 0.5,
            by_hits: vec![RecommendedLimit { part: 0.001, limit: 900, low: 850, high: Some(950) }],
            by_keys: vec![RecommendedLimit { part: 0.05, limit: 300, low: 0, high: None }],
        };
        let text = recommendation(&found, 3);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "edge.api_key: 100 per 60 s now, which denies 1.23% of hits and 50% of keys");
        assert_eq!(lines[3], "0.1% of hits  900    850 to 950");
        assert_eq!(lines[4], "5% of keys    300    too few keys");
    }
}
