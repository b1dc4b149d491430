//! Compilation of `weight`.

use super::descriptor::Compiler;
use crate::{
    Limit, Weights,
    config::{
        problem::Path,
        raw::{Field, RawDescriptor, Stated},
        reader::{describe, excerpt},
        scalar::Meaning,
        yaml::{Content, Node},
    },
};

/// Value that stands for all others.
const OTHERS: &str = "*";

/// Reads the weights of a descriptor with a limit; `None` if they are invalid.
pub(super) fn read(
    compiler: &mut Compiler<'_>,
    raw: &RawDescriptor,
    limit: Option<&Limit>,
    path: &Path<'_>,
) -> Option<Option<Box<Weights>>> {
    let Stated { at, value: node } = match &raw.weight {
        Field::Absent => return Some(None),
        Field::Invalid => return None,
        Field::Stated(stated) => stated,
    };
    let path = path.key("weight");
    let Content::Map(pairs) = &node.content else { return None };
    if pairs.len() > Weights::MAX_VALUES {
        let message = format!("has too many values; expected at most {}", Weights::MAX_VALUES);
        compiler.error(*at, &path, message);
        return None;
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
            compiler.error(*at, &path, message);
            None
        }
    }
}

/// The weight of a value.
fn weight(compiler: &mut Compiler<'_>, key: &Node, value: &Node, path: &Path<'_>) -> Option<(Box<str>, u32)> {
    let Content::Scalar(name) = &key.content else {
        compiler.error(key.at, path, format!("expected a text as the value, found {}", describe(key)));
        return None;
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
        compiler.error(value.at, &path.key(&excerpt(&name.text)), expected);
    }
    Some(((*name.text).into(), number?))
}
