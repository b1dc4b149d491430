//! The reference's StatsD: one sink by TCP that is on unless it is switched off, one for Datadog's agent by UDP, and what
//! both have.

use super::addresses;
use crate::settings::{
    environment::{Environment, Found, Setting},
    error::Problem,
    parsers::boolean,
};

const HOST: &str = "STATSD_HOST";
const PORT: &str = "STATSD_PORT";

/// By TCP; true there without being set.
const PLAIN: &str = "USE_STATSD";

/// By UDP, with tags.
const DOG: &str = "USE_DOG_STATSD";

/// Names of rewrites, whose parts are in variables that begin with [`REWRITE`] and end with one of [`PARTS`].
const REWRITES: &str = "USE_DOG_STATSD_MOGRIFIERS";
const REWRITE: &str = "DOG_STATSD_MOGRIFIER_";
const PARTS: [&str; 3] = ["_PATTERN", "_NAME", "_TAGS"];

/// Wins over all others.
const DISABLED: &str = "DISABLE_STATS";

/// Which of its sinks the reference would send to, if one was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    None,
    Plain,
    Dog,
}

/// Notes what is wrong with the switches.
pub(super) fn review(environment: &Environment, found: &mut Found, given: impl Fn(&str) -> bool) {
    for name in [DISABLED, PLAIN, DOG] {
        if let Some(Err(reason)) = environment.get(name).map(boolean) {
            found.problems.push(Problem::new(name, reason));
        }
    }
    let is_off = sink(environment) == Sink::None && !given("statsd");
    if is_off && environment.get("EXTRA_TAGS").is_some() {
        found.notices.push("EXTRA_TAGS has no effect: counts are not sent by StatsD".to_owned());
    }
    let runs_there =
        ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY"].iter().any(|name| environment.get(name).is_some());
    if is_off && runs_there && says_nothing(environment) {
        found.notices.push(format!(
            "{PLAIN} is not set: counts are not sent to localhost:8125 by StatsD; set it to true or false"
        ));
    }
}

/// Whether nobody says where counts go, which is the local host there.
fn says_nothing(environment: &Environment) -> bool {
    let is_scraped = environment.get("USE_PROMETHEUS").map(boolean) == Some(Ok(true));
    !is_scraped && [DISABLED, PLAIN, DOG].iter().all(|name| environment.get(name).is_none())
}

/// The flags that are set.
pub(super) fn settings(
    environment: &Environment,
    given: impl Fn(&str) -> bool,
    problems: &mut Vec<Problem>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut set = |flag, variable: &str, value: String| {
        if !given(flag) {
            settings.push(Setting { flag, variable: variable.to_owned(), value });
        }
    };
    let sink = sink(environment);
    let scheme = match sink {
        Sink::None => None,
        Sink::Plain => Some("tcp"),
        Sink::Dog => Some("udp"),
    };
    if let Some(scheme) = scheme {
        let [host, port] =
            [(HOST, "localhost"), (PORT, "8125")].map(|(name, usual)| environment.get(name).unwrap_or(usual));
        let server = addresses::joined(host, port);
        set("statsd", &format!("{HOST} with {PORT}"), format!("{scheme}://{server}"));
    }
    if sink == Sink::Dog {
        set("statsd-format", DOG, "dogstatsd".to_owned());
        let names = environment.get(REWRITES).into_iter().flat_map(|names| names.split(','));
        for name in names.map(str::trim).filter(|name| !name.is_empty()) {
            match rewrite(environment, name) {
                Ok(value) => set("statsd-rewrite", &format!("{REWRITE}{name}"), value),
                Err(problem) => problems.push(problem),
            }
        }
    }
    settings
}

/// Whoever names a server, or says that there is one, means it; nobody who says nothing does, although the reference then
/// sends to the local host.
fn sink(environment: &Environment) -> Sink {
    let said = |name| environment.get(name).and_then(|value| boolean(value).ok());
    match (said(DISABLED), said(DOG), said(PLAIN)) {
        (Some(true), ..) => Sink::None,
        (_, Some(true), _) => Sink::Dog,
        (.., Some(true)) => Sink::Plain,
        (.., None) if [HOST, PORT].iter().any(|name| environment.get(name).is_some()) => Sink::Plain,
        _ => Sink::None,
    }
}

/// A rewrite as its flag has it.
fn rewrite(environment: &Environment, name: &str) -> Result<String, Problem> {
    let [pattern, new, tags] = PARTS.map(|part| {
        let variable = format!("{REWRITE}{name}{part}");
        let value = environment.get(&variable).map(str::to_owned);
        (variable, value)
    });
    let needed = |(variable, value): (String, Option<String>)| {
        value.ok_or_else(|| Problem::new(variable, format!("is not set, but {REWRITES} names {name}")))
    };
    // As an expression may have it within a word.
    let pattern = needed(pattern)?.replace(' ', r"\x20");
    let (new, tags) = (needed(new)?, tags.1.unwrap_or_default().replace(", ", ","));
    Ok(format!("{pattern} {new} {tags}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::new(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    /// The flags that variables set.
    fn flags(variables: &[(&str, &str)]) -> Vec<String> {
        let mut problems = Vec::new();
        let settings = settings(&environment(variables), |_| false, &mut problems);
        let flags = settings.into_iter().map(|Setting { flag, value, .. }| format!("{flag}={value}"));
        flags.chain(problems.iter().map(ToString::to_string)).collect()
    }

    #[test]
    fn counts_are_sent_where_somebody_said_so() {
        let nothing: [&str; 0] = [];
        for (variables, expected) in [
            (&[][..], &nothing[..]),
            (&[("USE_STATSD", "true")], &["statsd=tcp://localhost:8125"]),
            (&[("STATSD_HOST", "agent")], &["statsd=tcp://agent:8125"]),
            (&[("STATSD_PORT", "9125")], &["statsd=tcp://localhost:9125"]),
            (&[("STATSD_HOST", "::1"), ("USE_PROMETHEUS", "true")], &["statsd=tcp://[::1]:8125"]),
            (&[("STATSD_HOST", "agent"), ("USE_STATSD", "false")], &[]),
            (&[("STATSD_HOST", "agent"), ("USE_STATSD", "true"), ("DISABLE_STATS", "true")], &[]),
            (&[("USE_DOG_STATSD", "true"), ("DISABLE_STATS", "1")], &[]),
            (
                &[("USE_STATSD", "false"), ("USE_DOG_STATSD", "true"), ("STATSD_HOST", "agent")],
                &["statsd=udp://agent:8125", "statsd-format=dogstatsd"],
            ),
            (
                &[("USE_STATSD", "true"), ("USE_DOG_STATSD", "true")],
                &["statsd=udp://localhost:8125", "statsd-format=dogstatsd"],
            ),
        ] {
            assert_eq!(flags(variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn mogrifiers_are_rewrites() {
        let dog = [("USE_DOG_STATSD", "true"), ("USE_DOG_STATSD_MOGRIFIERS", "A, B")];
        let all = [
            ("DOG_STATSD_MOGRIFIER_A_PATTERN", r"^a b\.(.*)$"),
            ("DOG_STATSD_MOGRIFIER_A_NAME", "new.$1"),
            ("DOG_STATSD_MOGRIFIER_A_TAGS", "k:$1, l:m"),
            ("DOG_STATSD_MOGRIFIER_B_PATTERN", "b"),
            ("DOG_STATSD_MOGRIFIER_B_NAME", "c"),
        ];
        let expected =
            [r"statsd-rewrite=^a\x20b\.(.*)$ new.$1 k:$1,l:m".to_owned(), "statsd-rewrite=b c ".to_owned()];
        assert_eq!(flags(&[&dog[..], &all].concat())[2..], expected);
        let missing = flags(&[&dog[..], &all[..4]].concat());
        assert_eq!(
            missing.last().map(String::as_str),
            Some("DOG_STATSD_MOGRIFIER_B_NAME: is not set, but USE_DOG_STATSD_MOGRIFIERS names B")
        );
        // Where lines have no tags there are none.
        assert_eq!(
            flags(&[&[("USE_STATSD", "true")], &dog[1..], &all].concat()),
            ["statsd=tcp://localhost:8125"]
        );
    }

    #[test]
    fn what_is_wrong_or_has_no_effect_is_told() {
        for (variables, given, problem, notice) in [
            (("USE_STATSD", "maybe"), false, Some("USE_STATSD: expected true or false"), None),
            (("DISABLE_STATS", "no"), false, Some("DISABLE_STATS: expected true or false"), None),
            (
                ("EXTRA_TAGS", "a:b"),
                false,
                None,
                Some("EXTRA_TAGS has no effect: counts are not sent by StatsD"),
            ),
            (("EXTRA_TAGS", "a:b"), true, None, None),
            (
                ("RUNTIME_ROOT", "/data"),
                false,
                None,
                Some(
                    "USE_STATSD is not set: counts are not sent to localhost:8125 by StatsD; set it to true or false",
                ),
            ),
            (("RUNTIME_ROOT", "/data"), true, None, None),
            (("STATSD_HOST", "agent"), false, None, None),
        ] {
            let mut found = Found::default();
            review(&environment(&[variables]), &mut found, |_| given);
            let problems: Vec<_> = found.problems.iter().map(ToString::to_string).collect();
            assert_eq!(problems, Vec::from_iter(problem), "{variables:?}");
            assert_eq!(found.notices, Vec::from_iter(notice), "{variables:?}");
        }
    }
}
