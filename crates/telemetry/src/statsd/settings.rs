//! Settings of the StatsD exporter.

use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, time::Duration};

use clap::{ArgAction, Args};
use tollgate_flags::duration;

use super::lines::{Rewrite, StatsdFormat};

/// Shortest interval: every export reads all metrics.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of all tags with their separators, so that a datagram has room for the name too.
const MAX_TAG_BYTES: usize = 512;

/// Prefix of a server that understands the lines of the Datadog agent.
const DOGSTATSD: &str = "dogstatsd+";

/// Destination and format of exported metrics.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "StatsD (disabled without --statsd)")]
pub struct StatsdSettings {
    /// StatsD server that metrics are exported to: udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH (datagrams). Tags are part
    /// of the name, as in NAME.__KEY=VALUE:1|c; with dogstatsd+ before the URL, lines are NAME:1|c|#KEY:VALUE.
    #[arg(id = "statsd", long, value_name = "URL")]
    pub server: Option<StatsdServer>,
    /// Time between two exports, at least 100ms.
    #[arg(id = "statsd-interval", long, value_name = "DURATION", default_value = "10s", value_parser = interval)]
    pub interval: Duration,
    /// Tags of every metric.
    #[arg(id = "statsd-tags", long, value_name = "KEY:VALUE,…", value_parser = tags)]
    pub tags: Option<Tags>,
    /// Rewrites of metric names, with tags extracted from the name, one per line or one per repeated flag. The first
    /// rewrite whose regular expression matches applies; $1 is the text of its first group. Only for dogstatsd.
    #[arg(id = "statsd-rewrite", long, value_name = "PATTERN NAME [TAG:VALUE,…]", value_parser = rewrites)]
    #[arg(action = ArgAction::Append)]
    pub rewrites: Vec<Rewrites>,
}

/// A StatsD server, and the format of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdServer {
    /// Address.
    pub target: Target,
    /// Format of a line.
    pub format: StatsdFormat,
}

/// Distinct keys with their values, sorted.
pub type Tags = Vec<(String, String)>;

/// Renamed metrics with additional tags, in the value of one flag.
pub type Rewrites = Vec<Rewrite>;

/// A StatsD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `HOST:PORT`, by UDP.
    Udp(String),
    /// `HOST:PORT`, by TCP.
    Tcp(String),
    /// A unix datagram socket.
    Unix(PathBuf),
}

const EXPECTED: &str = "expected udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH";

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text.split_once("://").ok_or(EXPECTED)? {
            ("udp", server) => host_and_port(server).map(Self::Udp),
            ("tcp", server) => host_and_port(server).map(Self::Tcp),
            ("unix", path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            _ => Err(EXPECTED),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(server) => write!(f, "udp://{server}"),
            Self::Tcp(server) => write!(f, "tcp://{server}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Checks the form only. The host is resolved at each use, so it need not exist yet.
fn host_and_port(server: &str) -> Result<String, &'static str> {
    let (host, port) = server.rsplit_once(':').ok_or(EXPECTED)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    let is_name = !host.is_empty() && !host.contains([':', '/', '@', '[', ']', '?', '#', ' ']);
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+');
    if (is_bracketed || is_name) && is_port { Ok(server.to_owned()) } else { Err(EXPECTED) }
}

impl StatsdSettings {
    /// Checks what concerns several flags.
    ///
    /// # Errors
    /// The reason against the rewrites.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_plain = self.server.as_ref().is_some_and(|server| server.format == StatsdFormat::Plain);
        let has_rewrites = self.rewrites.iter().flatten().next().is_some();
        if is_plain && has_rewrites { Err("requires a dogstatsd+ URL in --statsd") } else { Ok(()) }
    }
}

impl FromStr for StatsdServer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (url, format) = match text.strip_prefix(DOGSTATSD) {
            Some(url) => (url, StatsdFormat::Dogstatsd),
            None => (text, StatsdFormat::Plain),
        };
        Ok(Self { target: url.parse()?, format })
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < MIN_INTERVAL { Err("expected at least 100ms".to_owned()) } else { Ok(interval) }
}

/// Parses tags in the syntax of EXTRA_TAGS; the last tag of a key applies.
fn tags(text: &str) -> Result<Tags, String> {
    let tag = |text: &str| match text.trim().split_once(':') {
        Some((key, value)) if is_key(key) && !value.contains(char::is_control) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("expected KEY:VALUE,… with keys of letters, digits, _, -, . and /".to_owned()),
    };
    if text.len() > MAX_TAG_BYTES {
        return Err(format!("expected at most {MAX_TAG_BYTES} bytes, since each line has all tags"));
    }
    let mut tags = text.split(',').map(tag).collect::<Result<BTreeMap<_, _>, _>>()?;
    // envoyproxy/ratelimit drops tags without a value too.
    tags.retain(|_, value| !value.is_empty());
    Ok(tags.into_iter().collect())
}

fn is_key(text: &str) -> bool {
    let may = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/');
    !text.is_empty() && text.chars().all(may)
}

fn rewrites(text: &str) -> Result<Rewrites, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host_with_a_port_or_a_path() {
        for good in [
            "udp://localhost:8125",
            "tcp://[::1]:9125",
            "udp://10.0.0.1:1",
            "unix:///var/run/datadog/dsd.socket",
        ] {
            assert_eq!(good.parse::<Target>().map(|target| target.to_string()).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "localhost:8125",
            "http://localhost:8125",
            "udp://localhost",
            "udp://:8125",
            "udp://localhost:0",
            "udp://localhost:65536",
            "tcp://::1:8125",
            "tcp://[]:8125",
            "udp://user@host:8125",
            "udp://host/x:8125",
            "udp://host:+1",
            "unix://relative",
            "unix://",
        ] {
            assert_eq!(bad.parse::<Target>(), Err(EXPECTED), "{bad}");
        }
    }

    #[test]
    fn a_prefix_selects_the_format_of_lines() {
        let of = |text: &str| {
            text.parse::<StatsdServer>().map(|server| (server.target.to_string(), server.format))
        };
        assert_eq!(of("udp://a:1"), Ok(("udp://a:1".to_owned(), StatsdFormat::Plain)));
        assert_eq!(of("dogstatsd+unix:///s"), Ok(("unix:///s".to_owned(), StatsdFormat::Dogstatsd)));
        assert_eq!(of("dogstatsd+"), Err(EXPECTED));
    }

    #[test]
    fn tags_are_keys_and_values() {
        let of = tags;
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(of("env:prod, a-b:c:d"), Ok(vec![tag("a-b", "c:d"), tag("env", "prod")]));
        assert_eq!(of("a:b,a:c"), Ok(vec![tag("a", "c")]));
        let long = |length: usize| format!("a:{}", "b".repeat(length));
        assert!(tags(&long(MAX_TAG_BYTES - 2)).is_ok());
        assert!(tags(&long(MAX_TAG_BYTES - 1)).is_err_and(|error| error.contains("at most 512 bytes")));
        assert_eq!(of("a:,b.c:d"), Ok(vec![tag("b.c", "d")]));
        for bad in ["", "a", ":b", "a:b,", "a=b:c", "a|b:c", "a:b\nc:1|c", "a b:c"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_has_a_rewrite_a_line() {
        assert_eq!(rewrites("\n(a) b$1\n\n c d e:f\n").map(|all| all.len()), Ok(2));
        assert!(rewrites("a b\nc").is_err_and(|error| error.contains("PATTERN NAME")));
    }
}
