//! Metadata: conversion from YAML to JSON.

use serde_json::{Map, Number, Value};

use super::parameters::Reporter;
use crate::config::{
    problem::Path,
    reader::describe,
    scalar::Meaning,
    yaml::{Content, Node},
};

/// Converts a mapping to JSON; `None` if a part of it has no JSON representation.
pub(super) fn metadata_of(
    reporter: &mut Reporter<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Option<Map<String, Value>> {
    match json(reporter, node, path)? {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

fn json(reporter: &mut Reporter<'_>, node: &Node, path: &Path<'_>) -> Option<Value> {
    match &node.content {
        Content::Scalar(scalar) => {
            let value = match scalar.meaning() {
                Meaning::Null => Some(Value::Null),
                Meaning::Bool(value) => Some(Value::Bool(value)),
                Meaning::Integer(number) => Number::from_i128(number).map(Value::Number),
                Meaning::Float(number) => Number::from_f64(number).map(Value::Number),
                Meaning::Text => Some(Value::String((*scalar.text).to_owned())),
            };
            if value.is_none() {
                let message = format!("{} has no JSON representation", describe(node));
                reporter.error(node.at, path, message);
            }
            value
        }
        Content::List(items) => {
            let items = items.iter().enumerate();
            // All elements are checked, so that each problem is reported.
            let items: Vec<_> = items.map(|(at, item)| json(reporter, item, &path.item(at))).collect();
            items.into_iter().collect::<Option<_>>().map(Value::Array)
        }
        Content::Map(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| pair(reporter, key, value, path)).collect();
            pairs.into_iter().collect::<Option<_>>().map(Value::Object)
        }
    }
}

fn pair(reporter: &mut Reporter<'_>, key: &Node, value: &Node, path: &Path<'_>) -> Option<(String, Value)> {
    let Content::Scalar(name) = &key.content else {
        let message = format!("expected a text as the key, found {}", describe(key));
        reporter.error(key.at, path, message);
        return None;
    };
    // Keys in JSON are texts; other keys are formatted as in envoyproxy/ratelimit.
    let name = match name.meaning() {
        Meaning::Text => (*name.text).to_owned(),
        Meaning::Null => "<nil>".to_owned(),
        Meaning::Bool(value) => value.to_string(),
        Meaning::Integer(number) => number.to_string(),
        Meaning::Float(number) => number.to_string(),
    };
    let value = json(reporter, value, &path.key(&name))?;
    Some((name, value))
}
