//! Parsers of single values: durations and booleans in the syntax of Go, addresses, ratios.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    num::NonZeroU64,
    time::Duration,
};

use tollgate_core::duration::parse_go;
use tracing::level_filters::LevelFilter;

/// Parses a duration in the syntax of Go.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_go(text).map_err(|error| error.to_string())
}

/// Parses a duration above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a boolean in the forms of Go's `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Parses `ADDRESS:PORT`; a host name resolves to its first address.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    const EXPECTED: &str = "expected ADDRESS:PORT, such as 0.0.0.0:8081 or [::]:8081";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let mut found = text.to_socket_addrs().map_err(|_| EXPECTED)?;
    found.next().ok_or_else(|| EXPECTED.to_owned())
}

/// Parses a number from 0 to 1.
pub(super) fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// Parses a whole number above zero.
pub(super) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse::<NonZeroU64>().ok().and_then(|count| usize::try_from(count.get()).ok());
    count.ok_or_else(|| "expected a whole number above zero".to_owned())
}

/// Parses a log level. Levels that only envoyproxy/ratelimit has map to the nearest one.
pub(super) fn level(text: &str) -> Result<LevelFilter, String> {
    match text.to_ascii_lowercase().as_str() {
        "off" => Ok(LevelFilter::OFF),
        "error" | "fatal" | "panic" => Ok(LevelFilter::ERROR),
        "warn" | "warning" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err("expected off, error, warn, info, debug or trace".to_owned()),
    }
}

/// Reads the name of an HTTP header.
pub(super) fn header_name(text: &str) -> Result<String, String> {
    match http::HeaderName::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected the name of an HTTP header".to_owned()),
    }
}

/// Descriptor on the command line: its keys and values, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorArgument(pub Vec<(String, String)>);

/// Parses a descriptor whose entries are separated by commas.
pub(super) fn descriptor(text: &str) -> Result<DescriptorArgument, String> {
    let entry = |entry: &str| match entry.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{entry}` is not an entry; expected KEY=VALUE")),
    };
    text.split(',').map(entry).collect::<Result<_, _>>().map(DescriptorArgument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_positive_duration_is_not_zero() {
        assert_eq!(positive_duration("1ms"), Ok(Duration::from_millis(1)));
        assert!(positive_duration("0s").is_err() && positive_duration("1d").is_err());
    }

    #[test]
    fn booleans_have_the_forms_of_go() {
        assert_eq!(["1", "t", "T", "true", "TRUE", "True"].map(boolean), [const { Ok(true) }; 6]);
        assert_eq!(["0", "f", "F", "false", "FALSE", "False"].map(boolean), [const { Ok(false) }; 6]);
        assert!(["", "yes", "on", "tRUE"].into_iter().all(|text| boolean(text).is_err()));
    }

    #[test]
    fn addresses_need_a_port() {
        assert_eq!(address("[::]:1").map(|address| address.port()), Ok(1));
        assert!(address("localhost:8081").is_ok_and(|address| address.ip().is_loopback()));
        assert!(["", "1.2.3.4", "1.2.3.4:70000"].into_iter().all(|text| address(text).is_err()));
    }

    #[test]
    fn ratios_lie_between_zero_and_one() {
        assert_eq!(ratio("0.8"), Ok(0.8));
        assert!(["-0.1", "1.1", "NaN", "x"].into_iter().all(|text| ratio(text).is_err()));
    }
}
