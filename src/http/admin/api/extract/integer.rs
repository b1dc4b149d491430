//! Non-negative integers.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// The largest integer that a 64-bit float represents exactly together with all smaller ones.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A non-negative integer in either notation: JSON does not distinguish 3.0 from 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http::admin::api) struct Integer(pub(in crate::http::admin::api) u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntegerVisitor;
        impl Visitor<'_> for IntegerVisitor {
            type Value = Integer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a non-negative integer")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Integer, E> {
                match number.fract() == 0.0 && (0.0..=MAX_EXACT_FLOAT).contains(&number) {
                    true => Ok(Integer(number as u64)),
                    false => Err(E::custom("expected a non-negative integer")),
                }
            }
        }
        deserializer.deserialize_any(IntegerVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_may_have_a_zero_fraction_and_nothing_else_is_accepted() {
        let read = |text: &str| serde_json::from_str::<Integer>(text).ok().map(|integer| integer.0);
        assert_eq!((read("3"), read("3.0"), read("3e2"), read("0")), (Some(3), Some(3), Some(300), Some(0)));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        for text in ["3.5", "-1", "-1.0", "1e300", "\"3\"", "null", "true", "18446744073709551616"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
