//! Formats deltas as lines, with names that rewrites change: the mogrifiers of envoyproxy/ratelimit.

use std::{str::FromStr, time::Duration};

use regex_automata::meta::{Builder, Config, Regex};
use tollgate_metrics::{Delta, Measure};

/// Nanoseconds in a millisecond.
const NANOS_PER_MILLI: f64 = 1_000_000.0;

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsdFormat {
    /// `NAME.__KEY=VALUE:1|c`: tags are part of the name.
    Plain,
    /// `NAME:1|c|#KEY:VALUE`, the format of the Datadog agent.
    Dogstatsd,
}

/// Formatter of lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// Tags as the end of the name, in the format of envoyproxy/ratelimit.
    suffix: String,
    /// Separate tags.
    tags: Vec<(String, String)>,
    rewrites: Vec<Rewrite>,
}

impl Lines {
    pub(super) fn new(format: StatsdFormat, mut tags: Vec<(String, String)>, rewrites: Vec<Rewrite>) -> Self {
        // Separators are replaced, as in envoyproxy/ratelimit.
        tags.iter_mut().for_each(|(_, value)| *value = value.replace(['.', ':', '|'], "_"));
        tags.sort();
        let of_name = if format == StatsdFormat::Plain { std::mem::take(&mut tags) } else { Vec::new() };
        let suffix = of_name.iter().map(|(key, value)| format!(".__{key}={value}")).collect();
        Self { suffix, tags, rewrites }
    }

    /// The line for a delta, without a line feed.
    pub(super) fn of(&self, delta: &Delta) -> String {
        let rewritten = self.rewrites.iter().find_map(|rewrite| rewrite.apply(&delta.name));
        let (name, made) =
            rewritten.unwrap_or_else(|| (format!("{}{}", delta.name, self.suffix), Vec::new()));
        let made = made.into_iter().map(|(key, value)| (key, value.replace([',', '|'], "_")));
        let tags: Vec<_> = self.tags.iter().cloned().chain(made).collect();
        line(&name, delta.measure, &tags)
    }
}

fn line(name: &str, measure: Measure, tags: &[(String, String)]) -> String {
    let value = match measure {
        Measure::Count(count) => format!("{count}|c"),
        Measure::Gauge(value) => format!("{value}|g"),
        Measure::Times { time, calls: 1 } => format!("{}|ms", milliseconds(time)),
        Measure::Times { time, calls } => format!("{}|ms|@{}", milliseconds(time), rate(calls)),
    };
    let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    let separator = if tags.is_empty() { "" } else { "|#" };
    format!("{name}:{value}{separator}{}", tags.join(","))
}

#[allow(clippy::float_arithmetic)] // For display only.
fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / NANOS_PER_MILLI
}

/// The sampling rate that stands for a number of calls. Servers use its inverse, and some round that down.
#[allow(clippy::float_arithmetic)]
fn rate(calls: u64) -> f64 {
    let calls = calls as f64;
    let mut rate = calls.recip();
    while rate.recip() < calls {
        rate = rate.next_down();
    }
    rate
}

/// Memory limit of a compiled expression, and of its matching cache.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// A pattern for metric names, the new name, and the tags.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pattern: Regex,
    /// Template of the new name.
    name: String,
    /// Keys of tags, and templates of their values.
    tags: Vec<(String, String)>,
    /// The text it was parsed from.
    source: Box<str>,
}

impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Rewrite {}

impl FromStr for Rewrite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let (pattern, name, tags) = match *parts {
            [pattern, name] => (pattern, name, ""),
            [pattern, name, tags] => (pattern, name, tags),
            _ => {
                return Err(
                    "expected PATTERN NAME [TAG:VALUE,…], with \\x20 for a space in the pattern".to_owned()
                );
            }
        };
        let config =
            Config::new().nfa_size_limit(Some(MAX_REGEX_BYTES)).hybrid_cache_capacity(MAX_REGEX_BYTES);
        let pattern = Builder::new().configure(config).build(pattern);
        let pattern = pattern.map_err(|_| {
            "the pattern is invalid; expected a regular expression of at most 1 MiB".to_owned()
        })?;
        if name.contains([':', '|']) {
            return Err("expected a name without : and |".to_owned());
        }
        let tag = |text: &str| match text.split_once(':') {
            Some((key, value)) if !key.is_empty() && !key.contains('|') && !value.is_empty() => {
                Ok((key.to_owned(), template(value, &pattern)?))
            }
            _ => Err("expected tags as TAG:VALUE,…".to_owned()),
        };
        let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(tag).collect::<Result<_, _>>()?;
        let (name, source) = (template(name, &pattern)?, parts.join(" ").into());
        Ok(Self { pattern, name, tags, source })
    }
}

/// The template of a text in which `$1`, `$2`, … are the groups of a match, and `$0` is the whole match; any other `$` is
/// itself.
fn template(text: &str, pattern: &Regex) -> Result<String, String> {
    let (first, _) = text.split_once('$').unwrap_or((text, ""));
    let mut template = first.to_owned();
    for part in text.split('$').skip(1) {
        let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        match part.split_at(digits) {
            ("", _) => template.extend(["$$", part]),
            (group, rest) => {
                let groups = pattern.group_info().all_group_len();
                if group.parse().ok().is_none_or(|group: usize| group >= groups) {
                    return Err(format!("the pattern has no group ${group}; expected one that it has"));
                }
                template.extend(["${", group, "}", rest]);
            }
        }
    }
    Ok(template)
}

impl Rewrite {
    /// The new name of a metric, and its tags that are not empty. `None` if the pattern does not match, or the new name would
    /// be empty.
    pub fn apply(&self, name: &str) -> Option<(String, Vec<(String, String)>)> {
        let mut groups = self.pattern.create_captures();
        self.pattern.captures(name, &mut groups);
        if !groups.is_match() {
            return None;
        }
        let fill = |template: &String| groups.interpolate_string(name, template);
        let tags = self.tags.iter().map(|(key, value)| (key.clone(), fill(value)));
        let tags = tags.filter(|(_, value)| !value.is_empty()).collect();
        Some((fill(&self.name), tags)).filter(|(name, _)| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use tollgate_metrics::{DeltaSources, Deltas, series::KINDS};

    use super::*;

    fn lines(format: StatsdFormat, rewrites: &[&str]) -> Lines {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let rewrites = rewrites.iter().map(|text| text.parse().expect("a rewrite")).collect();
        Lines::new(format, vec![pair("zone", "eu-1"), pair("host", "a.b:c")], rewrites)
    }

    fn change(name: &str, measure: Measure) -> Delta {
        static ONE_GAUGE: DeltaSources = DeltaSources {
            series: [("", ""); KINDS],
            series_name: |_, _| String::new(),
            counters: &[],
            times: ("", Vec::new),
            gauge: ("", || 1),
        };
        let any = Deltas::new(&ONE_GAUGE).read().last().expect("the gauge");
        Delta { name: name.to_owned(), measure, ..any }
    }

    #[test]
    fn plain_lines_have_sorted_tags_after_the_name() {
        let lines = lines(StatsdFormat::Plain, &[]);
        let of = |measure| lines.of(&change("a.b", measure));
        assert_eq!(of(Measure::Count(7)), "a.b.__host=a_b_c.__zone=eu-1:7|c");
        assert_eq!(of(Measure::Gauge(0)), "a.b.__host=a_b_c.__zone=eu-1:0|g");
        let times = |calls| Measure::Times { time: Duration::from_nanos(37_500), calls };
        assert_eq!(of(times(1)), "a.b.__host=a_b_c.__zone=eu-1:0.0375|ms");
        assert_eq!(of(times(100)), "a.b.__host=a_b_c.__zone=eu-1:0.0375|ms|@0.01");
    }

    #[test]
    fn dogstatsd_lines_have_separate_tags_and_the_first_matching_rewrite_applies() {
        let rewrites = ["^x y", r"^a\.(.*)\.(\w+)$ new.$2 k:$1", "^a never"];
        let lines = lines(StatsdFormat::Dogstatsd, &rewrites);
        let of = |name| lines.of(&change(name, Measure::Count(7)));
        assert_eq!(of("a.p,q.total"), "new.total:7|c|#host:a_b_c,zone:eu-1,k:p_q");
        assert_eq!(of("b"), "b:7|c|#host:a_b_c,zone:eu-1");
        let times = Measure::Times { time: Duration::from_millis(175), calls: 4 };
        assert_eq!(lines.of(&change("t", times)), "t:175|ms|@0.25|#host:a_b_c,zone:eu-1");
    }

    #[test]
    fn a_rate_yields_the_exact_number_of_calls_however_a_server_rounds() {
        for calls in (2..5_000).chain([49 * 49, 999_983, 123_456_789]) {
            let rate: f64 = format!("{}", rate(calls)).parse().expect("a number");
            assert_eq!((rate.recip().floor() as u64, rate.recip().round() as u64), (calls, calls));
        }
    }

    fn rewrite(text: &str) -> Rewrite {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn names_and_tags_are_filled_from_groups() {
        let per_rule = rewrite(
            r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$ ratelimit.service.rate_limit.$3 domain:$1,descriptor:$2",
        );
        let (name, tags) =
            per_rule.apply("ratelimit.service.rate_limit.edge.a_b.c.total_hits").expect("matched");
        assert_eq!(name, "ratelimit.service.rate_limit.total_hits");
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(tags, [tag("domain", "edge"), tag("descriptor", "a_b.c")]);
        assert!(per_rule.apply("ratelimit.service.config_load_success").is_none());
    }

    #[test]
    fn group_zero_is_the_whole_match_and_other_dollars_are_literal() {
        let named = |text: &str, name: &str| rewrite(text).apply(name).map(|(name, _)| name);
        assert_eq!(named("b(x)?c p.$0.$1$x.$", "abcd").as_deref(), Some("p.bc.$x.$"));
        assert_eq!(named("b(x)?c $1$0", "abxcd").as_deref(), Some("xbxc"));
        assert_eq!(named("b(x)?c $1", "abcd"), None, "it has to be called something");
        assert_eq!(rewrite("b(x)?c n k:$1,l:m").apply("bc").map(|(_, tags)| tags.len()), Some(1));
    }

    #[test]
    fn an_invalid_rewrite_is_refused() {
        for (text, error) in [
            ("", "expected PATTERN NAME [TAG:VALUE,…]"),
            ("pattern", "expected PATTERN NAME [TAG:VALUE,…]"),
            ("a b c d", "expected PATTERN NAME [TAG:VALUE,…]"),
            ("( name", "the pattern is invalid"),
            ("(a{1000}){1000} name", "the pattern is invalid"),
            ("a na:me", "expected a name without"),
            ("a na|me", "expected a name without"),
            ("a name tag", "expected tags as"),
            ("a name tag:", "expected tags as"),
            ("a name :value", "expected tags as"),
            ("a name k|c:value", "expected tags as"),
            ("(a) $2", "the pattern has no group $2"),
            ("(a) name tag:$3", "the pattern has no group $3"),
        ] {
            assert!(text.parse::<Rewrite>().is_err_and(|reason| reason.starts_with(error)), "{text}");
        }
    }
}
