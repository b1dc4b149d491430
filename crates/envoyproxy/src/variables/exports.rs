//! Exporters of the reference: a separate port for Prometheus; a TCP sink for StatsD, on by default; a UDP sink for the
//! Datadog agent.

use std::path::Path;

use tollgate_flags::Problem;
use tollgate_flags::environment::{EnvironmentFlags, Setting};
use tollgate_runtime::bounded_file;

use super::{Inputs, ports};

/// Switch of Prometheus.
const PROMETHEUS: &str = "USE_PROMETHEUS";

/// Variable that names a file with the mapping of metrics to names and labels.
const MAPPER: &str = "PROMETHEUS_MAPPER_YAML";

/// The mapping that Envoy Gateway sets, whose names and labels are those that the page has.
const ENVOY_GATEWAY_MAPPING: &str = include_str!("envoy_gateway_mapping.yaml");

/// Maximum size of a mapping that is compared, in bytes.
const MAX_MAPPING_BYTES: u64 = 64 << 10;

const HOST: &str = "STATSD_HOST";
const PORT: &str = "STATSD_PORT";

/// Switch of the TCP sink, true by default.
const PLAIN: &str = "USE_STATSD";

/// Switch of the UDP sink, which has tags.
const DOGSTATSD: &str = "USE_DOG_STATSD";

/// Names of rewrites. Their parts are in variables with the prefix [`REWRITE`], the name, and a suffix.
const REWRITES: &str = "USE_DOG_STATSD_MOGRIFIERS";
const REWRITE: &str = "DOG_STATSD_MOGRIFIER_";

/// Overrides all other switches.
const DISABLED: &str = "DISABLE_STATS";

/// Whether a variable names a file with the mapping that the page follows anyway.
pub(super) fn is_usual_mapping(name: &str, value: &str) -> bool {
    if name != MAPPER {
        return false;
    }
    let mapping = bounded_file::read_up_to(Path::new(value), MAX_MAPPING_BYTES);
    mapping.is_ok_and(|text| lines(&String::from_utf8_lossy(&text)).eq(lines(ENVOY_GATEWAY_MAPPING)))
}

/// The lines of a mapping without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.trim_start().starts_with('#'))
}

/// Address and path of the Prometheus endpoint, if it is on.
pub(super) fn metrics_address(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    if inputs.switch(PROMETHEUS) != Some(true) {
        return None;
    }
    let path = inputs.get("PROMETHEUS_PATH").unwrap_or_default();
    if !path.is_empty() && !path.starts_with('/') {
        let reason = "expected a path such as /metrics";
        return Some(Err(inputs.environment.invalid("PROMETHEUS_PATH", reason)));
    }
    let address = inputs.get("PROMETHEUS_ADDR").unwrap_or(":9090");
    // In Go, a port without a host means all addresses.
    let host = if address.starts_with(':') { "[::]" } else { "" };
    Some(Ok(format!("{host}{address}{path}")))
}

/// Reports invalid switches and variables without effect.
pub(super) fn review(inputs: Inputs<'_>, found: &mut EnvironmentFlags) {
    for name in [DISABLED, PLAIN, DOGSTATSD] {
        found.problems.extend(inputs.environment.invalid_boolean(name));
    }
    let is_off = scheme(inputs).is_none() && !inputs.is_given("statsd");
    if is_off && inputs.get("EXTRA_TAGS").is_some() {
        found.notices.push("EXTRA_TAGS has no effect: the StatsD exporter is off".to_owned());
    }
    if inputs.get(REWRITES).is_some() && inputs.is_given("statsd") && !inputs.is_given("statsd-rewrite") {
        found.notices.push(format!("{REWRITES} has no effect: --statsd is given; expected --statsd-rewrite"));
    }
    let runs_there = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY"].iter().any(|name| inputs.get(name).is_some());
    if is_off && runs_there && selects_no_sink(inputs) {
        found.notices.push(format!(
            "{PLAIN} is not set: metrics are not exported to StatsD at localhost:8125; set it to true or false"
        ));
    }
}

/// Whether no variable selects a sink, for which the reference uses the local host.
fn selects_no_sink(inputs: Inputs<'_>) -> bool {
    let is_scraped = inputs.switch(PROMETHEUS) == Some(true);
    !is_scraped && [DISABLED, PLAIN, DOGSTATSD].iter().all(|name| inputs.get(name).is_none())
}

/// Scheme of the configured sink. `None` without any variable, although the reference then exports to the local host.
fn scheme(inputs: Inputs<'_>) -> Option<&'static str> {
    let has_address = [HOST, PORT].iter().any(|name| inputs.get(name).is_some());
    match (inputs.switch(DISABLED), inputs.switch(DOGSTATSD), inputs.switch(PLAIN)) {
        (Some(true), ..) => None,
        (_, Some(true), _) => Some("dogstatsd+udp"),
        (.., Some(true)) => Some("tcp"),
        (.., None) if has_address => Some("tcp"),
        _ => None,
    }
}

/// StatsD server, if there is a sink.
pub(super) fn statsd(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let (host, port) = (inputs.get(HOST).unwrap_or("localhost"), inputs.get(PORT).unwrap_or("8125"));
    Some(Ok(format!("{}://{}", scheme(inputs)?, ports::joined(host, port))))
}

/// Rewrites of the UDP sink, each by variables of its own.
pub(super) fn rewrites(inputs: Inputs<'_>, problems: &mut Vec<Problem>) -> Vec<Setting> {
    let flag = "statsd-rewrite";
    if scheme(inputs) != Some("dogstatsd+udp") || inputs.is_given(flag) || inputs.is_given("statsd") {
        return Vec::new();
    }
    let mut settings = Vec::new();
    let names = inputs.get(REWRITES).into_iter().flat_map(|names| names.split(','));
    for name in names.map(str::trim).filter(|name| !name.is_empty()) {
        match rewrite(inputs, name) {
            Ok(value) => settings.push(Setting { flag, variable: format!("{REWRITE}{name}"), value }),
            Err(problem) => problems.push(problem),
        }
    }
    settings
}

/// A rewrite in the syntax of its flag.
fn rewrite(inputs: Inputs<'_>, name: &str) -> Result<String, Problem> {
    let variable = |part: &str| format!("{REWRITE}{name}{part}");
    let needed = |part: &str| {
        let missing = || Problem::new(variable(part), format!("is not set, but {REWRITES} names {name}"));
        inputs.get(&variable(part)).ok_or_else(missing)
    };
    // The flag separates its words by spaces.
    let pattern = needed("_PATTERN")?.replace(' ', r"\x20");
    let (new, tags) = (needed("_NAME")?, inputs.get(&variable("_TAGS")).unwrap_or_default());
    Ok(format!("{pattern} {new} {}", tags.replace(", ", ",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::tests::{environment, flags};
    use tollgate_fixtures::temporary_file;

    #[test]
    fn metrics_are_exported_only_if_a_variable_selects_a_sink() {
        let nothing: [&str; 0] = [];
        for (variables, expected) in [
            (&[][..], &nothing[..]),
            (&[("USE_STATSD", "true")], &["statsd=tcp://localhost:8125"]),
            (&[("STATSD_HOST", "agent")], &["statsd=tcp://agent:8125"]),
            (&[("STATSD_PORT", "9125")], &["statsd=tcp://localhost:9125"]),
            (
                &[("STATSD_HOST", "::1"), ("USE_PROMETHEUS", "true")],
                &["statsd=tcp://[::1]:8125", "reference-metrics=true", "metrics-address=[::]:9090"],
            ),
            (&[("STATSD_HOST", "agent"), ("USE_STATSD", "false")], &[]),
            (&[("STATSD_HOST", "agent"), ("USE_STATSD", "true"), ("DISABLE_STATS", "true")], &[]),
            (&[("USE_DOG_STATSD", "true"), ("DISABLE_STATS", "1")], &[]),
            (
                &[("USE_STATSD", "false"), ("USE_DOG_STATSD", "true"), ("STATSD_HOST", "agent")],
                &["statsd=dogstatsd+udp://agent:8125"],
            ),
            (
                &[("USE_STATSD", "true"), ("USE_DOG_STATSD", "true")],
                &["statsd=dogstatsd+udp://localhost:8125"],
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
        assert_eq!(flags(&[&dog[..], &all].concat())[1..], expected);
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
            let (environment, given) = (environment(&[variables]), |_: &str| given);
            review(Inputs::new(&environment, &given), &mut found);
            let problems: Vec<_> = found.problems.iter().map(ToString::to_string).collect();
            assert_eq!(problems, Vec::from_iter(problem), "{variables:?}");
            assert_eq!(found.notices, Vec::from_iter(notice), "{variables:?}");
        }
    }

    #[test]
    fn only_the_mapping_of_envoy_gateway_needs_no_warning() {
        let (_directory, file) = temporary_file("conf.yaml");
        let path = file.to_str().expect("UTF-8");
        assert!(!is_usual_mapping(MAPPER, path), "no file");
        for (text, is_usual) in [
            (ENVOY_GATEWAY_MAPPING.to_owned(), true),
            (format!("# A comment\n\n{ENVOY_GATEWAY_MAPPING}"), true),
            (ENVOY_GATEWAY_MAPPING.replace("key1", "rule"), false),
            (String::new(), false),
            ("mappings: []\n".repeat(10_000), false),
        ] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(is_usual_mapping(MAPPER, path), is_usual);
            assert!(!is_usual_mapping("REDIS_TIMEOUT", path));
        }
    }
}
