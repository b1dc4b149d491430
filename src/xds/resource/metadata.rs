//! Converts metadata from a protobuf struct to a YAML node.

use prost_types::{Struct, Value, value::Kind};
use tollgate_rules::config::yaml::{Content, Node, Position, Scalar};

/// Largest magnitude up to which every whole number has an exact `f64`.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

pub(super) fn node(stated: Struct) -> Node {
    let fields = stated.fields.into_iter();
    of(Content::Map(fields.map(|(key, value)| (scalar(Scalar::quoted(&key)), of_value(value))).collect()))
}

fn of_value(value: Value) -> Node {
    match value.kind {
        None | Some(Kind::NullValue(_)) => scalar(Scalar::plain("null")),
        Some(Kind::BoolValue(value)) => scalar(Scalar::plain(if value { "true" } else { "false" })),
        Some(Kind::NumberValue(number)) => scalar(Scalar::plain(&text_of(number))),
        Some(Kind::StringValue(text)) => scalar(Scalar::quoted(&text)),
        Some(Kind::StructValue(stated)) => node(stated),
        Some(Kind::ListValue(list)) => of(Content::List(list.values.into_iter().map(of_value).collect())),
    }
}

/// A number in YAML. Protobuf has one numeric type, so 3 arrives as 3.0 and is written as 3.
fn text_of(number: f64) -> String {
    match number {
        number if number.is_nan() => ".nan".to_owned(),
        number if number == f64::INFINITY => ".inf".to_owned(),
        number if number == f64::NEG_INFINITY => "-.inf".to_owned(),
        number if number.fract() == 0.0 && number.abs() <= MAX_EXACT_INTEGER => format!("{number:.0}"),
        number => format!("{number:?}"),
    }
}

fn scalar(scalar: Scalar) -> Node {
    of(Content::Scalar(scalar))
}

const fn of(content: Content) -> Node {
    Node { at: Position::WHOLE, content }
}
