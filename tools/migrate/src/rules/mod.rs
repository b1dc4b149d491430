//! Rules of a deployment: their contents, and the differences in behaviour.

mod differences;
mod files;
mod names;

use std::{fs, path::Path};

use serde::Serialize;
use tollgate::{
    config::{self, LoadError, Loaded, Options, Severity},
    limiter::explain::limit_text,
    quota::Unit,
    rules::{Limit, Rules},
};

pub use self::differences::Difference;

/// Contents of a directory of rules.
#[derive(Debug, Serialize)]
pub struct RulesReport {
    /// Directory.
    pub directory: String,
    /// Number of loaded files.
    pub files: usize,
    /// Number of domains.
    pub domains: usize,
    /// Number of rules.
    pub rules: usize,
    /// Errors that prevent loading.
    pub problems: Vec<String>,
    /// Likely mistakes.
    pub warnings: Vec<String>,
    /// Differences in behaviour with these rules.
    pub differences: Vec<Difference>,
    /// Description of the rule with the longest window, if that is an hour or more.
    pub longest_window: Option<String>,
}

impl RulesReport {
    /// Reads a directory of rules. `reads_hidden`: whether the reference reads files whose names begin with a dot.
    pub(super) fn of(directory: &Path, options: Options, reads_hidden: bool) -> Self {
        let mut report = Self {
            directory: directory.display().to_string(),
            files: 0,
            domains: 0,
            rules: 0,
            problems: Vec::new(),
            warnings: Vec::new(),
            differences: Vec::new(),
            longest_window: None,
        };
        match config::load(directory, &options) {
            Ok(loaded) => report.add_valid(directory, &loaded, options, reads_hidden),
            Err(LoadError::Invalid { report: found, .. }) => {
                report.files = file_count(directory);
                for problem in found.problems() {
                    match problem.severity {
                        Severity::Error => report.problems.push(problem.to_string()),
                        Severity::Warning => report.warnings.push(problem.to_string()),
                    }
                }
                report.differences = differences::of_files(directory, reads_hidden);
                report.remove_duplicate_warnings();
            }
            Err(error) => report.problems.push(error.to_string()),
        }
        report
    }

    fn add_valid(&mut self, directory: &Path, loaded: &Loaded, options: Options, reads_hidden: bool) {
        self.files = file_count(directory);
        self.domains = loaded.rules.domains().count();
        self.rules = loaded.rules.rule_count();
        self.warnings = loaded.warnings.problems().iter().map(ToString::to_string).collect();
        self.longest_window = longest_window(&loaded.rules);
        self.differences = differences::of_files(directory, reads_hidden);
        self.differences.extend(differences::of_rules(directory, &loaded.rules, options));
        self.remove_duplicate_warnings();
    }

    /// Removes warnings of ignored files that a difference reports too.
    fn remove_duplicate_warnings(&mut self) {
        let reported: Vec<String> =
            self.differences.iter().flat_map(|difference| difference.places.clone()).collect();
        self.warnings.retain(|warning| {
            !reported.iter().any(|file| warning.starts_with(&format!("{file}: warning: ignored:")))
        });
    }

    /// Whether the rules behave as in the reference, without a change to their files.
    pub(super) fn is_good(&self) -> bool {
        self.problems.is_empty() && !self.differences.iter().any(|difference| difference.todo.is_some())
    }
}

fn file_count(directory: &Path) -> usize {
    config::read(directory).map_or(0, |files| files.len())
}

/// The first rule with the longest window, with its limit and place, if that window is an hour or more.
fn longest_window(rules: &Rules) -> Option<String> {
    let counted = rules.domains().flat_map(|domain| domain.root.rules().map(move |rule| (domain, rule)));
    let windows = counted.filter_map(|(domain, rule)| match rule.limit {
        Limit::Quota { quota, .. } if quota.window.seconds() >= Unit::Hour.seconds() => {
            Some((quota.window.seconds(), domain, rule))
        }
        Limit::Unlimited | Limit::Quota { .. } => None,
    });
    let (_, domain, rule) =
        windows.min_by(|(a, _, one), (b, _, other)| b.cmp(a).then_with(|| one.origin.cmp(&other.origin)))?;
    let (file, line) = &rule.origin;
    Some(format!("{}.{} ({file}:{line}): {}", domain.name, rule.path(), limit_text(domain, rule)))
}

/// Contents of the files of a directory, by name.
fn texts(directory: &Path) -> Vec<(String, String)> {
    config::read(directory).map(|files| files.into_iter().collect()).unwrap_or_default()
}

/// Whether a directory exists.
pub(super) fn exists(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.is_dir())
}
