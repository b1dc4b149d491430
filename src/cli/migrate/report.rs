//! What `tollgate migrate` finds. It has no secret.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    plan,
    rules::{self, RulesReport},
    source::Deployment,
};
use crate::{
    config::Options,
    control::RulesSource,
    settings::{EffectiveSettings, VariableReport},
};

/// Where the reference looks for rules when nobody says.
const USUAL_DIRECTORY: &str = "/srv/runtime_data/current/config";

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether the deployment works as it is.
    pub verdict: Verdict,
    /// Where its variables are from.
    pub source: String,
    /// What was not seen of them.
    pub not_seen: Vec<String>,
    /// Why tollgate does not start with these variables.
    pub problems: Vec<String>,
    /// What it tells at the start.
    pub notices: Vec<String>,
    /// Every setting of tollgate that they make other than its default.
    pub settings: Vec<Setting>,
    /// The variables of the reference and of tollgate, and what becomes of each.
    pub variables: Vec<VariableReport>,
    /// Variables that neither of the two has.
    pub others: Vec<String>,
    /// The rules, where they were found.
    pub rules: Option<RulesReport>,
    /// Why they were not.
    pub rules_not_seen: Option<String>,
    /// What to do, in this order.
    pub plan: Vec<String>,
}

/// Whether a deployment works as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// With the same variables and the same files.
    Unchanged,
    /// Something has to be changed, or looked at, before.
    ToBeChanged,
}

/// A setting of tollgate.
#[derive(Debug, Serialize)]
pub struct Setting {
    /// The flag, with its dashes.
    pub flag: String,
    /// Its variable.
    pub variable: String,
    /// Its value, in which `***` stands for a secret.
    pub value: String,
    /// Whether it has one.
    pub is_secret: bool,
    /// The variables that it comes from.
    pub from: Vec<String>,
}

impl Report {
    /// Looks at a deployment. `directory` is where its rules are, if not where its variables say.
    pub(super) fn of(deployment: Deployment, directory: Option<&Path>) -> Self {
        let Deployment { source, variables, not_seen } = deployment;
        let found = EffectiveSettings::of(variables);
        let rules = rules_of(&found, directory);
        let (rules, rules_not_seen) = match rules {
            Seen::Rules(rules) => (Some(rules), None),
            Seen::Not(reason) => (None, Some(reason)),
            Seen::Elsewhere => (None, None),
        };
        let is_good = found.problems.is_empty()
            && rules_not_seen.is_none()
            && !found.settings.as_deref().is_some_and(plan::is_behind_twemproxy)
            && rules.as_ref().is_none_or(RulesReport::is_good);
        let verdict = if is_good { Verdict::Unchanged } else { Verdict::ToBeChanged };
        let settings = found.changed.iter().map(|changed| Setting {
            flag: changed.flag.clone(),
            variable: changed.variable.clone(),
            value: changed.shown.clone(),
            is_secret: changed.is_secret(),
            from: changed.from.clone(),
        });
        let mut report = Self {
            verdict,
            source,
            not_seen,
            problems: found.problems,
            notices: found.notices,
            settings: settings.collect(),
            variables: found.variables,
            others: found.others,
            rules,
            rules_not_seen,
            plan: Vec::new(),
        };
        report.plan = plan::of(&report, found.settings.as_deref());
        report
    }
}

/// Whether the rules were found.
enum Seen {
    Rules(RulesReport),
    Not(String),
    /// They are in no directory.
    Elsewhere,
}

fn rules_of(found: &EffectiveSettings, directory: Option<&Path>) -> Seen {
    let settings = found.settings.as_ref().map(|settings| &settings.rules);
    let options = settings.map_or_else(Options::default, |rules| rules.options);
    if let Some(directory) = directory {
        return Seen::Rules(RulesReport::of(directory, options, found.reads_hidden_files));
    }
    if settings.is_some_and(|rules| rules.source != RulesSource::Directory) {
        return Seen::Elsewhere;
    }
    let directory = match (&found.directory, settings) {
        (Some(directory), _) => directory.clone(),
        (None, Some(_)) => PathBuf::from(USUAL_DIRECTORY),
        (None, None) => return Seen::Not("--config DIR names their directory".to_owned()),
    };
    match rules::is_there(&directory) {
        true => Seen::Rules(RulesReport::of(&directory, options, found.reads_hidden_files)),
        false => Seen::Not(format!("{} is not here; --config DIR names a copy of it", directory.display())),
    }
}
