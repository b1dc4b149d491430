//! How single values are written: durations and booleans as Go writes them, addresses, ratios.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    num::NonZeroU64,
    time::Duration,
};

use tracing::level_filters::LevelFilter;

/// Units of a duration, in nanoseconds; a unit that begins like another one goes first.
const UNITS: [(&str, u128); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const DURATION: &str = "expected a duration such as 10ms, 1.5s or 1h30m";

/// Reads a duration as Go writes it: numbers with units, `1h30m`, or a bare `0`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(DURATION.to_owned());
    }
    let mut nanos: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = duration_part(rest).ok_or(DURATION)?;
        nanos = nanos.checked_add(part).ok_or(DURATION)?;
        rest = after;
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| "expected less than 584 years".to_owned())
}

/// One number with its unit, in nanoseconds, and what follows.
fn duration_part(text: &str) -> Option<(u128, &str)> {
    let number_ends = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at_checked(number_ends)?;
    let (unit, rest) = UNITS.iter().find_map(|(name, unit)| Some((*unit, rest.strip_prefix(name)?)))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut nanos = digits(whole)?.checked_mul(unit)?;
    let mut digit_unit = unit;
    for digit in fraction.chars() {
        digit_unit = digit_unit.checked_div(10)?;
        nanos = nanos.checked_add(u128::from(digit.to_digit(10)?).checked_mul(digit_unit)?)?;
    }
    Some((nanos, rest))
}

fn digits(text: &str) -> Option<u128> {
    if text.is_empty() { Some(0) } else { text.parse::<u64>().ok().map(u128::from) }
}

/// Reads a duration that is not zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Reads a boolean in the forms that Go knows.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Reads `ADDRESS:PORT`; a host's name stands for its first address.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    const EXPECTED: &str = "expected ADDRESS:PORT, such as 0.0.0.0:8081 or [::]:8081";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let mut found = text.to_socket_addrs().map_err(|_| EXPECTED)?;
    found.next().ok_or_else(|| EXPECTED.to_owned())
}

/// Reads a number from 0 to 1.
pub(super) fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// Reads a count that is not zero.
pub(super) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse::<NonZeroU64>().ok().and_then(|count| usize::try_from(count.get()).ok());
    count.ok_or_else(|| "expected a whole number above zero".to_owned())
}

/// Reads a log level; the reference's names for levels that we have not stand for the nearest one.
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

/// A descriptor from the command line: its keys and values, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorWords(pub Vec<(String, String)>);

/// Reads a descriptor, its entries joined by commas.
pub(super) fn descriptor(text: &str) -> Result<DescriptorWords, String> {
    let entry = |entry: &str| match entry.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("expected KEY=VALUE in place of `{entry}`")),
    };
    text.split(',').map(entry).collect::<Result<_, _>>().map(DescriptorWords)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1h30m", 5_400_000_000_000),
            ("24h", 86_400_000_000_000),
            ("150µs", 150_000),
            ("150us", 150_000),
            ("7ns", 7),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "10", "ms", ".s", "1.2.3s", "-1s", "10ms ", "1d", "99999999999999999999h", "9999999h"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(positive_duration("0s").is_err());
    }

    #[test]
    fn booleans_read_as_in_go() {
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
