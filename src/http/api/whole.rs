//! Whole numbers.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// The largest that is exact when it is written as a fraction.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number from 0, however it is written: to JSON, 3.0 is 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                match number.fract() == 0.0 && (0.0..=LARGEST_EXACT).contains(&number) {
                    true => Ok(Whole(number as u64)),
                    false => Err(E::custom("expected a whole number from 0")),
                }
            }
        }
        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_may_be_written_as_fractions_and_nothing_else_is_one() {
        let read = |text: &str| serde_json::from_str::<Whole>(text).ok().map(|whole| whole.0);
        assert_eq!((read("3"), read("3.0"), read("3e2"), read("0")), (Some(3), Some(3), Some(300), Some(0)));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        for text in ["3.5", "-1", "-1.0", "1e300", "\"3\"", "null", "true", "18446744073709551616"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
