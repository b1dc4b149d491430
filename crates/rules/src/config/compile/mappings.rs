//! Keys of a descriptor that are mappings: `weight` and `metadata`.

use serde_json::{Map, Number, Value};

use super::{Compiler, reporter::Reporter};
use crate::config::problem::Path;
use crate::config::raw::{RawDescriptor, Stated};
use crate::config::yaml::{Content, Meaning, Node, describe, excerpt};
use crate::{Limit, Weights};

/// Value that stands for all others.
const OTHERS: &str = "*";

/// Reads the weights of a descriptor with a limit; `None` if they are invalid.
pub(super) fn weights(
    compiler: &mut Compiler<'_>,
    raw: &RawDescriptor,
    limit: Option<&Limit>,
    path: &Path<'_>,
) -> Option<Option<Box<Weights>>> {
    let Some(Stated { at, value: node }) = raw.weight.valid()? else { return Some(None) };
    let path = path.key("weight");
    let Content::Map(pairs) = &node.content else { return None };
    if pairs.len() > Weights::MAX_VALUES {
        let message = format!("has too many values; expected at most {}", Weights::MAX_VALUES);
        return compiler.reporter.refuse(*at, &path, message);
    }
    let weights: Vec<_> = pairs.iter().map(|(key, value)| weight(compiler, key, value, &path)).collect();
    let weights: Vec<(Box<str>, u32)> = weights.into_iter().collect::<Option<_>>()?;
    match limit {
        // An invalid limit was reported.
        None => None,
        Some(Limit::Quota { policy, .. }) if !policy.algorithm().holds_permits() => {
            let others =
                weights.iter().find(|(value, _)| **value == *OTHERS).map_or(1, |(_, weight)| *weight);
            let by_value = weights.into_iter().filter(|(value, _)| **value != *OTHERS);
            Some(Some(Box::new(Weights::new(by_value, others))))
        }
        Some(_) => {
            let message = "multiplies hits of a window or a bucket; expected a limit that counts hits";
            compiler.reporter.refuse(*at, &path, message)
        }
    }
}

/// The weight of a value.
fn weight(compiler: &mut Compiler<'_>, key: &Node, value: &Node, path: &Path<'_>) -> Option<(Box<str>, u32)> {
    let Content::Scalar(name) = &key.content else {
        return compiler.reporter.refuse(
            key.at,
            path,
            format!("expected a text as the value, found {}", describe(key)),
        );
    };
    let number = match &value.content {
        Content::Scalar(scalar) => match scalar.meaning() {
            Meaning::Integer(number) => u32::try_from(number).ok().filter(|number| *number <= Weights::MAX),
            _ => None,
        },
        Content::List(_) | Content::Map(_) => None,
    };
    if number.is_none() {
        let expected =
            format!("expected a whole number from 0 to {}, found {}", Weights::MAX, describe(value));
        compiler.reporter.error(value.at, &path.key(&excerpt(&name.text)), expected);
    }
    Some(((*name.text).into(), number?))
}

/// Converts a mapping to JSON; `None` if a part of it has no JSON representation.
pub(super) fn metadata_of(
    reporter: &mut Reporter<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Option<Map<String, Value>> {
    if let Value::Object(map) = json(reporter, node, path)? { Some(map) } else { None }
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
        return reporter.refuse(key.at, path, message);
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
