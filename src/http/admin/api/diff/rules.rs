//! Differences between rules.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tollgate_core::algorithm::Charging;
use tollgate_limiter::explain::limit_text;
use tollgate_rules::{Domain, Rule, Rules, Weights};

use super::Change;

/// Maximum number of values with a changed weight that are shown.
const MAX_SHOWN_VALUES: usize = 8;

/// The difference of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleChange {
    pub(crate) domain: String,
    pub(crate) rule: String,
    pub(crate) change: Change,
    /// Text of its limit before.
    pub(crate) before: Option<String>,
    /// Text of its limit after.
    pub(crate) after: Option<String>,
}

/// Texts of limits, by domain and path.
type LimitTexts<'r> = BTreeMap<(String, String), LimitText<'r>>;

/// Text of a limit, and the weights that it may not list all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LimitText<'r> {
    shown: String,
    weights: Vec<&'r Weights>,
}

/// The rules whose limits differ, sorted by domain and path.
pub(super) fn changes(from: &Rules, to: &Rules) -> Vec<RuleChange> {
    let (mut before, mut after) = (limit_texts(from), limit_texts(to));
    let mut names: Vec<(String, String)> = before.keys().chain(after.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    let changes = names.into_iter().filter_map(|name| {
        let (before, after) = (before.remove(&name), after.remove(&name));
        let change = Change::of(before.is_some(), after.is_some());
        let (domain, rule) = name;
        if before == after {
            return None;
        }
        let hidden = before.as_ref().zip(after.as_ref()).and_then(hidden_change);
        let [before, mut after] = [before, after].map(|limit| limit.map(|limit| limit.shown));
        if let (Some(after), Some(hidden)) = (&mut after, hidden) {
            after.push_str(&hidden);
        }
        Some(RuleChange { domain, rule, change, before, after })
    });
    changes.collect()
}

/// The values whose weights differ, where the texts list none of them.
fn hidden_change((before, after): (&LimitText<'_>, &LimitText<'_>)) -> Option<String> {
    if before.shown != after.shown {
        return None;
    }
    let weights = |limit: &LimitText<'_>| -> BTreeSet<(String, u32)> {
        let all = limit.weights.iter().flat_map(|weights| weights.sorted());
        all.map(|(value, weight)| (value.to_owned(), weight)).collect()
    };
    let (before, after) = (weights(before), weights(after));
    let changed: BTreeSet<_> = before.symmetric_difference(&after).map(|(value, _)| value).collect();
    let shown: Vec<_> = changed.iter().take(MAX_SHOWN_VALUES).map(|value| format!("{value:?}")).collect();
    let others = if changed.len() > shown.len() { " and others" } else { "" };
    (!shown.is_empty()).then(|| format!(", changed weights of {}{others}", shown.join(", ")))
}

fn limit_texts(rules: &Rules) -> LimitTexts<'_> {
    let mut texts = LimitTexts::new();
    for domain in rules.domains() {
        for rule in domain.root.rules() {
            let name = (domain.name.to_string(), rule.path());
            let limit = texts.entry(name).or_default();
            if !limit.shown.is_empty() {
                // Two nodes of the tree may have the same path.
                limit.shown.push_str("; ");
            }
            limit.shown.push_str(&text(domain, rule));
            limit.weights.extend(rule.weights.as_deref());
        }
    }
    texts
}

/// The limit of a rule with all its options, as text.
fn text(domain: &Domain, rule: &Rule) -> String {
    let mut text = limit_text(domain, rule);
    let mut add = |part: &str, value: &str| {
        text.push_str(", ");
        text.push_str(part);
        text.push_str(value);
    };
    if domain.charging == Charging::AllOrNone {
        add("atomic", "");
    }
    if let Some(policy) = rule.on_store_error {
        add("on_store_error ", policy.name());
    }
    if let Some(limit) = rule.degraded_limit {
        add("degraded_limit ", &limit.to_string());
    }
    if !rule.name.is_empty() {
        add("name ", &rule.name);
    }
    if !rule.replaces.is_empty() {
        add("replaces ", &rule.replaces.join(" and "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_rules::config::{Options, load_files};

    fn loaded(yaml: &str) -> Rules {
        let file = ("rules.yaml".to_owned(), yaml.as_bytes().to_vec());
        load_files([file], Options::default()).expect("valid").rules
    }

    #[test]
    fn rules_are_compared_by_the_texts_of_their_limits() {
        let rule = |key: &str, limit: &str| format!("- {{key: {key}, rate_limit: {{{limit}}}}}\n");
        let same = rule("same", "unit: second, requests_per_unit: 1");
        let bucket = "unit: minute, requests_per_unit: 5, algorithm: token_bucket, burst: ";
        let before = format!(
            "domain: d\ndescriptors:\n{same}{}{}",
            rule("deleted", "unlimited: true"),
            rule("plan", &format!("{bucket}5"))
        );
        let after = format!(
            "domain: d\ndescriptors:\n{same}{}{}{}",
            rule("new", "unit: hour, requests_per_unit: 2, retry_after_spread: 1m"),
            rule("plan", &format!("{bucket}9")),
            rule("window", "unit: hour, requests_per_unit: 2, overdraft: true, carry: true")
        );
        let found: Vec<_> = changes(&loaded(&before), &loaded(&after))
            .into_iter()
            .map(|found| (found.rule, found.change, found.before, found.after))
            .collect();
        let text = |text: &str| Some(text.to_owned());
        let bucket = "5 per minute, token_bucket";
        assert_eq!(
            found,
            [
                ("deleted".to_owned(), Change::Removed, text("unlimited"), None),
                (
                    "new".to_owned(),
                    Change::Added,
                    None,
                    text("2 per hour, fixed_window, retry_after_spread 60s")
                ),
                ("plan".to_owned(), Change::Changed, text(bucket), text(&format!("{bucket}, burst 9"))),
                (
                    "window".to_owned(),
                    Change::Added,
                    None,
                    text("2 per hour, fixed_window, overdraft, carry, max_debt 2")
                ),
            ]
        );
    }

    #[test]
    fn changed_weights_are_a_change_however_many_there_are() {
        let rule = |weights: &str| {
            let limit = "rate_limit: {unit: day, requests_per_unit: 5}";
            loaded(&format!("domain: d\ndescriptors:\n- {{key: model, weight: {{{weights}}}, {limit}}}\n"))
        };
        let texts = |from: &str, to: &str| {
            let found = changes(&rule(from), &rule(to)).pop();
            found.map(|change| (change.before.unwrap_or_default(), change.after.unwrap_or_default()))
        };
        let text = |weights: &str| format!("5 per day, fixed_window, weights ({weights})");
        assert_eq!(texts("large: 3, '*': 1", "large: 3, '*': 1"), None);
        let expected = (text("large 3, others 1"), text("large 30, small 0, others 2"));
        assert_eq!(texts("large: 3, '*': 1", "small: 0, large: 30, '*': 2"), Some(expected));
        let many = |weight: usize| {
            (0..9).map(|value| format!("v{value}: {}, ", value.min(weight))).collect::<String>() + "'*': 1"
        };
        let same = text("9 values, others 1");
        let changed = format!("{same}, changed weights of \"v6\", \"v7\", \"v8\"");
        assert_eq!(texts(&many(5), &many(6)), Some((same, changed)));
    }
}
