//! A candidate in the place of its rule's limit.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{EditError, EditedLimit, Place, edited, find, limit_of, load, spans, spans::SpanContent};
use crate::{
    Candidate, Limit, Rule,
    config::{
        Options, override_rule,
        scalar::{Meaning, meaning_of},
        vocabulary::Section,
    },
};

/// Keys that state the length of a window together.
const WINDOW_KEYS: [&str; 5] = ["unit", "unit_multiplier", "window", "timezone", "anchor"];

/// Keys that belong to an algorithm.
const ALGORITHM_KEYS: [&str; 5] = ["burst", "min_interval", "overdraft", "max_debt", "carry"];

/// Makes the candidate of the rule at `path` its limit, and removes `candidate`. `overriding` is a candidate that an override
/// states in place of the rule's: the keys of its `candidate`. Slow for many files.
///
/// # Errors
/// [`EditError`]; then nothing has a new text.
pub fn promote_candidate(
    files: &BTreeMap<String, String>,
    options: Options,
    (domain, path): (&str, &str),
    overriding: Option<&Map<String, Value>>,
) -> Result<EditedLimit, EditError> {
    let before = load(files, options)?;
    let rule = find(&before, domain, path).ok_or(EditError::NoRule)?;
    let keys = match overriding {
        Some(stated) => over_rule(stated),
        None => in_file(files, rule)?,
    };
    let candidate = match overriding {
        Some(stated) => overridden(domain, rule, stated),
        None => rule.rollout.candidate.as_deref().cloned(),
    };
    let candidate = candidate.ok_or(EditError::NoCandidate)?;
    let result = edited(files, options, (&before, rule), &keys)?;
    match find(&result.rules, domain, path) {
        Some(promoted) if is_limit(promoted, &candidate) => Ok(result),
        _ => {
            let Place { file, line } = Place::of(rule);
            Err(EditError::Differs { file, line })
        }
    }
}

/// The candidate that an override sets.
fn overridden(domain: &str, rule: &Rule, stated: &Map<String, Value>) -> Option<Candidate> {
    let text = serde_json::json!({ "candidate": stated }).to_string();
    let rule = override_rule(domain, rule, &text).ok()?;
    rule.rollout.candidate.map(|candidate| *candidate)
}

/// The keys that make a candidate of an override the limit: those that it omits have the values of the rule.
fn over_rule(stated: &Map<String, Value>) -> Map<String, Value> {
    let mut keys = stated.clone();
    let mut clear = |names: &[&str], is_replaced: bool| {
        for name in names.iter().filter(|_| is_replaced) {
            keys.entry(*name).or_insert(Value::Null);
        }
    };
    clear(&WINDOW_KEYS, WINDOW_KEYS.iter().any(|key| stated.contains_key(*key)));
    clear(&ALGORITHM_KEYS, stated.contains_key("algorithm"));
    clear(&["candidate"], true);
    keys
}

/// The keys that make the candidate in a file the limit: those that it omits have the values of `defaults` in both places.
fn in_file(files: &BTreeMap<String, String>, rule: &Rule) -> Result<Map<String, Value>, EditError> {
    let place = Place::of(rule);
    let unsupported = |reason| place.unsupported(reason);
    let text = files.get(&place.file).ok_or_else(|| unsupported("the file is not part of the version"))?;
    let root = spans::parse(text).ok_or_else(|| unsupported("the file cannot be read"))?;
    let limit = limit_of(&root, rule).map_err(unsupported)?;
    let candidate = limit.value("candidate").ok_or(EditError::NoCandidate)?;
    let SpanContent::Map { pairs, .. } = &candidate.content else {
        return Err(unsupported("the candidate comes from an alias"));
    };
    let mut keys: Map<String, Value> =
        Section::Candidate.keys().map(|name| (name.to_owned(), Value::Null)).collect();
    keys.insert("candidate".to_owned(), Value::Null);
    for (key, value) in pairs {
        let (Some(key), Some(value)) = (key.text(), value.text()) else {
            return Err(unsupported("the candidate has an alias or a merge key"));
        };
        keys.insert(key.to_owned(), value_of(value));
    }
    Ok(keys)
}

/// The value of a scalar as JSON.
fn value_of(text: &str) -> Value {
    match meaning_of(text) {
        Meaning::Null => Value::Null,
        Meaning::Bool(value) => Value::Bool(value),
        Meaning::Integer(number) => i64::try_from(number).map_or_else(|_| text.into(), Value::from),
        Meaning::Float(_) | Meaning::Text => text.into(),
    }
}

/// Whether the rule's limit is what the candidate was.
fn is_limit(rule: &Rule, candidate: &Candidate) -> bool {
    let is_same = matches!(&rule.limit, Limit::Quota { quota, policy }
        if *quota == candidate.quota && *policy == candidate.policy);
    is_same && rule.overdraft == candidate.overdraft && rule.rollout.candidate.is_none()
}
