//! Effect of each variable of an environment.

use std::fmt;

use serde::Serialize;
use tollgate::settings::{Environment, EnvironmentFlags, Mapping, Variable, boolean, reference_variables};

/// Effect of a variable that is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariableReport {
    /// Name.
    pub name: String,
    /// Effect.
    pub outcome: VariableOutcome,
    /// The flag with its dashes, or a reason.
    pub detail: String,
}

/// Effect of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VariableOutcome {
    /// Sets a flag, or a part of one.
    Flag,
    /// Equals the default, or is empty.
    Default,
    /// Requests behaviour that is always on.
    Always,
    /// Switches other variables.
    Switch,
    /// Is a detail of another variable.
    With,
    /// Has no effect, which a startup warning reports.
    NoEffect,
    /// Fails startup.
    Refused,
}

impl fmt::Display for VariableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = &self.detail;
        match self.outcome {
            VariableOutcome::Flag => f.write_str(detail),
            VariableOutcome::Default if detail.is_empty() => f.write_str("none: the default"),
            VariableOutcome::Default => write!(f, "none: {detail}"),
            VariableOutcome::Always => write!(f, "always on: {detail}"),
            VariableOutcome::Switch => f.write_str(detail),
            VariableOutcome::With => write!(f, "detail of {detail}"),
            VariableOutcome::NoEffect => write!(f, "no effect: {detail}"),
            VariableOutcome::Refused => write!(f, "refused: {detail}"),
        }
    }
}

/// Effects of the named variables of envoyproxy/ratelimit and of tollgate, and the names of other variables; both sorted.
/// `changed` are the flags that are not at their defaults.
pub(super) fn report(
    names: impl IntoIterator<Item = String>,
    environment: &Environment,
    found: &EnvironmentFlags,
    changed: &[String],
) -> (Vec<VariableReport>, Vec<String>) {
    let (mut reports, mut others) = (Vec::new(), Vec::new());
    for name in names {
        let known = reference_variables().find(|variable| variable.name == name);
        let outcome = match (known, environment.get(&name)) {
            (Some(_), None) => Some((VariableOutcome::Default, "empty, which counts as unset".to_owned())),
            (Some(variable), Some(value)) => {
                let reported = reported(&name, found).or_else(|| flag(&name, found, changed));
                Some(reported.unwrap_or_else(|| by_mapping(variable, value, found, changed)))
            }
            (None, _) => reported(&name, found).or_else(|| flag(&name, found, changed)).or_else(|| {
                name.starts_with("DOG_STATSD_MOGRIFIER_").then(|| with("USE_DOG_STATSD_MOGRIFIERS"))
            }),
        };
        match outcome {
            Some((outcome, detail)) => reports.push(VariableReport { name, outcome, detail }),
            None => others.push(name),
        }
    }
    reports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    others.sort_unstable();
    (reports, others)
}

/// Effect according to the problems and notices of startup.
fn reported(name: &str, found: &EnvironmentFlags) -> Option<(VariableOutcome, String)> {
    for problem in &found.problems {
        let problem = problem.to_string();
        if let Some((names, reason)) = problem.split_once(": ")
            && names.split(" with ").any(|known| known == name)
        {
            return Some((VariableOutcome::Refused, reason.to_owned()));
        }
    }
    found.notices.iter().find_map(|notice| {
        let rest = notice.strip_prefix(name)?.strip_prefix(' ')?;
        let reason = rest.strip_prefix("has no effect: ").unwrap_or(rest);
        Some((VariableOutcome::NoEffect, reason.to_owned()))
    })
}

/// Effect of a variable that sets a flag.
fn flag(name: &str, found: &EnvironmentFlags, changed: &[String]) -> Option<(VariableOutcome, String)> {
    let makes = |names: &str| names.split(" with ").any(|known| known == name);
    let (flag, _) = found.origins.iter().find(|(_, names)| makes(names))?;
    Some(match changed.contains(flag) {
        true => (VariableOutcome::Flag, format!("--{flag}")),
        false => (VariableOutcome::Default, String::new()),
    })
}

fn by_mapping(
    variable: &Variable,
    value: &str,
    found: &EnvironmentFlags,
    changed: &[String],
) -> (VariableOutcome, String) {
    let is_default = variable.is_default(value) == Ok(true) || boolean(value) == Ok(false);
    match variable.mapping {
        // A flag with a problem is not set.
        Mapping::Flag(flag) | Mapping::PartOf(flag)
            if !changed.iter().any(|known| known == flag) && (is_default || found.problems.is_empty()) =>
        {
            (VariableOutcome::Default, String::new())
        }
        Mapping::Flag(flag) | Mapping::PartOf(flag) => (VariableOutcome::Flag, format!("--{flag}")),
        Mapping::Switch(what) => (VariableOutcome::Switch, what.replace('`', "")),
        Mapping::Always(what) => (VariableOutcome::Always, what.replace('`', "")),
        Mapping::DetailOf(other) => with(other),
        Mapping::NoEffect(_) | Mapping::Refused { .. } if is_default => {
            (VariableOutcome::Default, String::new())
        }
        Mapping::NoEffect(reason) | Mapping::Refused { reason, .. } => {
            (VariableOutcome::NoEffect, reason.replace('`', ""))
        }
    }
}

fn with(other: &str) -> (VariableOutcome, String) {
    (VariableOutcome::With, other.to_owned())
}
