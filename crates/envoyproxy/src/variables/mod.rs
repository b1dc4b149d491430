//! The variables of envoyproxy/ratelimit ("the reference"): each sets a flag or is reported, so that its image can be
//! replaced with its environment unchanged. [`catalogue`] has a row for each, with the function of its flag's value.

mod catalogue;
mod exports;
mod ports;
mod redis;
mod traces;
mod variable;
mod xds;

use std::path::Path;

use tollgate_flags::environment::{Environment, EnvironmentFlags, Setting};
use tollgate_flags::{Problem, boolean, header_name};

pub use self::catalogue::all;
pub use self::variable::{Mapping, ValueType, Variable};

/// Variables, and the flags that are set otherwise.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)] // Has a function.
pub struct Inputs<'a> {
    pub environment: &'a Environment,
    given: &'a dyn Fn(&str) -> bool,
}

impl<'a> Inputs<'a> {
    pub const fn new(environment: &'a Environment, given: &'a dyn Fn(&str) -> bool) -> Self {
        Self { environment, given }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.environment.get(name)
    }

    /// The variables that are set for flags whose names begin with a prefix, with their flags and values.
    fn set_for(self, prefix: &str) -> impl Iterator<Item = (&'static str, &'static Variable, &'a str)> {
        all().filter_map(move |variable| {
            let flag = variable.flag().filter(|flag| flag.starts_with(prefix))?;
            Some((flag, variable, self.get(variable.name)?))
        })
    }

    fn is_given(&self, flag: &str) -> bool {
        (self.given)(flag)
    }

    /// The value of a switch, unless it is unset or invalid.
    fn switch(&self, name: &str) -> Option<bool> {
        boolean(self.get(name)?).ok()
    }

    /// The value of a variable, empty if it is not set, if it is valid by itself.
    fn checked<T>(&self, name: &str, read: fn(&str) -> Result<T, String>) -> Result<&'a str, Problem> {
        let Some(value) = self.get(name) else { return Ok("") };
        read(value).map(|_| value).map_err(|reason| self.environment.invalid(name, &reason))
    }

    /// The files of a certificate and its key, which these variables name.
    fn pair(&self, certificate: &str, key: &str) -> Option<Result<String, Problem>> {
        let requires = |name: &str, other: &str| Err(Problem::new(name, format!("requires {other}")));
        match (self.get(certificate), self.get(key)) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some(Ok(format!("{chain},{key}"))),
            (Some(_), None) => Some(requires(certificate, key)),
            (None, Some(_)) => Some(requires(key, certificate)),
        }
    }
}

/// The variables of the reference that set a flag.
pub fn variables(flag: &str) -> impl Iterator<Item = &'static str> {
    all().filter(move |variable| variable.flag() == Some(flag)).map(|variable| variable.name)
}

/// Flags with parts that variables of the reference state apart. One that is given replaces all of them.
const MERGED: [&str; 4] = ["header-names", "metrics-address", "statsd", "xds-backoff"];

/// Reports variables without effect and refused ones.
pub fn review(inputs: Inputs<'_>, found: &mut EnvironmentFlags) {
    let is_exporting = traces::are_exported(inputs);
    for variable in all() {
        // OpenTelemetry variables are often set cluster-wide, and matter only if traces are exported.
        let is_supported = is_exporting || !variable.name.starts_with("OTEL_");
        if let Some(value) = inputs.get(variable.name).filter(|_| is_supported) {
            review_variable(variable, value, found, inputs);
        }
    }
    if !inputs.is_given("config") {
        found.notices.extend(unnamed_directory(inputs));
    }
    ports::review(inputs, found);
    redis::review(inputs, found);
    exports::review(inputs, found);
    traces::review(inputs, found);
    xds::review(inputs, found);
}

/// Reports the effect of a variable by itself.
fn review_variable(variable: &Variable, value: &str, found: &mut EnvironmentFlags, inputs: Inputs<'_>) {
    let name = variable.name;
    let is_default = match (variable.mapping, variable.is_default(value)) {
        (Mapping::PartOf(flag, _), Ok(false)) if MERGED.contains(&flag) && inputs.is_given(flag) => {
            return found.notices.push(format!("{name} has no effect: --{flag} is given, which replaces it"));
        }
        // The parsers of their flags, or the review of the other variable, report them.
        (Mapping::Flag(_) | Mapping::PartOf(..) | Mapping::DetailOf(_), _) => return,
        (_, Err(reason)) => return found.problems.push(Problem::of_text(name, value, &reason)),
        (_, Ok(is_default)) => is_default,
    };
    match variable.mapping {
        Mapping::NoEffect(reason) if !is_default && !exports::is_usual_mapping(name, value) => {
            found.notices.push(format!("{name} has no effect: {reason}"));
        }
        Mapping::Refused { unless, reason } if !is_default && !inputs.is_given(unless) => {
            found.problems.push(Problem::new(name, reason));
        }
        _ => {}
    }
}

/// The flags that variables of the reference set, without those that are given otherwise.
pub fn settings(inputs: Inputs<'_>, problems: &mut Vec<Problem>) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    for variable in all() {
        let Some(flag) = variable.flag().filter(|flag| !inputs.is_given(flag)) else { continue };
        let label = match variable.mapping {
            Mapping::PartOf(..) => {
                let set: Vec<&str> = variables(flag).filter(|name| inputs.get(name).is_some()).collect();
                if set.is_empty() { variable.name.to_owned() } else { set.join(" with ") }
            }
            _ => variable.name.to_owned(),
        };
        let value = match variable.mapping {
            // The first row of a flag has its value.
            Mapping::PartOf(_, _) if variables(flag).next() != Some(variable.name) => None,
            Mapping::PartOf(_, value) => value(inputs, variable.name),
            _ => inputs.get(variable.name).map(|value| Ok(value.to_owned())),
        };
        match value {
            Some(Ok(value)) => settings.push(Setting { flag, variable: label, value }),
            Some(Err(problem)) => problems.push(problem),
            None => {}
        }
    }
    settings.extend(exports::rewrites(inputs, problems));
    traces::add_defaults(inputs, &mut settings);
    settings
}

/// Directory of the rules of the reference.
fn directory(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let [root, below, app] =
        ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"].map(|name| inputs.get(name));
    root.or(below).or(app)?;
    let parts = [root.or(Some("/srv/runtime_data/current")), below, app.or(Some("config"))];
    Some(Ok(parts.into_iter().flatten().collect::<Vec<_>>().join("/")))
}

/// Reports that the rules are not where RUNTIME_SUBDIRECTORY points to: the reference looks into a directory below it.
fn unnamed_directory(inputs: Inputs<'_>) -> Option<String> {
    inputs.get("RUNTIME_SUBDIRECTORY").filter(|_| inputs.get("RUNTIME_APPDIRECTORY").is_none())?;
    let directory = directory(inputs, "")?.ok()?;
    let above = Path::new(&directory).parent()?;
    (above.is_dir() && !Path::new(&directory).exists()).then(|| {
        format!("RUNTIME_APPDIRECTORY is not set: rules are read from {directory}, which does not exist; expected e.g. `.`")
    })
}

/// Style of the headers, which the reference has only on or off.
fn header_style(inputs: Inputs<'_>, name: &str) -> Option<Result<String, Problem>> {
    let style = |is_on| if is_on { "ratelimit" } else { "off" }.to_owned();
    let is_on = boolean(inputs.get(name)?).map_err(|reason| inputs.environment.invalid(name, &reason));
    Some(is_on.map(style))
}

/// Names of the headers.
fn header_names(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let names = [
        ("limit", "LIMIT_LIMIT_HEADER"),
        ("remaining", "LIMIT_REMAINING_HEADER"),
        ("reset", "LIMIT_RESET_HEADER"),
    ];
    let stated = names.into_iter().filter(|(_, name)| inputs.get(name).is_some());
    let stated = stated.map(|(header, name)| Ok(format!("{header}={}", inputs.checked(name, header_name)?)));
    let stated: Result<Vec<String>, Problem> = stated.collect();
    stated.map(|stated| (!stated.is_empty()).then(|| stated.join(","))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::new(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    /// The flags of variables, and then the problems.
    pub(super) fn flags(variables: &[(&str, &str)]) -> Vec<String> {
        let mut problems = Vec::new();
        let settings = settings(Inputs::new(&environment(variables), &|_| false), &mut problems);
        let flags = settings.into_iter().map(|Setting { flag, value, .. }| format!("{flag}={value}"));
        flags.chain(problems.iter().map(ToString::to_string)).collect()
    }
}
