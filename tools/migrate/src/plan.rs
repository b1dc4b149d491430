//! Verdicts on variables, and the plan that follows from them.

use std::fmt;

use serde::Serialize;
use tollgate::settings::{
    Environment, EnvironmentFlags, Mapping, Settings, Variable, boolean, reference_variables,
};

use crate::{Difference, Report, Verdict};

/// All steps, in order.
pub(super) fn of(report: &Report, settings: Option<&Settings>) -> Vec<String> {
    let mut steps = before(report);
    if let Some(settings) = settings {
        steps.extend(store(report, settings));
    }
    steps.extend(beside(settings));
    steps.extend(switch(report, settings));
    steps
}

/// Steps before tollgate runs.
fn before(report: &Report) -> Vec<String> {
    let mut steps = Vec::new();
    if !report.problems.is_empty() {
        steps.push("Change the refused settings; tollgate does not start with them.".to_owned());
    }
    if !report.not_seen.is_empty() {
        steps.push(
            "Check the variables with unknown values: run this again where all variables are set, as in the running \
             container (`printenv`)."
                .to_owned(),
        );
    }
    if report.rules_not_seen.is_some() {
        steps.push("Check the rules: run this again with --config.".to_owned());
    }
    if let Some(rules) = &report.rules {
        if !rules.problems.is_empty() {
            steps.push(format!(
                "Correct the rules until `tollgate check {}` reports no problem.",
                rules.directory
            ));
        }
        steps.extend(rules.differences.iter().filter_map(todo));
    }
    steps
}

fn todo(difference: &Difference) -> Option<String> {
    let mut todo = difference.todo?.chars();
    let first = todo.next()?.to_ascii_uppercase();
    Some(format!("{first}{}: {}.", todo.as_str(), difference.places.join(", ")))
}

/// Steps for Redis.
fn store(report: &Report, settings: &Settings) -> Vec<String> {
    let Some(redis) = settings.store.redis() else {
        return vec![
            "Configure a Redis: without REDIS_URL each instance counts separately in memory, so that three instances \
             admit three times the limit."
                .to_owned(),
        ];
    };
    let servers = redis.servers.to_string();
    let mut steps = Vec::new();
    if is_behind_twemproxy(settings) {
        steps.push(
            "Set the address of Redis itself, not of twemproxy, which does not support loading the script that decides."
                .to_owned(),
        );
    }
    let login = servers.split_once("://").and_then(|(_, rest)| rest.split_once(":***@"));
    let query_user = servers.split_once("user=").map(|(_, rest)| rest.split('&').next().unwrap_or_default());
    if let Some(user) = login.map(|(user, _)| user).or(query_user).filter(|user| !user.is_empty()) {
        steps.push(format!(
            "Grant the Redis user `{user}` the permissions of docs/guides/redis.md; INCRBY and EXPIRE are not \
             sufficient."
        ));
    }
    if report
        .variables
        .iter()
        .any(|variable| variable.name == "REDIS_PERSECOND" && variable.outcome == VariableOutcome::NoEffect)
    {
        steps.push(
            "Size the one Redis for the per-second limits too: the second Redis is not used.".to_owned(),
        );
    }
    steps
}

/// Whether Redis is most likely behind twemproxy, as in the defaults of the reference.
pub(super) fn is_behind_twemproxy(settings: &Settings) -> bool {
    let servers = settings.store.to_string();
    ["nutcracker", "twemproxy"].iter().any(|name| servers.contains(name))
}

/// Step of a trial.
fn beside(settings: Option<&Settings>) -> Vec<String> {
    let shadow = match settings.is_some_and(|settings| settings.modes.shadow) {
        true => "SHADOW_MODE is already on, so that it denies nothing.",
        false => "With SHADOW_MODE=true it denies nothing.",
    };
    let redis = match settings.and_then(|settings| settings.store.redis()) {
        Some(_) => " Both can use one Redis: their keys differ.",
        None => "",
    };
    vec![format!("Run it beside envoyproxy/ratelimit, called by a second Envoy filter. {shadow}{redis}")]
}

/// Variables that decide whether, and to which server, the reference exports StatsD metrics.
const STATSD_VARIABLES: [&str; 6] =
    ["USE_STATSD", "USE_DOG_STATSD", "USE_PROMETHEUS", "DISABLE_STATS", "STATSD_HOST", "STATSD_PORT"];

/// Step for the StatsD exporter, which is on by default in the reference and off in tollgate.
fn statsd(report: &Report) -> Option<String> {
    let is_set = |name: &&str| report.variables.iter().any(|variable| variable.name == **name);
    let is_default = !STATSD_VARIABLES.iter().any(is_set) && report.not_seen.is_empty();
    is_default.then(|| {
        "If there is a StatsD agent at localhost:8125, set USE_STATSD=true: envoyproxy/ratelimit exports there by \
         default, tollgate only if configured."
            .to_owned()
    })
}

/// Steps of the switch and of its rollback.
fn switch(report: &Report, settings: Option<&Settings>) -> Vec<String> {
    let mut steps: Vec<String> = statsd(report).into_iter().collect();
    steps.push(match report.verdict {
        Verdict::Unchanged => "Switch the image; variables, ports and files stay as they are.".to_owned(),
        Verdict::ToBeChanged => "Switch the image, with what was changed above.".to_owned(),
    });
    let mut anew =
        "Counters start at zero, and during a rollout both services count separately: in the window of the \
                    switch, up to twice the limit may pass."
            .to_owned();
    if let Some(longest) = report.rules.as_ref().and_then(|rules| rules.longest_window.as_ref()) {
        anew.push_str(&format!(
            " The longest window is that of {longest}. Switch long windows near their end."
        ));
    }
    steps.push(anew);
    let names = match settings.is_some_and(|settings| settings.process.reference_metrics) {
        true => "; the Prometheus names of envoyproxy/ratelimit are exported too",
        false => "",
    };
    steps.push(format!(
        "Monitor tollgate_requests_total and tollgate_degraded_total (alerts: deploy/prometheus/alerts.yaml){names}. An \
         instance is ready when its rules are loaded and Redis has decided; envoyproxy/ratelimit does not wait for rules."
    ));
    let own_keys =
        report.rules.iter().flat_map(|rules| &rules.differences).any(|found| found.id == "own_keys");
    steps.push(match own_keys {
        false => "To roll back, restore the old image; its counters are unchanged.".to_owned(),
        true => "To roll back, restore the old image, and files without keys of tollgate.".to_owned(),
    });
    steps
}

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
    Some(sets(flag, changed.contains(flag)))
}

/// Effect of a variable by its flag, which may be at its default.
fn sets(flag: &str, is_changed: bool) -> (VariableOutcome, String) {
    match is_changed {
        true => (VariableOutcome::Flag, format!("--{flag}")),
        false => (VariableOutcome::Default, String::new()),
    }
}

fn by_mapping(
    variable: &Variable,
    value: &str,
    found: &EnvironmentFlags,
    changed: &[String],
) -> (VariableOutcome, String) {
    let is_default = variable.is_default(value) == Ok(true) || boolean(value) == Ok(false);
    match variable.mapping {
        Mapping::Flag(flag) | Mapping::PartOf(flag, _) => {
            // A flag with a problem is not set.
            let is_changed = changed.iter().any(|known| known == flag);
            sets(flag, is_changed || !(is_default || found.problems.is_empty()))
        }
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
