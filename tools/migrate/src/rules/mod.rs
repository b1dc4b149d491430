//! Rules of a deployment: their contents, and the differences in behaviour.

mod differences;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde::Serialize;
use tollgate::config::{self, LoadError, Options, Severity};
use tollgate::rules::{Limit, Rule, Rules, Value, limit_text};
use tollgate::{directory, quota::Unit};

pub use self::differences::Difference;

/// Contents of a directory of rules.
#[derive(Debug, Default, Serialize)]
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
        let mut report = Self { directory: directory.display().to_string(), ..Self::default() };
        let files = match directory::read(directory) {
            Ok(files) => files,
            Err(error) => return Self { problems: vec![error.to_string()], ..report },
        };
        report.files = files.readable().count();
        report.differences.extend(differences::of_files(&files, reads_hidden));
        match config::compile_files(files.clone(), options) {
            Ok(loaded) => {
                report.domains = loaded.rules.domains().count();
                report.rules = loaded.rules.rule_count();
                report.warnings = loaded.warnings.problems.iter().map(ToString::to_string).collect();
                report.longest_window = longest_window(&loaded.rules);
                report.differences.extend(differences::of_rules(&files, &loaded.rules, options));
            }
            Err(LoadError::Invalid { report: found, .. }) => {
                for problem in &found.problems {
                    match problem.severity {
                        Severity::Error => report.problems.push(problem.to_string()),
                        Severity::Warning => report.warnings.push(problem.to_string()),
                    }
                }
            }
            Err(error) => report.problems.push(error.to_string()),
        }
        report.differences.retain(|difference| !difference.places.is_empty());
        report.remove_duplicate_warnings();
        report
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

/// The first rule with the longest window, with its limit and place, if that window is an hour or more.
fn longest_window(rules: &Rules) -> Option<String> {
    let counted = rules.rules_of_domains();
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

/// Path of a rule: its keys with their stated values.
type RulePath<'a> = Vec<(&'a str, &'a str)>;

/// Pairs of rules of one domain whose counters can have one name in the reference: one rule leaves the value of `a`
/// open, the other that of `a_b`. Sorted.
pub(super) fn joined(rules: &Rules) -> Vec<(Arc<Rule>, Arc<Rule>)> {
    let mut pairs = Vec::new();
    for domain in rules.domains() {
        let counted: Vec<(&Arc<Rule>, u32)> =
            domain.root.rules().filter_map(|rule| Some((rule, window(rule)?))).collect();
        let paths: BTreeMap<(RulePath<'_>, u32), &Arc<Rule>> =
            counted.iter().map(|(rule, window)| ((path(rule), *window), *rule)).collect();
        for (rule, window) in counted {
            for other in shorter(rule).filter_map(|path| paths.get(&(path, window))) {
                pairs.push((Arc::clone(other), Arc::clone(rule)));
            }
        }
    }
    pairs.sort_by_key(|(a, b)| (a.origin.clone(), b.origin.clone()));
    pairs
}

/// Window in seconds: only counters of equal windows share names.
fn window(rule: &Rule) -> Option<u32> {
    match rule.limit {
        Limit::Unlimited => None,
        Limit::Quota { quota, .. } => Some(quota.window.seconds()),
    }
}

fn path(rule: &Rule) -> RulePath<'_> {
    rule.segments.iter().map(|segment| (&*segment.key, &*segment.stated)).collect()
}

/// Paths of a rule with one of its open keys cut at a `_`, for each `_`.
fn shorter(rule: &Rule) -> impl Iterator<Item = RulePath<'_>> {
    let open = rule.segments.iter().enumerate().filter(|(_, segment)| {
        segment.value == Value::Open && *segment.key == *segment.stated && !segment.key.contains('*')
    });
    open.flat_map(move |(at, segment)| {
        segment.key.match_indices('_').filter_map(move |(cut, _)| {
            let key = segment.key.get(..cut).filter(|key| !key.is_empty())?;
            let mut path = path(rule);
            *path.get_mut(at)? = (key, key);
            Some(path)
        })
    })
}
