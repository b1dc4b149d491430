//! Flags of the StatsD exporter.

use std::{collections::BTreeMap, time::Duration};

use clap::{ArgAction, Args, ValueEnum};

use super::{error::Problem, parsers::duration};
use crate::statsd::{Rewrite, StatsdFormat, StatsdSettings, Target};

/// Shortest interval: every export reads all metrics.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of all tags with their separators, so that a datagram has room for the name too.
const MAX_TAG_BYTES: usize = 512;

/// Format of a line, as the flag states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Plain,
    Dogstatsd,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "StatsD (disabled without --statsd)")]
pub(super) struct StatsdFlags {
    /// StatsD server that metrics are exported to: udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH (datagrams).
    #[arg(long, value_name = "URL")]
    statsd: Option<Target>,
    /// Format of a line: plain (tags are part of the name, as in NAME.__KEY=VALUE:1|c) or dogstatsd
    /// (NAME:1|c|#KEY:VALUE).
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Plain, hide_possible_values = true)]
    statsd_format: Format,
    /// Time between two exports, at least 100ms.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = interval)]
    statsd_interval: Duration,
    /// Tags of every metric.
    #[arg(long, value_name = "KEY:VALUE,…", value_parser = tags)]
    statsd_tags: Option<Tags>,
    /// Rewrites of metric names, with tags extracted from the name, one per line or one per repeated flag. The first
    /// rewrite whose regular expression matches applies; $1 is the text of its first group. Only for dogstatsd.
    #[arg(long, value_name = "PATTERN NAME [TAG:VALUE,…]", value_parser = rewrites, action = ArgAction::Append)]
    statsd_rewrite: Vec<Rewrites>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tags(Vec<(String, String)>);

#[derive(Clone, Debug)]
struct Rewrites(Vec<Rewrite>);

impl StatsdFlags {
    pub(super) fn resolve(self) -> Result<Option<StatsdSettings>, Problem> {
        let Some(target) = self.statsd else { return Ok(None) };
        let rewrites: Vec<_> =
            self.statsd_rewrite.into_iter().flat_map(|Rewrites(rewrites)| rewrites).collect();
        if self.statsd_format == Format::Plain && !rewrites.is_empty() {
            return Err(Problem::new("--statsd-rewrite", "requires --statsd-format dogstatsd"));
        }
        Ok(Some(StatsdSettings {
            target,
            interval: self.statsd_interval,
            tags: self.statsd_tags.map(|Tags(tags)| tags).unwrap_or_default(),
            format: match self.statsd_format {
                Format::Plain => StatsdFormat::Plain,
                Format::Dogstatsd => StatsdFormat::Dogstatsd,
            },
            rewrites,
        }))
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
    Ok(Tags(tags.into_iter().collect()))
}

fn is_key(text: &str) -> bool {
    let may = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/');
    !text.is_empty() && text.chars().all(may)
}

fn rewrites(text: &str) -> Result<Rewrites, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.parse().map_err(|error| format!("{error}"))).collect::<Result<_, _>>().map(Rewrites)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::settings::{Command, SettingsError, parse};

    fn read(words: &[&str], variables: &[(&str, &str)]) -> Result<Option<StatsdSettings>, SettingsError> {
        let words = ["tollgate"].iter().chain(words).map(OsString::from);
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        match parse(words, variables)? {
            Command::Serve(settings) => Ok(settings.statsd),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_sent_by_default_and_a_flag_wins_over_what_the_reference_has() {
        assert!(read(&[], &[]).expect("settings").is_none());
        let of_reference = [
            ("USE_DOG_STATSD", "true"),
            ("STATSD_HOST", "agent"),
            ("EXTRA_TAGS", "a:b"),
            ("STATS_FLUSH_INTERVAL", "3s"),
        ];
        let there = read(&[], &of_reference).expect("settings").expect("a server");
        assert_eq!(there.target, Target::Udp("agent:8125".to_owned()));
        assert_eq!((there.format, there.interval), (StatsdFormat::Dogstatsd, Duration::from_secs(3)));
        assert_eq!(there.tags, [("a".to_owned(), "b".to_owned())]);
        let words = ["--statsd", "unix:///s", "--statsd-format", "plain", "--statsd-tags", "c:d"];
        let settings = read(&words, &of_reference).expect("settings").expect("a server");
        assert_eq!(settings.target, Target::Unix("/s".into()));
        assert_eq!((settings.format, settings.interval), (StatsdFormat::Plain, Duration::from_secs(3)));
        assert_eq!(settings.tags, [("c".to_owned(), "d".to_owned())]);
        let settings = read(&words, &[("DISABLE_STATS", "true")]).expect("settings");
        assert!(settings.is_some(), "the flag is stronger");
    }

    #[test]
    fn an_error_names_the_flag_or_variable_that_it_is_about() {
        let mogrifier = |pattern, name| {
            [
                ("USE_DOG_STATSD", "true"),
                ("USE_DOG_STATSD_MOGRIFIERS", "X"),
                ("DOG_STATSD_MOGRIFIER_X_PATTERN", pattern),
                ("DOG_STATSD_MOGRIFIER_X_NAME", name),
            ]
        };
        for (words, variables, expected) in [
            (
                &["--statsd", "agent:8125"][..],
                &[][..],
                "--statsd: `agent:8125` is invalid; expected udp://HOST:PORT",
            ),
            (
                &["--statsd", "udp://a:1", "--statsd-rewrite", "a b"],
                &[],
                "--statsd-rewrite: requires --statsd-format dogstatsd",
            ),
            (
                &[],
                &[("STATSD_PORT", "none")],
                "STATSD_HOST with STATSD_PORT: `tcp://localhost:none` is invalid; expected udp://HOST:PORT",
            ),
            (&[], &[("EXTRA_TAGS", "a")], "EXTRA_TAGS: `a` is invalid; expected KEY:VALUE"),
            (
                &[],
                &[("STATS_FLUSH_INTERVAL", "10")],
                "STATS_FLUSH_INTERVAL: `10` is invalid; expected a duration",
            ),
            (
                &[],
                &[("STATS_FLUSH_INTERVAL", "0")],
                "STATS_FLUSH_INTERVAL: `0` is invalid; expected at least 100ms",
            ),
            (
                &["--statsd-interval", "1ns"],
                &[],
                "--statsd-interval: `1ns` is invalid; expected at least 100ms",
            ),
            (
                &["--statsd-interval", "99ms"],
                &[],
                "--statsd-interval: `99ms` is invalid; expected at least 100ms",
            ),
            (&[], &mogrifier("(", "a"), "DOG_STATSD_MOGRIFIER_X: `( a `: the pattern is invalid"),
            (&[], &mogrifier("(a)", "$2"), "DOG_STATSD_MOGRIFIER_X: `(a) $2 `: the pattern has no group $2"),
        ] {
            let error = read(words, variables).expect_err("wrong").to_string();
            assert!(error.contains(expected), "{error}");
        }
        let lines = [("TOLLGATE_STATSD_REWRITE", "a b\nc d e:f"), ("USE_DOG_STATSD", "true")];
        assert_eq!(read(&[], &lines).expect("settings").expect("a server").rewrites.len(), 2);
        let twice = ["--statsd-rewrite", "a b", "--statsd-rewrite", "c d"];
        assert_eq!(read(&twice, &lines).expect("settings").expect("a server").rewrites.len(), 2);
    }

    #[test]
    fn tags_are_keys_and_values() {
        let of = |text| tags(text).map(|Tags(tags)| tags);
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
        assert_eq!(rewrites("\n(a) b$1\n\n c d e:f\n").map(|Rewrites(all)| all.len()), Ok(2));
        assert!(rewrites("a b\nc").is_err_and(|error| error.contains("PATTERN NAME")));
    }
}
