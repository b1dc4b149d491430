//! Values of flags: parsers of durations and booleans in the syntax of Go, of addresses, ratios, headers and files.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

pub mod environment;
mod pairs;
mod problem;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::{ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use http::{HeaderName, HeaderValue, Uri, uri::Authority};
use tollgate_core::duration::parse_go;
use tracing::level_filters::LevelFilter;

pub use self::pairs::{PairText, pairs};
pub use self::problem::{Problem, Secret};

/// Parses a duration in the syntax of Go.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_go(text).map_err(|error| error.to_string())
}

/// Parses a duration above zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a boolean in the forms of Go's `strconv.ParseBool`.
///
/// # Errors
/// The expected values.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// A flag whose value may be left out if it is a boolean.
pub fn switch(arg: clap::Arg) -> clap::Arg {
    match arg.get_value_names() {
        Some([name]) if name == "BOOL" => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        _ => arg,
    }
}

/// Parses `ADDRESS:PORT`; a host name resolves to its first address.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| "expected ADDRESS:PORT, such as 0.0.0.0:8081 or [::]:8081".to_owned())
}

/// Parses a number from 0 to 1, or a percentage with its sign.
#[allow(clippy::float_arithmetic)] // Once, at the start.
pub fn ratio(text: &str) -> Result<f64, String> {
    let is_percentage = text.ends_with('%');
    let ratio = percentage(text).map(|number| if is_percentage { number / 100.0 } else { number });
    ratio
        .ok()
        .filter(|ratio| *ratio <= 1.0)
        .ok_or_else(|| "expected a number from 0 to 1, such as 0.2 or 20%".to_owned())
}

/// Parses a percentage from 0 to 100, with or without its sign.
pub fn percentage(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err("expected a percentage from 0 to 100, such as 20 or 20%".to_owned()),
    }
}

/// Parses a whole number.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    whole(text, 0..=max::<T>())
}

/// Parses a whole number above zero.
pub fn count<T: FromStr>(text: &str) -> Result<T, String> {
    whole(text, 1..=max::<T>())
}

fn max<T>() -> u64 {
    match size_of::<T>() {
        2 => u16::MAX.into(),
        4 => u32::MAX.into(),
        _ => u64::MAX,
    }
}

/// Parses a whole number in a range.
pub fn whole<T: FromStr>(text: &str, range: RangeInclusive<u64>) -> Result<T, String> {
    let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
    number.and_then(|_| text.parse().ok()).ok_or_else(|| match (*range.start(), *range.end()) {
        (0, u64::MAX) => "expected a whole number".to_owned(),
        (1, u64::MAX) => "expected a whole number above zero".to_owned(),
        (min, max) => format!("expected a whole number from {min} to {max}"),
    })
}

/// Headers whose values are marked as sensitive.
pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// Parses headers with encoded values, which may be secret.
pub fn headers(text: &str, decoded: impl Fn(&str) -> Option<String>) -> Result<Headers, Secret> {
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(&decoded(value.trim())?).ok()?;
        value.set_sensitive(true);
        let is_ours = name.as_str().starts_with("grpc-") || name.as_str().ends_with("-bin");
        (!is_ours).then_some((name, value))
    };
    let headers: Option<_> = text.split(',').map(header).collect();
    headers.ok_or(Secret("expected NAME=VALUE,… with names and values of headers"))
}

/// Expectation of the URL of a server, of which the path does not matter.
pub const SERVER_URL: &str = "expected http://HOST:PORT or https://HOST:PORT, without a user";

/// Parses the URL of an HTTP server without a user, as it is logged.
pub fn web_url(text: &str, expected: &str) -> Result<Uri, String> {
    let is_valid = |uri: &Uri| {
        let host = uri.authority().map(Authority::as_str).unwrap_or_default();
        let (name, port) = (uri.host().unwrap_or_default(), host.rsplit_once(':').map(|(_, port)| port));
        let has_port =
            port.is_none_or(|port| port.ends_with(']') || port.parse::<u16>().is_ok_and(|port| port > 0));
        matches!(uri.scheme_str(), Some("http" | "https"))
            && !name.is_empty()
            && !host.contains('@')
            && has_port
    };
    text.parse().ok().filter(is_valid).ok_or_else(|| expected.to_owned())
}

/// Parses a log level. Levels that only envoyproxy/ratelimit has map to the nearest one.
pub fn level(text: &str) -> Result<LevelFilter, String> {
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
pub fn header_name(text: &str) -> Result<String, String> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected the name of an HTTP header".to_owned()),
    }
}

/// Descriptor on the command line: its keys and values, in order.
pub type DescriptorArgument = Vec<(String, String)>;

/// Parses a descriptor in the syntax of [`pairs()`].
pub fn descriptor(text: &str) -> Result<DescriptorArgument, String> {
    Ok(pairs(text)?.into_iter().map(|pair| (pair.key, pair.value)).collect())
}

/// PEM files of a certificate chain and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Key of the certificate.
    pub key: PathBuf,
}

/// Parses the files of a certificate and its key. Messages omit the value: it may be the content
/// of a key by mistake.
pub fn key_pair(text: &str) -> Result<KeyPair, Secret> {
    let [certificate, key] =
        files(text).ok_or(Secret("expected CERT,KEY, the files of a certificate and its key"))?;
    Ok(KeyPair { certificate, key })
}

/// Splits a list of files, unless it has another number of them or an empty one.
pub fn files<const COUNT: usize>(text: &str) -> Option<[PathBuf; COUNT]> {
    let files: Vec<PathBuf> = text.split(',').map(|file| file.trim().into()).collect();
    let files: [PathBuf; COUNT] = files.try_into().ok()?;
    files.iter().all(|file| !file.as_os_str().is_empty()).then_some(files)
}

/// A parser of the values that have these names.
pub fn named<T: Copy + Send + Sync + 'static, const COUNT: usize>(
    all: [T; COUNT],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let value = move |text: String| all.into_iter().find(|value| name(*value) == text).ok_or("unknown");
    PossibleValuesParser::new(all.map(name)).try_map(value)
}

/// Parses one name of a list.
pub fn name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("has an empty name; expected NAME,…".to_owned()),
        name => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_a_key() {
        let pair = key_pair("c.pem, k.pem").expect("a pair");
        assert_eq!(pair, KeyPair { certificate: "c.pem".into(), key: "k.pem".into() });
        for bad in ["", "c", "c,", ",k", "c,k,a"] {
            assert!(key_pair(bad).is_err_and(|error| error.0.starts_with("expected CERT,KEY")), "{bad}");
        }
    }

    #[test]
    fn a_comma_separates_pairs_where_a_key_follows() {
        let pairs = |text: &str| descriptor(text);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(pairs("k=a*,l=,m=x=y"), Ok(vec![pair("k", "a*"), pair("l", ""), pair("m", "x=y")]));
        assert_eq!(pairs("xff=1.2.3.4, ::1,k = v"), Ok(vec![pair("xff", "1.2.3.4, ::1"), pair("k", "v")]));
        for text in ["", "k", "k=v,", "k=v,,l=w", "k=v,=w", ",k=v", "a,b=c"] {
            assert!(pairs(text).is_err(), "{text}");
        }
    }

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
        assert_eq!(["0.8", "80%", "80 %", "1"].map(ratio), [Ok(0.8), Ok(0.8), Ok(0.8), Ok(1.0)]);
        assert!(["-0.1", "1.1", "101%", "NaN", "x", "%", ""].into_iter().all(|text| ratio(text).is_err()));
        assert_eq!(["20", "20%", "0.5%", "100"].map(percentage), [Ok(20.0), Ok(20.0), Ok(0.5), Ok(100.0)]);
        assert!(["20%%", "101", "-1", "20 percent"].into_iter().all(|text| percentage(text).is_err()));
    }

    #[test]
    fn whole_numbers_state_their_range() {
        assert_eq!(count::<u32>("7"), Ok(7));
        assert_eq!(count::<u32>("0"), Err("expected a whole number from 1 to 4294967295".to_owned()));
        assert_eq!(count::<std::num::NonZeroUsize>("0").unwrap_err(), "expected a whole number above zero");
        assert_eq!(whole::<u16>("0", 1..=100).unwrap_err(), "expected a whole number from 1 to 100");
        assert_eq!(number::<u16>("0"), Ok(0));
        assert!(number::<u16>("65536").unwrap_err().ends_with("from 0 to 65535"));
    }

    #[test]
    fn a_url_has_a_host_and_no_user_and_a_possible_port() {
        for good in ["http://a", "https://[::1]:1/x", "http://[::1]", "http://a.b:65535/?c"] {
            assert!(web_url(good, "").is_ok(), "{good}");
        }
        for bad in [
            "",
            "a:1",
            "ftp://a",
            "http://",
            "http://:1",
            "http://a:0",
            "http://a:65536",
            "http://a:b",
            "http://u:p@a",
        ] {
            assert_eq!(web_url(bad, "expected").unwrap_err(), "expected", "{bad}");
        }
    }
}
