//! Differences in behaviour that apply to the rules.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_yaml::Value;
use tollgate::config::{Options, is_of_reference};
use tollgate::rules::{Rule, Rules};
use tollgate::{directory::SourceFiles, metrics::series::MAX_RULES};

use crate::yaml::documents;

/// Difference in behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Stable name, for programs.
    pub id: &'static str,
    /// Description.
    pub text: &'static str,
    /// Step before the switch. `None` if the rules are enforced alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<&'static str>,
    /// Affected files, or rules with their files, sorted.
    pub places: Vec<String>,
}

impl Difference {
    const fn new(id: &'static str, text: &'static str, places: Vec<String>) -> Self {
        Self { id, text, todo: None, places }
    }

    fn with_todo(self, todo: &'static str) -> Self {
        Self { todo: Some(todo), ..self }
    }
}

/// Differences by the names of the files, some without places.
pub(super) fn of_files(files: &SourceFiles, reads_hidden: bool) -> [Difference; 2] {
    let endings = Difference::new(
        "other_endings",
        "envoyproxy/ratelimit loads every file; tollgate loads files that end in .yaml or .yml",
        files.ignored.clone(),
    );
    let hidden = Difference::new(
        "hidden_files",
        "envoyproxy/ratelimit loads files whose names begin with a dot, unless RUNTIME_IGNOREDOTFILES is true; tollgate does not",
        if reads_hidden { files.hidden.clone() } else { Vec::new() },
    );
    [
        endings.with_todo("rename files with rules so that they end in .yaml"),
        hidden.with_todo("rename files with rules so that they begin without a dot"),
    ]
}

/// Differences by the contents of the rules, some without places.
pub(super) fn of_rules(files: &SourceFiles, rules: &Rules, options: Options) -> [Difference; 7] {
    let keeps = |rule: &&Rule| {
        let names_values =
            rule.detailed_metric || rule.segments.iter().any(|segment| segment.value_to_metric);
        rule.metadata.is_some() && names_values
    };
    let count = rules.rule_count();
    [
        Difference::new(
            "no_rules",
            "nothing is limited: the directory has no rules",
            (count == 0).then(|| ".".to_owned()).into_iter().collect(),
        )
        .with_todo("set --config to the directory of the rules"),
        Difference::new(
            "order_of_merged_files",
            "patterns of one domain in several files: envoyproxy/ratelimit matches them in a random order, tollgate in the \
             order of the paths of the files",
            if options.merge_domains { merged_patterns(rules) } else { Vec::new() },
        ),
        Difference::new(
            "joined_names",
            "envoyproxy/ratelimit joins keys and values with `_`, so that requests of these pairs can share a counter (`a` = \
             `b_c` and `a_b` = `c`); in tollgate each has its own",
            super::joined(rules).iter().map(|(a, b)| format!("{} and {}", place(a), place(b))).collect(),
        ),
        Difference::new(
            "metadata_kept",
            "envoyproxy/ratelimit loses the metadata of rules with `detailed_metric` or `value_to_metric`; tollgate returns it",
            places(rules, keeps),
        ),
        Difference::new(
            "own_keys",
            "files with keys that envoyproxy/ratelimit refuses, which prevents a rollback with the same files",
            own_keys(files),
        ),
        Difference::new(
            "bounded_series",
            "metrics of tollgate have at most 1,000 paths with request values, and count the rest under the path of the rule; \
             envoyproxy/ratelimit has no bound",
            places(rules, |rule| rule.has_metric_of_values()),
        ),
        Difference::new(
            "many_rules",
            "metrics of tollgate have series for at most 10,000 rules, and count the rest as `(other)`",
            (count > MAX_RULES).then(|| format!("{count} rules")).into_iter().collect(),
        ),
    ]
}

fn place(rule: &Rule) -> String {
    let (file, line) = &rule.origin;
    format!("{} ({file}:{line})", rule.path())
}

fn places(rules: &Rules, applies: impl Fn(&&Rule) -> bool) -> Vec<String> {
    let mut found: Vec<&Rule> = rules.rules().map(|rule| &**rule).filter(|rule| applies(rule)).collect();
    found.sort_by(|a, b| a.origin.cmp(&b.origin));
    found.into_iter().map(place).collect()
}

/// Domains with first-level patterns in several files, with those files.
fn merged_patterns(rules: &Rules) -> Vec<String> {
    let mut found = BTreeMap::new();
    for domain in rules.domains() {
        let first = domain
            .root
            .rules()
            .filter(|rule| rule.segments.first().is_some_and(|segment| segment.stated.contains('*')));
        let files: BTreeSet<&str> = first.map(|rule| &*rule.origin.0).collect();
        if files.len() > 1 {
            found.insert(&*domain.name, files.into_iter().collect::<Vec<_>>().join(", "));
        }
    }
    found.into_iter().map(|(domain, files)| format!("{domain} ({files})")).collect()
}

/// Files with keys that only tollgate has.
fn own_keys(files: &SourceFiles) -> Vec<String> {
    let has_own = |text: &str| documents(text).iter().take(1).flatten().any(is_extended);
    files.clone().texts().into_iter().filter(|(_, text)| has_own(text)).map(|(name, _)| name).collect()
}

fn is_extended(value: &Value) -> bool {
    match value {
        Value::Mapping(fields) => fields.iter().any(|(key, value)| match key.as_str() {
            // Free-form.
            Some("metadata") => false,
            Some("<<") => is_extended(value),
            key => !key.is_some_and(is_of_reference) || is_extended(value),
        }),
        Value::Sequence(items) => items.iter().any(is_extended),
        Value::Tagged(tagged) => is_extended(&tagged.value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
