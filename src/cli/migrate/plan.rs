//! What to do, in which order: only what applies.

use super::{Difference, Report, Verdict};
use crate::settings::{MetricNames, Settings, StoreSettings, VariableOutcome};

/// The steps of a plan.
pub(super) fn of(report: &Report, settings: Option<&Settings>) -> Vec<String> {
    let mut steps = before(report);
    if let Some(settings) = settings {
        steps.extend(store(report, settings));
    }
    steps.extend(beside(settings));
    steps.extend(switch(report, settings));
    steps
}

/// What comes before anything runs.
fn before(report: &Report) -> Vec<String> {
    let mut steps = Vec::new();
    if !report.problems.is_empty() {
        steps.push("Change the settings that are refused; tollgate does not start with them.".to_owned());
    }
    if !report.not_seen.is_empty() {
        steps.push(
            "Look at what was not seen here: run this again where all variables are set, as in the running container \
             (`printenv`)."
                .to_owned(),
        );
    }
    if report.rules_not_seen.is_some() {
        steps.push("Let the rules be looked at: run this again with --config.".to_owned());
    }
    if let Some(rules) = &report.rules {
        if !rules.problems.is_empty() {
            steps.push(format!(
                "Correct the rules, until `tollgate check {}` finds nothing.",
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

/// What the Redis has to be.
fn store(report: &Report, settings: &Settings) -> Vec<String> {
    let StoreSettings::Redis { redis, .. } = &settings.store else {
        return vec![
            "Name a Redis: without REDIS_URL each instance counts for itself, in memory, so that three admit three times \
             the limit."
                .to_owned(),
        ];
    };
    let servers = redis.servers.to_string();
    let mut steps = Vec::new();
    if is_behind_twemproxy(settings) {
        steps.push(
            "Name Redis itself, not twemproxy: what decides is a script that has to be loaded there, which twemproxy does not \
             pass on."
                .to_owned(),
        );
    }
    let login = servers.split_once("://").and_then(|(_, rest)| rest.split_once(":***@"));
    let query_user = servers.split_once("user=").map(|(_, rest)| rest.split('&').next().unwrap_or_default());
    if let Some(user) = login.map(|(user, _)| user).or(query_user).filter(|user| !user.is_empty()) {
        steps.push(format!(
            "Give the Redis user `{user}` the rights that tollgate needs (README, \"Redis\", has the line); those for INCRBY \
             and EXPIRE are not enough."
        ));
    }
    if report
        .variables
        .iter()
        .any(|variable| variable.name == "REDIS_PERSECOND" && variable.outcome == VariableOutcome::NoEffect)
    {
        steps.push(
            "Size the one Redis for the limits of a second too: the second Redis is not used.".to_owned(),
        );
    }
    steps
}

/// Whether its Redis is most likely reached through twemproxy, as it is in the reference's defaults.
pub(super) fn is_behind_twemproxy(settings: &Settings) -> bool {
    let servers = settings.store.to_string();
    ["nutcracker", "twemproxy"].iter().any(|name| servers.contains(name))
}

/// How it is tried.
fn beside(settings: Option<&Settings>) -> Vec<String> {
    let shadow = match settings.is_some_and(|settings| settings.modes.shadow) {
        true => "It has SHADOW_MODE already, and denies nothing.",
        false => "With SHADOW_MODE=true it denies nothing.",
    };
    let redis = match settings.map(|settings| &settings.store) {
        Some(StoreSettings::Redis { .. }) => " Both may use one Redis: their keys differ.",
        _ => "",
    };
    vec![format!("Try it beside the reference, asked by a second filter of Envoy. {shadow}{redis}")]
}

/// Variables of which one says whether, and where, the reference sends counts by StatsD.
const STATSD: [&str; 6] =
    ["USE_STATSD", "USE_DOG_STATSD", "USE_PROMETHEUS", "DISABLE_STATS", "STATSD_HOST", "STATSD_PORT"];

/// What the reference does when nobody says anything, and tollgate does not.
fn unsaid(report: &Report) -> Option<String> {
    let is_said = |name: &&str| report.variables.iter().any(|variable| variable.name == **name);
    let says_nothing = !STATSD.iter().any(is_said) && report.not_seen.is_empty();
    says_nothing.then(|| {
        "If there is a StatsD agent at localhost:8125, say USE_STATSD=true: the reference sends there unless told \
         otherwise, tollgate where it is told to."
            .to_owned()
    })
}

/// How it takes over, and how it would be given back.
fn switch(report: &Report, settings: Option<&Settings>) -> Vec<String> {
    let mut steps: Vec<String> = unsaid(report).into_iter().collect();
    steps.push(match report.verdict {
        Verdict::Unchanged => "Switch the image; variables, ports and files stay as they are.".to_owned(),
        Verdict::ToBeChanged => "Switch the image, with what was changed above.".to_owned(),
    });
    let mut anew = "Counters start anew, and during a rollout each of the two counts for itself: in the window of the switch, \
                    up to twice the limit may pass."
        .to_owned();
    if let Some(longest) = report.rules.as_ref().and_then(|rules| rules.longest_window.as_ref()) {
        anew.push_str(&format!(
            " The longest window here is that of {longest}. Switch long windows near their end."
        ));
    }
    steps.push(anew);
    let names = match settings.map(|settings| settings.process.metric_names) {
        Some(MetricNames::WithLegacy) => "; the reference's names for Prometheus are there too",
        _ => "",
    };
    steps.push(format!(
        "Watch tollgate_requests_total and tollgate_degraded_total (README, \"Alerts\"){names}. An instance is ready once its \
         rules are loaded and its Redis has answered; the reference does not ask for the rules."
    ));
    let own_keys =
        report.rules.iter().flat_map(|rules| &rules.differences).any(|found| found.id == "own_keys");
    steps.push(match own_keys {
        false => "To roll back, put the old image back: it finds its counters as it left them.".to_owned(),
        true => "To roll back, put the old image and files without tollgate's keys back.".to_owned(),
    });
    steps
}
