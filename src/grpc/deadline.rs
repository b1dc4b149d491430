//! Deadline of a call: the `grpc-timeout` header, and the share of it that the store may use.

use std::time::Duration;

use hyper::{HeaderMap, header::HeaderName, http::Extensions};
use tollgate_limiter::Deadline;
use tonic::metadata::MetadataMap;

/// Header with the caller's timeout.
pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Share of the caller's timeout that a decision may take, in percent. The rest is for the network and the queues.
const DECISION_PERCENT: u32 = 65;

/// Marker in a call's extensions: no time is left to call the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct SkipStore;

/// Time that a call has waited before it is decided, in its extensions if it is not negligible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited(pub(super) Duration);

/// Deadline of the store for a call.
pub(super) fn store_deadline(metadata: &MetadataMap, extensions: &Extensions) -> Deadline {
    if extensions.get::<SkipStore>().is_some() {
        return Deadline::Exceeded;
    }
    let waited = extensions.get().map_or(Duration::ZERO, |Waited(waited)| *waited);
    let share = |timeout| percent_of(timeout, DECISION_PERCENT).saturating_sub(waited);
    Deadline::At(grpc_timeout(metadata.as_ref()).map(share))
}

/// Timeout that the caller sent, if it is readable.
pub(super) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    headers.get(GRPC_TIMEOUT).and_then(|header| parse_timeout(header.as_bytes()))
}

pub(super) fn percent_of(timeout: Duration, percent: u32) -> Duration {
    timeout.saturating_mul(percent).checked_div(100).unwrap_or_default()
}

/// Parses a `grpc-timeout`: at most 8 digits and a unit. A malformed one counts as absent.
pub(super) fn parse_timeout(header: &[u8]) -> Option<Duration> {
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

    fn deadline(timeout: &'static str, extensions: &Extensions) -> Deadline {
        let headers = HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(timeout))]);
        store_deadline(&MetadataMap::from_headers(headers), extensions)
    }

    #[test]
    fn a_decision_may_take_part_of_the_timeout() {
        for (header, micros) in [
            ("20m", 13_000),
            ("1S", 650_000),
            ("1000u", 650),
            ("20000n", 13),
            ("2M", 78_000_000),
            ("99999999H", 233_999_997_660_000_000),
            ("0m", 0),
        ] {
            let deadline = deadline(header, &Extensions::new());
            assert_eq!(deadline, Deadline::At(Some(Duration::from_micros(micros))), "{header}");
        }
    }

    #[test]
    fn a_marked_call_has_no_time_for_the_store() {
        let mut extensions = Extensions::new();
        extensions.insert(SkipStore);
        assert_eq!(deadline("20m", &extensions), Deadline::Exceeded);
    }

    #[test]
    fn the_time_that_a_call_has_waited_is_not_left_for_the_store() {
        let mut extensions = Extensions::new();
        extensions.insert(Waited(Duration::from_millis(5)));
        assert_eq!(deadline("20m", &extensions), Deadline::At(Some(Duration::from_millis(8))));
        assert_eq!(deadline("5m", &extensions), Deadline::At(Some(Duration::ZERO)));
        assert_eq!(deadline("", &extensions), Deadline::UNKNOWN);
    }

    #[test]
    fn a_malformed_header_counts_as_absent() {
        for header in ["", "m", "20", "20ms", "-1m", "+1m", "1.5S", "123456789m", "20x", "?m"] {
            assert_eq!(deadline(header, &Extensions::new()), Deadline::UNKNOWN, "{header}");
        }
    }
}
