//! Rules of a deployment: their contents, and the differences in behaviour.

mod differences;

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use serde::Serialize;
use tollgate::config::{self, LoadError, Loaded, Options, Severity};
use tollgate::rules::{Limit, Rule, Rules, Value};
use tollgate::{directory, limiter::explain::limit_text, quota::Unit};

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
                for problem in &found.problems {
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
        self.warnings = loaded.warnings.problems.iter().map(ToString::to_string).collect();
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
    texts(directory).len()
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

/// Contents of the files of a directory, by name.
fn texts(directory: &Path) -> Vec<(String, String)> {
    directory::read(directory).map(|files| files.texts().into_iter().collect()).unwrap_or_default()
}

/// Whether a directory exists.
pub(super) fn exists(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.is_dir())
}

/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;
/// Maximum number of files and directories.
const MAX_ENTRIES: usize = 20_000;

/// Files that the reference loads and tollgate does not, sorted, with paths relative to the directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IgnoredFiles {
    /// Files without the extension `.yaml` or `.yml`.
    pub(super) other_endings: Vec<String>,
    /// Files whose names begin with a dot.
    pub(super) hidden: Vec<String>,
    entries: usize,
}

impl IgnoredFiles {
    /// Walks a directory. Links to directories are not followed, as in the reference.
    ///
    /// # Errors
    /// The directory cannot be read, or is too large for a directory of rules.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let mut ignored = Self::default();
        ignored.walk(directory, "", 0)?;
        ignored.other_endings.sort_unstable();
        ignored.hidden.sort_unstable();
        Ok(ignored)
    }

    fn walk(&mut self, directory: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            self.entries = self.entries.saturating_add(1);
            if self.entries > MAX_ENTRIES || depth > MAX_DEPTH {
                return Err(io::Error::other("too many files and directories"));
            }
            let file = entry.file_name();
            let (file, name) = (file.to_string_lossy(), format!("{prefix}{}", file.to_string_lossy()));
            let is_hidden = file.starts_with('.');
            match fs::metadata(entry.path()) {
                // Kubernetes keeps the versions of a ConfigMap in hidden directories.
                Ok(metadata) if metadata.is_dir() && is_hidden => {}
                Ok(metadata) if metadata.is_dir() && !entry.path().is_symlink() => {
                    self.walk(&entry.path(), &format!("{name}/"), depth.saturating_add(1))?;
                }
                Ok(metadata) if metadata.is_file() && is_hidden => self.hidden.push(name),
                Ok(metadata) if metadata.is_file() && !is_yaml(&file) => self.other_endings.push(name),
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_yaml(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with(".yml")
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
