//! `tollgate recommend`.

use serde::Deserialize;
use tollgate_limiter::demand::{Recommendation, RecommendedLimit};

use super::{
    CommandOutput,
    api::{ApiClient, stated},
    error::ClientError,
    text::{escape_line, table, utc},
};
use crate::settings::RuleQuery;

#[derive(Debug, Deserialize)]
struct Recommendations {
    instances: u32,
    recommendations: Vec<Recommendation>,
}

/// Shows recommended limits.
pub(super) fn show(api: &ApiClient, query: &RuleQuery) -> Result<CommandOutput, ClientError> {
    let query = stated([("domain", query.domain.as_deref()), ("rule", query.rule.as_deref())]);
    let json = api.get("recommendations", &query)?;
    let found: Recommendations = api.read(&json)?;
    let text = match found.recommendations.is_empty() {
        true => "no rule was observed for a whole window yet\n".to_owned(),
        false => {
            let texts =
                found.recommendations.iter().map(|found_of_rule| text(found_of_rule, found.instances));
            texts.collect::<Vec<_>>().join("\n")
        }
    };
    Ok(CommandOutput { text, json })
}

#[allow(clippy::float_arithmetic)] // Shown to people.
fn text(found: &Recommendation, instances: u32) -> String {
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
    let row = |what: &str, limit: &RecommendedLimit| {
        let range = match limit.high {
            Some(high) => format!("{} to {high}", limit.low),
            None => "too few keys".to_owned(),
        };
        [format!("{} of {what}", percent(limit.part)), limit.limit.to_string(), range]
    };
    let hits = found.by_hits.iter().map(|limit| row("hits", limit));
    let keys = found.by_keys.iter().map(|limit| row("keys", limit));
    head + &table(["DENIES", "LIMIT", "95% CONFIDENCE"], &hits.chain(keys).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = text(&found, 3);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "edge.api_key: 100 per 60 s now, which denies 1.23% of hits and 50% of keys");
        assert_eq!(lines[3], "0.1% of hits  900    850 to 950");
        assert_eq!(lines[4], "5% of keys    300    too few keys");
    }
}
