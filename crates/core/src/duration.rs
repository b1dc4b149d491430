//! Durations in text, such as `1h30m`: in the syntax of Go (settings) and in that of rules.
//!
//! Both are sums of decimal numbers with a unit. Go has no days and weeks, allows `0` without a unit and a number that
//! begins or ends with its point, and truncates below a nanosecond. Rules must be exact to the microsecond or to the
//! second.

use std::time::Duration;

const SECOND_NANOS: u128 = 1_000_000_000;

/// Resolution of durations in rules.
const MICRO_NANOS: u128 = 1_000;

/// Upper bound of durations in rules: a larger sum saturates, and each key reports its own range.
const MAX_RULE_NANOS: u128 = u32::MAX as u128 * SECOND_NANOS;

/// Error of a text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Text that is not a duration in the syntax of Go.
    #[error("expected a duration such as 10ms, 1.5s or 1h30m")]
    Go,
    /// Duration longer than 2⁶⁴ nanoseconds.
    #[error("expected less than 584 years")]
    Range,
    /// Text that is not a duration in whole seconds.
    #[error("expected whole seconds, e.g. 30s, 5m, 1h, 2d, 1w or 1h30m")]
    Seconds,
    /// Text that is not a duration in whole microseconds.
    #[error("expected e.g. 200us, 50ms, 1.5s, 5m or 1h30m")]
    Micros,
}

/// Parses a duration in the syntax of Go: numbers with units, `1h30m`, or a bare `0`.
///
/// # Errors
/// [`DurationError::Go`] and [`DurationError::Range`].
pub fn parse_go(text: &str) -> Result<Duration, DurationError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let nanos = sum(text, go_term).ok_or(DurationError::Go)?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| DurationError::Range)
}

/// Parses a duration of rules in whole seconds, such as `90s` or `1h30m`. Saturates at 2³² - 1 seconds.
///
/// # Errors
/// [`DurationError::Seconds`].
pub fn parse_seconds(text: &str) -> Result<u32, DurationError> {
    let nanos = rule_nanos(text).filter(|nanos| nanos.is_multiple_of(SECOND_NANOS));
    let seconds = nanos.and_then(|nanos| u32::try_from(nanos / SECOND_NANOS).ok());
    seconds.ok_or(DurationError::Seconds)
}

/// Parses a duration of rules in whole microseconds, such as `50ms`, `1.5s` or `1h30m`. Saturates at 2³² - 1 seconds.
///
/// # Errors
/// [`DurationError::Micros`].
pub fn parse_micros(text: &str) -> Result<Duration, DurationError> {
    let nanos = rule_nanos(text).and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos).ok_or(DurationError::Micros)
}

fn rule_nanos(text: &str) -> Option<u128> {
    sum(text, rule_term).map(|nanos| nanos.min(MAX_RULE_NANOS))
}

/// Splits a text into numbers with units and returns the sum of `term` over them, in nanoseconds.
fn sum(text: &str, term: impl Fn(&str, &str) -> Option<u128>) -> Option<u128> {
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at_checked(rest.find(|character| !is_number(character))?)?;
        let (unit, next) = after.split_at_checked(after.find(is_number).unwrap_or(after.len()))?;
        total = total.saturating_add(term(number, unit)?);
        rest = next;
    }
    (!text.is_empty()).then_some(total)
}

/// Nanoseconds of a number with a unit, in the syntax of Go.
fn go_term(number: &str, unit: &str) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let has_go_unit = !matches!(unit, "d" | "w");
    let has_digits = !(whole.is_empty() && fraction.is_empty());
    (has_go_unit && has_digits).then_some(())?;
    product(whole, fraction, unit_nanos(unit)?).map(|(nanos, _)| nanos)
}

/// Nanoseconds of a number with a unit, in the syntax of rules.
fn rule_term(number: &str, unit: &str) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let has_digits = !whole.is_empty() && !fraction.is_empty();
    (unit != "ns" && has_digits).then_some(())?;
    let (nanos, is_exact) = product(whole, fraction.trim_end_matches('0'), unit_nanos(unit)?)?;
    Some(nanos).filter(|nanos| is_exact && nanos.is_multiple_of(MICRO_NANOS))
}

fn unit_nanos(unit: &str) -> Option<u128> {
    let nanos = match unit {
        "ns" => 1,
        // The micro sign, and the Greek letter mu, which looks the same.
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND_NANOS,
        "m" => 60 * SECOND_NANOS,
        "h" => 3_600 * SECOND_NANOS,
        "d" => 86_400 * SECOND_NANOS,
        "w" => 604_800 * SECOND_NANOS,
        _ => return None,
    };
    Some(nanos)
}

/// A decimal number of units in nanoseconds, rounded down, and whether the fraction is exact.
fn product(whole: &str, fraction: &str, unit: u128) -> Option<(u128, bool)> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().unwrap_or(u64::MAX) };
    let mut total = unit.saturating_mul(u128::from(whole));
    let (mut digit_unit, mut is_exact) = (unit, true);
    for digit in fraction.chars() {
        is_exact &= digit_unit.is_multiple_of(10);
        digit_unit /= 10;
        total = total.saturating_add(digit_unit.saturating_mul(u128::from(digit.to_digit(10)?)));
    }
    Some((total, is_exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_sums_of_numbers_with_a_unit() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1.9ns", 1),
            ("1h30m", 5_400_000_000_000),
            ("24h", 86_400_000_000_000),
            ("150µs", 150_000),
            ("150us", 150_000),
            ("7ns", 7),
        ] {
            assert_eq!(parse_go(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_rejected_as_go_durations() {
        for text in
            ["", "10", "ms", ".s", "1.2.3s", "-1s", "10ms ", "1d", "1w", "99999999999999999999h", "9999999h"]
        {
            assert!(parse_go(text).is_err(), "{text}");
        }
    }

    #[test]
    fn windows_are_sums_of_numbers_with_a_unit() {
        for (text, length) in [
            ("1s", 1),
            ("30s", 30),
            ("5m", 300),
            ("1h", 3_600),
            ("2d", 172_800),
            ("1w", 604_800),
            ("1h30m", 5_400),
            ("1.5h", 5_400),
            ("1000ms", 1),
            ("0s", 0),
            ("99999999999s", u32::MAX),
            ("99999999999999999999999w", u32::MAX),
        ] {
            assert_eq!(parse_seconds(text), Ok(length), "{text}");
        }
    }

    #[test]
    fn fractions_of_a_second_are_rejected_in_windows() {
        for text in ["", "30", "s", "1.5s", "500ms", "-1s", "1 s", "5min", "1M", "1h30", "é", "."] {
            assert_eq!(parse_seconds(text), Err(DurationError::Seconds), "{text}");
        }
    }

    #[test]
    fn durations_of_rules_are_exact_to_the_microsecond() {
        for (text, micros) in [
            ("50ms", 50_000),
            ("200us", 200),
            ("200µs", 200),
            ("200μs", 200),
            ("1.5s", 1_500_000),
            ("0.000001s", 1),
            ("2.500ms", 2_500),
            ("1.0us", 1),
            ("1m0.25s", 60_250_000),
        ] {
            assert_eq!(parse_micros(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "5", "1.5us", "0.0000001s", "1.s", ".5s", "1.2.3s", "1ns", "50 ms", "50MS", "-5ms"] {
            assert_eq!(parse_micros(text), Err(DurationError::Micros), "{text}");
        }
    }
}
