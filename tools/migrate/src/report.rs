//! Report of `tollgate-migrate`, without secrets.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tollgate::{config::Options, control::RulesSource};

use crate::effective::{EffectiveSettings, Setting};
use crate::plan::{self, VariableReport};
use crate::rules::RulesReport;
use crate::source::Deployment;

/// Default directory of the rules of the reference.
const DEFAULT_DIRECTORY: &str = "/srv/runtime_data/current/config";

/// Report of a migration.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether the deployment works unchanged.
    pub verdict: Verdict,
    /// Source of the variables.
    pub source: String,
    /// Variables with an unknown value.
    pub not_seen: Vec<String>,
    /// Reasons why startup would fail.
    pub problems: Vec<String>,
    /// Startup warnings.
    pub notices: Vec<String>,
    /// Settings that are not at their defaults.
    pub settings: Vec<Setting>,
    /// Effects of the variables of the reference and of tollgate.
    pub variables: Vec<VariableReport>,
    /// Variables of neither.
    pub others: Vec<String>,
    /// Rules, if found.
    pub rules: Option<RulesReport>,
    /// Reason why the rules were not found.
    pub rules_not_seen: Option<String>,
    /// Steps, in order.
    pub plan: Vec<String>,
}

/// Whether a deployment works unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Works with the same variables and files.
    Unchanged,
    /// Needs a change or a review first.
    ToBeChanged,
}

impl Report {
    /// Reports on a deployment. `directory` overrides the directory of the rules that its variables name.
    pub(super) fn of(deployment: Deployment, directory: Option<&Path>) -> Self {
        let Deployment { source, variables, not_seen } = deployment;
        let found = EffectiveSettings::of(variables);
        let (rules, rules_not_seen) = match rules_of(&found, directory) {
            Ok(rules) => (rules, None),
            Err(reason) => (None, Some(reason)),
        };
        let is_good = found.problems.is_empty()
            && rules_not_seen.is_none()
            && !found.settings.as_deref().is_some_and(plan::is_behind_twemproxy)
            && rules.as_ref().is_none_or(RulesReport::is_good);
        let verdict = if is_good { Verdict::Unchanged } else { Verdict::ToBeChanged };
        let mut report = Self {
            verdict,
            source,
            not_seen,
            problems: found.problems,
            notices: found.notices,
            settings: found.changed,
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

/// The rules, unless they are not in a directory, or the reason why they are not found.
fn rules_of(found: &EffectiveSettings, directory: Option<&Path>) -> Result<Option<RulesReport>, String> {
    let settings = found.settings.as_ref().map(|settings| &settings.rules);
    let options = settings.map_or_else(Options::default, |rules| rules.options);
    if let Some(directory) = directory {
        return Ok(Some(RulesReport::of(directory, options, found.reads_hidden_files)));
    }
    if settings.is_some_and(|rules| rules.source != RulesSource::Directory) {
        return Ok(None);
    }
    let directory = match (&found.directory, settings) {
        (Some(directory), _) => directory.clone(),
        (None, Some(_)) => PathBuf::from(DEFAULT_DIRECTORY),
        (None, None) => return Err("directory unknown; expected --config DIR".to_owned()),
    };
    match directory.is_dir() {
        true => Ok(Some(RulesReport::of(&directory, options, found.reads_hidden_files))),
        false => {
            Err(format!("{} does not exist here; expected --config DIR with a copy", directory.display()))
        }
    }
}
