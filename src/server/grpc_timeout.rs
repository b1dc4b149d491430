//! How long a caller says that it waits.

use std::time::Duration;

/// The header that says so.
pub(super) const HEADER: &str = "grpc-timeout";

/// What a decision may take of the time that its caller waits, in percent: the rest is for the way there and back.
const PERCENT: u32 = 80;

/// How long a decision may take for a caller that sends this header: a number of at most 8 digits and its unit. One
/// that can't be read says nothing.
pub(super) fn patience(header: &[u8]) -> Option<Duration> {
    let (unit, digits) = header.split_last()?;
    let is_number = !digits.is_empty() && digits.len() <= 8 && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    let timeout = match unit {
        b'H' => Duration::from_secs(number.saturating_mul(3_600)),
        b'M' => Duration::from_secs(number.saturating_mul(60)),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    };
    timeout.saturating_mul(PERCENT).checked_div(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_fifths_of_what_a_caller_waits_are_for_the_decision() {
        for (header, micros) in [
            ("20m", 16_000),
            ("1S", 800_000),
            ("1000u", 800),
            ("5000n", 4),
            ("2M", 96_000_000),
            ("99999999H", 287_999_997_120_000_000),
            ("0m", 0),
        ] {
            assert_eq!(patience(header.as_bytes()), Some(Duration::from_micros(micros)), "{header}");
        }
    }

    #[test]
    fn a_header_that_makes_no_sense_says_nothing() {
        for header in ["", "m", "20", "20ms", "-1m", "+1m", "1.5S", "123456789m", "20x", "²m"] {
            assert_eq!(patience(header.as_bytes()), None, "{header}");
        }
    }
}
