//! What becomes of each variable of an environment.

use std::fmt;

use serde::Serialize;

use super::{
    environment::{Environment, Found},
    reference::catalogue::{self, Fate, Variable},
    value::boolean,
};

/// A variable that was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub outcome: Outcome,
    /// The flag with its dashes, or the reason.
    pub detail: String,
}

/// What becomes of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is a flag, or part of one.
    Flag,
    /// It says what is so when nobody says anything, or nothing at all.
    Default,
    /// What it can ask for is always done.
    Always,
    /// It says whether others count.
    Switch,
    /// It goes with another variable.
    With,
    /// It does nothing, which is told at the start.
    NoEffect,
    /// It stops the start.
    Refused,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = &self.detail;
        match self.outcome {
            Outcome::Flag => f.write_str(detail),
            Outcome::Default if detail.is_empty() => f.write_str("nothing: it is so anyway"),
            Outcome::Default => write!(f, "nothing: {detail}"),
            Outcome::Always => write!(f, "always so: {detail}"),
            Outcome::Switch => f.write_str(detail),
            Outcome::With => write!(f, "goes with {detail}"),
            Outcome::NoEffect => write!(f, "no effect: {detail}"),
            Outcome::Refused => write!(f, "refused: {detail}"),
        }
    }
}

/// What becomes of the variables of these names, of the reference's and of ours, and which are neither; both sorted.
/// `chosen` are the flags that are not at their defaults.
pub(super) fn judge(
    names: impl IntoIterator<Item = String>,
    environment: &Environment,
    found: &Found,
    chosen: &[String],
) -> (Vec<Judged>, Vec<String>) {
    let (mut judged, mut others) = (Vec::new(), Vec::new());
    for name in names {
        let theirs = catalogue::all().find(|variable| variable.name == name);
        let outcome = match (theirs, environment.get(&name)) {
            (Some(_), None) => {
                Some((Outcome::Default, "it is empty, which is as if it were not set".to_owned()))
            }
            (Some(variable), Some(value)) => {
                let told = told(&name, found).or_else(|| flag(&name, found, chosen));
                Some(told.unwrap_or_else(|| by_fate(variable, value, found, chosen)))
            }
            (None, _) => told(&name, found).or_else(|| flag(&name, found, chosen)).or_else(|| {
                name.starts_with("DOG_STATSD_MOGRIFIER_").then(|| with("USE_DOG_STATSD_MOGRIFIERS"))
            }),
        };
        match outcome {
            Some((outcome, detail)) => judged.push(Judged { name, outcome, detail }),
            None => others.push(name),
        }
    }
    judged.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    others.sort_unstable();
    (judged, others)
}

/// What the start says of it.
fn told(name: &str, found: &Found) -> Option<(Outcome, String)> {
    for problem in &found.problems {
        let problem = problem.to_string();
        if let Some((names, reason)) = problem.split_once(": ")
            && names.split(" with ").any(|known| known == name)
        {
            return Some((Outcome::Refused, reason.to_owned()));
        }
    }
    found.notices.iter().find_map(|notice| {
        let rest = notice.strip_prefix(name)?.strip_prefix(' ')?;
        let reason = rest.strip_prefix("has no effect: ").unwrap_or(rest);
        Some((Outcome::NoEffect, reason.to_owned()))
    })
}

/// The flag that it makes, if it does.
fn flag(name: &str, found: &Found, chosen: &[String]) -> Option<(Outcome, String)> {
    let makes = |names: &str| names.split(" with ").any(|known| known == name);
    let (flag, _) = found.said.iter().find(|(_, names)| makes(names))?;
    Some(match chosen.contains(flag) {
        true => (Outcome::Flag, format!("--{flag}")),
        false => (Outcome::Default, String::new()),
    })
}

fn by_fate(variable: &Variable, value: &str, found: &Found, chosen: &[String]) -> (Outcome, String) {
    let is_default = variable.is_default(value) == Ok(true) || boolean(value) == Ok(false);
    match variable.fate {
        // Where something is wrong with the flag, nobody has set it.
        Fate::Same(flag) | Fate::Part(flag)
            if !chosen.iter().any(|known| known == flag) && (is_default || found.problems.is_empty()) =>
        {
            (Outcome::Default, String::new())
        }
        Fate::Same(flag) | Fate::Part(flag) => (Outcome::Flag, format!("--{flag}")),
        Fate::Switch(what) => (Outcome::Switch, what.replace('`', "")),
        Fate::Always(what) => (Outcome::Always, what.replace('`', "")),
        Fate::Of(other) => with(other),
        Fate::NoEffect(_) | Fate::Refused { .. } if is_default => (Outcome::Default, String::new()),
        Fate::NoEffect(reason) | Fate::Refused { reason, .. } => (Outcome::NoEffect, reason.replace('`', "")),
    }
}

fn with(other: &str) -> (Outcome, String) {
    (Outcome::With, other.to_owned())
}
