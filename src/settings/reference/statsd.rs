//! StatsD of the reference: a TCP sink, on by default, a UDP sink for the Datadog agent, and their common variables.

use super::addresses;
use crate::settings::{
    environment::{Environment, EnvironmentFlags, Setting},
    error::Problem,
    parsers::boolean,
};

const HOST: &str = "STATSD_HOST";
const PORT: &str = "STATSD_PORT";

/// Switch of the TCP sink, true by default.
const PLAIN: &str = "USE_STATSD";

/// Switch of the UDP sink, which has tags.
const DOGSTATSD: &str = "USE_DOG_STATSD";

/// Names of rewrites. Their parts are in variables with the prefix [`REWRITE`] and one of the suffixes [`PARTS`].
const REWRITES: &str = "USE_DOG_STATSD_MOGRIFIERS";
const REWRITE: &str = "DOG_STATSD_MOGRIFIER_";
const PARTS: [&str; 3] = ["_PATTERN", "_NAME", "_TAGS"];

/// Overrides all other switches.
const DISABLED: &str = "DISABLE_STATS";

/// Sink that the reference would use, if one is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    None,
    Plain,
    DogStatsd,
}

/// Reports invalid switches and variables without effect.
pub(super) fn review(environment: &Environment, found: &mut EnvironmentFlags, given: impl Fn(&str) -> bool) {
    for name in [DISABLED, PLAIN, DOGSTATSD] {
        found.problems.extend(environment.invalid_boolean(name));
    }
    let is_off = sink(environment) == Sink::None && !given("statsd");
    if is_off && environment.get("EXTRA_TAGS").is_some() {
        found.notices.push("EXTRA_TAGS has no effect: the StatsD exporter is off".to_owned());
    }
    let runs_there =
        ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY"].iter().any(|name| environment.get(name).is_some());
    if is_off && runs_there && selects_no_sink(environment) {
        found.notices.push(format!(
            "{PLAIN} is not set: metrics are not exported to StatsD at localhost:8125; set it to true or false"
        ));
    }
}

/// Whether no variable selects a sink, for which the reference uses the local host.
fn selects_no_sink(environment: &Environment) -> bool {
    let is_scraped = environment.get("USE_PROMETHEUS").map(boolean) == Some(Ok(true));
    !is_scraped && [DISABLED, PLAIN, DOGSTATSD].iter().all(|name| environment.get(name).is_none())
}

/// The flags that the variables set.
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
        Sink::DogStatsd => Some("udp"),
    };
    if let Some(scheme) = scheme {
        let [host, port] = [(HOST, "localhost"), (PORT, "8125")]
            .map(|(name, default)| environment.get(name).unwrap_or(default));
        let server = addresses::joined(host, port);
        set("statsd", &format!("{HOST} with {PORT}"), format!("{scheme}://{server}"));
    }
    if sink == Sink::DogStatsd {
        set("statsd-format", DOGSTATSD, "dogstatsd".to_owned());
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

/// The configured sink. `None` without any variable, although the reference then exports to the local host.
fn sink(environment: &Environment) -> Sink {
    let switch = |name| environment.get(name).and_then(|value| boolean(value).ok());
    match (switch(DISABLED), switch(DOGSTATSD), switch(PLAIN)) {
        (Some(true), ..) => Sink::None,
        (_, Some(true), _) => Sink::DogStatsd,
        (.., Some(true)) => Sink::Plain,
        (.., None) if [HOST, PORT].iter().any(|name| environment.get(name).is_some()) => Sink::Plain,
        _ => Sink::None,
    }
}

/// A rewrite in the syntax of its flag.
fn rewrite(environment: &Environment, name: &str) -> Result<String, Problem> {
    let [pattern, new, tags] = PARTS.map(|part| {
        let variable = format!("{REWRITE}{name}{part}");
        let value = environment.get(&variable).map(str::to_owned);
        (variable, value)
    });
    let needed = |(variable, value): (String, Option<String>)| {
        value.ok_or_else(|| Problem::new(variable, format!("is not set, but {REWRITES} names {name}")))
    };
    // The flag separates its words by spaces.
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

    /// The flags and problems of variables.
    fn flags(variables: &[(&str, &str)]) -> Vec<String> {
        let mut problems = Vec::new();
        let settings = settings(&environment(variables), |_| false, &mut problems);
        let flags = settings.into_iter().map(|Setting { flag, value, .. }| format!("{flag}={value}"));
        flags.chain(problems.iter().map(ToString::to_string)).collect()
    }

    #[test]
    fn metrics_are_exported_only_if_a_variable_selects_a_sink() {
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
        // Plain lines have no rewrites.
        assert_eq!(
            flags(&[&[("USE_STATSD", "true")], &dog[1..], &all].concat()),
            ["statsd=tcp://localhost:8125"]
        );
    }

    #[test]
    fn invalid_variables_and_those_without_effect_are_reported() {
        for (variables, given, problem, notice) in [
            (
                ("USE_STATSD", "maybe"),
                false,
                Some("USE_STATSD: `maybe` is invalid; expected true or false"),
                None,
            ),
            (
                ("DISABLE_STATS", "no"),
                false,
                Some("DISABLE_STATS: `no` is invalid; expected true or false"),
                None,
            ),
            (
                ("EXTRA_TAGS", "a:b"),
                false,
                None,
                Some("EXTRA_TAGS has no effect: the StatsD exporter is off"),
            ),
            (("EXTRA_TAGS", "a:b"), true, None, None),
            (
                ("RUNTIME_ROOT", "/data"),
                false,
                None,
                Some(
                    "USE_STATSD is not set: metrics are not exported to StatsD at localhost:8125; set it to true or false",
                ),
            ),
            (("RUNTIME_ROOT", "/data"), true, None, None),
            (("STATSD_HOST", "agent"), false, None, None),
        ] {
            let mut found = EnvironmentFlags::default();
            review(&environment(&[variables]), &mut found, |_| given);
            let problems: Vec<_> = found.problems.iter().map(ToString::to_string).collect();
            assert_eq!(problems, Vec::from_iter(problem), "{variables:?}");
            assert_eq!(found.notices, Vec::from_iter(notice), "{variables:?}");
        }
    }
}
