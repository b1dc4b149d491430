//! How long a caller waits.

use std::time::Duration;

use hyper::{HeaderMap, http::Extensions};
use tonic::metadata::MetadataMap;

use crate::limiter::Patience;

/// The header that says so.
pub(super) const HEADER: &str = "grpc-timeout";

/// What a decision may take of the time that its caller waits, in percent: the rest is for the way there and back.
const FOR_DECISION: u32 = 80;

/// In the extensions of a call: that there is no time to ask the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hurried;

/// How long the store may take for a call.
pub(super) fn of(metadata: &MetadataMap, extensions: &Extensions) -> Patience {
    match extensions.get::<Hurried>() {
        Some(Hurried) => Patience::Hurried,
        None => Patience::Until(told(metadata.as_ref()).map(|timeout| part(timeout, FOR_DECISION))),
    }
}

/// How long the caller says that it waits.
pub(super) fn told(headers: &HeaderMap) -> Option<Duration> {
    headers.get(HEADER).and_then(|header| timeout(header.as_bytes()))
}

/// A part of it.
pub(super) fn part(timeout: Duration, percent: u32) -> Duration {
    timeout.saturating_mul(percent).checked_div(100).unwrap_or_default()
}

/// What the header says: a number of at most 8 digits and its unit. One that can't be read says nothing.
pub(super) fn timeout(header: &[u8]) -> Option<Duration> {
    let (unit, digits) = header.split_last()?;
    let is_number = !digits.is_empty() && digits.len() <= 8 && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number.saturating_mul(3_600))),
        b'M' => Some(Duration::from_secs(number.saturating_mul(60))),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn patience(timeout: &'static str, extensions: &Extensions) -> Patience {
        let headers =
            HeaderMap::from_iter([(HEADER.parse().expect("a name"), HeaderValue::from_static(timeout))]);
        of(&MetadataMap::from_headers(headers), extensions)
    }

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
            let patience = patience(header, &Extensions::new());
            assert_eq!(patience, Patience::Until(Some(Duration::from_micros(micros))), "{header}");
        }
    }

    #[test]
    fn where_there_is_no_time_the_store_has_none() {
        let mut extensions = Extensions::new();
        extensions.insert(Hurried);
        assert_eq!(patience("20m", &extensions), Patience::Hurried);
    }

    #[test]
    fn a_header_that_makes_no_sense_says_nothing() {
        for header in ["", "m", "20", "20ms", "-1m", "+1m", "1.5S", "123456789m", "20x", "?m"] {
            assert_eq!(patience(header, &Extensions::new()), Patience::UNKNOWN, "{header}");
        }
    }
}
