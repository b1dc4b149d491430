//! `tollgate candidates`.

use serde::Deserialize;

use super::{
    CommandOutput,
    api::{ApiClient, stated},
    error::ClientError,
    text::{escape_line, table, utc},
};
use crate::{
    rollouts::{CandidateView, KeyView},
    settings::RuleQuery,
};

#[derive(Debug, Deserialize)]
struct Candidates {
    candidates: Vec<CandidateView>,
}

/// Shows comparisons of rules with their candidates.
pub(super) fn show(api: &ApiClient, query: &RuleQuery) -> Result<CommandOutput, ClientError> {
    let query = stated([("domain", query.domain.as_deref()), ("rule", query.rule.as_deref())]);
    let json = api.get("candidates", &query)?;
    let candidates = api.read::<Candidates>(&json)?.candidates;
    let text = match candidates.is_empty() {
        true => "no rule has a candidate\n".to_owned(),
        false => candidates.iter().map(text).collect::<Vec<_>>().join("\n"),
    };
    Ok(CommandOutput { text, json })
}

fn text(candidate: &CandidateView) -> String {
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
    let rows = counts.map(|(outcome, hits)| [outcome.to_owned(), hits.to_string(), percent(hits, all)]);
    let mut text = head + &table(["OUTCOME", "HITS", "SHARE"], &rows);
    let by = [("rule", &keys.rule_only), ("candidate", &keys.candidate_only)];
    let rows: Vec<_> = by
        .into_iter()
        .flat_map(|(by, keys)| keys.iter().map(move |key| (by, key)))
        .map(|(by, KeyView { key, hits })| [format!("the {by} only"), hits.to_string(), escape_line(key)])
        .collect();
    if !rows.is_empty() {
        text.push_str(&table(["DENIED BY", "HITS", "KEY"], &rows));
    }
    text
}

/// A part of a whole in percent, with two decimals.
#[allow(clippy::float_arithmetic)] // Shown to people.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2}%", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_states_both_limits_the_outcomes_and_the_keys() {
        let json = serde_json::json!({
            "domain": "edge", "rule": "api_key", "limit": "10 per second, fixed_window",
            "candidate": "10 per second, token_bucket", "since_ms": 0,
            "hits": {"admitted": 90, "rule_only": 0, "candidate_only": 9, "denied": 1},
            "keys": {"rule_only": [], "candidate_only": [{"key": "api_key=a\u{1b}", "hits": 9}]},
            "instances": [{"id": "a", "hits": {"admitted": 90, "rule_only": 0, "candidate_only": 9, "denied": 1}}],
        });
        let text = text(&serde_json::from_value(json).expect("a response"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "edge.api_key, compared since 1970-01-01 00:00:00 UTC by 1 instances");
        assert_eq!(lines[6], "denied by the candidate only  9     9.00%");
        assert_eq!(lines[9], "the candidate only  9     api_key=a\\u{1b}");
    }
}
