//! Lengths of time as `window`, `min_interval` and `lease_ttl` state them.

use std::time::Duration;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// Longer than anything that is stated: a sum that is larger counts as this, and its key says what is allowed.
const LONGEST: u64 = u32::MAX as u64 * MICROS_PER_SECOND;

/// Why a text is no length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoDuration {
    /// It is none, or no whole number of seconds where that is asked for.
    #[error("expected a length of time in whole seconds, such as 30s, 5m, 1h, 2d, 1w or 1h30m")]
    Seconds,
    /// It is none, or no whole number of microseconds.
    #[error("expected a length of time in microseconds or longer, such as 200us, 50ms, 1.5s, 5m or 1h30m")]
    Micros,
}

/// The seconds that a text such as `90s` or `1h30m` states.
pub(super) fn seconds(text: &str) -> Result<u32, NoDuration> {
    let length = micros(text).filter(|micros| micros.is_multiple_of(MICROS_PER_SECOND));
    let seconds = length.and_then(|micros| u32::try_from(micros / MICROS_PER_SECOND).ok());
    seconds.ok_or(NoDuration::Seconds)
}

/// The length that a text such as `50ms`, `1.5s` or `1h30m` states.
pub(super) fn length(text: &str) -> Result<Duration, NoDuration> {
    micros(text).map(Duration::from_micros).ok_or(NoDuration::Micros)
}

/// The sum of numbers with units that the text is.
fn micros(text: &str) -> Option<u64> {
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at_checked(rest.find(|character| !is_number(character))?)?;
        let (unit, next) = after.split_at_checked(after.find(is_number).unwrap_or(after.len()))?;
        total = total.saturating_add(product(number, unit_micros(unit)?)?).min(LONGEST);
        rest = next;
    }
    (!text.is_empty()).then_some(total)
}

fn unit_micros(unit: &str) -> Option<u64> {
    let micros = match unit {
        // The sign for micro, and the letter that looks like it.
        "us" | "µs" | "μs" => 1,
        "ms" => 1_000,
        "s" => MICROS_PER_SECOND,
        "m" => 60 * MICROS_PER_SECOND,
        "h" => 3_600 * MICROS_PER_SECOND,
        "d" => 86_400 * MICROS_PER_SECOND,
        "w" => 604_800 * MICROS_PER_SECOND,
        _ => return None,
    };
    Some(micros)
}

/// So many units of so many microseconds each, where that is a whole number.
fn product(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let mut total = unit.saturating_mul(whole.parse().unwrap_or(u64::MAX));
    let mut place = unit;
    for digit in fraction.trim_end_matches('0').chars() {
        place = Some(place / 10).filter(|_| place.is_multiple_of(10))?;
        total = total.saturating_add(place.saturating_mul(u64::from(digit.to_digit(10)?)));
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_sums_of_numbers_with_a_unit() {
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
            assert_eq!(seconds(text), Ok(length), "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_seconds_is_refused() {
        for text in ["", "30", "s", "1.5s", "500ms", "-1s", "1 s", "5min", "1M", "1h30", "é", "."] {
            assert_eq!(seconds(text), Err(NoDuration::Seconds), "{text}");
        }
    }

    #[test]
    fn finer_lengths_are_exact_to_the_microsecond() {
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
            assert_eq!(length(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "5", "1.5us", "0.0000001s", "1.s", ".5s", "1.2.3s", "1ns", "50 ms", "50MS", "-5ms"] {
            assert_eq!(length(text), Err(NoDuration::Micros), "{text}");
        }
    }
}
