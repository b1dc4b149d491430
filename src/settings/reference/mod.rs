//! The variables of envoyproxy/ratelimit ("the reference"): each sets a flag or is reported, so that its image can be
//! replaced with its environment unchanged.

mod addresses;
pub(super) mod catalogue;
mod metrics;
mod redis;
mod statsd;
mod trace_variables;
mod tls;
mod traces;
mod xds;

use std::path::Path;

use self::catalogue::{Mapping, Variable};
use super::{
    environment::{Environment, EnvironmentFlags, Setting},
    error::Problem,
    parsers::boolean,
};

/// The variables of the reference that set a flag.
pub(super) fn variables(flag: &str) -> impl Iterator<Item = &'static str> {
    catalogue::all().filter(move |variable| variable.flag() == Some(flag)).map(|variable| variable.name)
}

/// Reports variables without effect and refused ones.
pub(super) fn review(environment: &Environment, found: &mut EnvironmentFlags, given: impl Fn(&str) -> bool) {
    let is_exporting = traces::are_exported(environment, &given);
    for variable in catalogue::all() {
        // OpenTelemetry variables are often set cluster-wide, and matter only if traces are exported.
        let is_supported = is_exporting || !variable.name.starts_with("OTEL_");
        if let Some(value) = environment.get(variable.name).filter(|_| is_supported) {
            review_variable(variable, value, found, &given);
        }
    }
    if !given("config") {
        found.notices.extend(unnamed_directory(environment));
    }
    addresses::review(environment, found, &given);
    redis::review(environment, found, &given);
    statsd::review(environment, found, &given);
    tls::review(environment, found, &given);
    traces::review(environment, found, &given);
    xds::review(environment, found, &given);
}

/// Reports the effect of a variable by itself.
fn review_variable(
    variable: &Variable,
    value: &str,
    found: &mut EnvironmentFlags,
    given: impl Fn(&str) -> bool,
) {
    let name = variable.name;
    let is_default = match (variable.mapping, variable.is_default(value)) {
        // The parsers of their flags, or the review of the other variable, report them.
        (Mapping::Flag(_) | Mapping::PartOf(_) | Mapping::DetailOf(_), _) => return,
        (_, Err(reason)) => return found.problems.push(Problem::of_text(name, value, &reason)),
        (_, Ok(is_default)) => is_default,
    };
    match variable.mapping {
        Mapping::NoEffect(reason) if !is_default && !metrics::has_no_effect_anyway(name, value) => {
            found.notices.push(format!("{name} has no effect: {reason}"));
        }
        Mapping::Refused { unless, reason } if !is_default && !given(unless) => {
            found.problems.push(Problem::new(name, reason));
        }
        _ => {}
    }
}

/// The flags that variables of the reference set, without those that are `given` otherwise.
pub(super) fn settings(
    environment: &Environment,
    given: impl Fn(&str) -> bool,
    problems: &mut Vec<Problem>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut made = |flag, value: Option<Result<String, Problem>>| match value {
        Some(Ok(value)) if !given(flag) => {
            let set: Vec<&str> = variables(flag).filter(|name| environment.get(name).is_some()).collect();
            settings.push(Setting { flag, variable: set.join(" with "), value });
        }
        Some(Err(problem)) if !given(flag) => problems.push(problem),
        _ => {}
    };
    made("config", directory(environment).map(Ok));
    made("store", redis::url(environment));
    made("grpc-address", addresses::grpc(environment).map(Ok));
    made("http-address", addresses::http(environment).map(Ok));
    made("admin-address", addresses::admin(environment, &given).map(Ok));
    made("response-headers", headers(environment));
    made("otlp-resource-attributes", traces::resource(environment).map(Ok));
    settings.extend(tls::settings(environment, &given));
    settings.extend(metrics::settings(environment, &given));
    settings.extend(statsd::settings(environment, &given, problems));
    settings.extend(traces::settings(environment, &given));
    settings.extend(xds::settings(environment, &given));
    for variable in catalogue::all() {
        let Mapping::Flag(flag) = variable.mapping else { continue };
        if let Some(value) = environment.get(variable.name).filter(|_| !given(flag)) {
            settings.push(Setting { flag, variable: variable.name.to_owned(), value: value.to_owned() });
        }
    }
    traces::adjust(environment, &mut settings, &given);
    settings
}

/// Directory of the rules of the reference.
fn directory(environment: &Environment) -> Option<String> {
    let [root, below, app] =
        ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"].map(|name| environment.get(name));
    if root.is_none() && below.is_none() && app.is_none() {
        return None;
    }
    let parts = [root.or(Some("/srv/runtime_data/current")), below, app.or(Some("config"))];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    Some(parts.join("/"))
}

/// Reports that the rules are not where RUNTIME_SUBDIRECTORY points to: the reference looks into a directory below it.
fn unnamed_directory(environment: &Environment) -> Option<String> {
    environment.get("RUNTIME_SUBDIRECTORY").filter(|_| environment.get("RUNTIME_APPDIRECTORY").is_none())?;
    let directory = directory(environment)?;
    let above = Path::new(&directory).parent()?;
    (above.is_dir() && !Path::new(&directory).exists()).then(|| {
        format!("RUNTIME_APPDIRECTORY is not set: rules are read from {directory}, which does not exist; expected e.g. `.`")
    })
}

/// Style of the headers, which the reference has only on or off.
fn headers(environment: &Environment) -> Option<Result<String, Problem>> {
    const SWITCH: &str = "LIMIT_RESPONSE_HEADERS_ENABLED";
    let is_on = boolean(environment.get(SWITCH)?).map_err(|reason| environment.invalid(SWITCH, &reason));
    Some(is_on.map(|is_on| if is_on { "ratelimit" } else { "off" }.to_owned()))
}
