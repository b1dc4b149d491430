//! Differences in behaviour that apply to the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use tollgate::config::{Options, is_of_reference};
use tollgate::metrics::series::MAX_RULES;
use tollgate::rules::{Rule, Rules};

use super::{IgnoredFiles, texts};
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
    fn new(id: &'static str, text: &'static str, places: Vec<String>) -> Option<Self> {
        (!places.is_empty()).then_some(Self { id, text, todo: None, places })
    }

    fn with_todo(self, todo: &'static str) -> Self {
        Self { todo: Some(todo), ..self }
    }
}

/// Differences by the names of the files.
pub(super) fn of_files(directory: &Path, reads_hidden: bool) -> Vec<Difference> {
    let Ok(IgnoredFiles { other_endings, hidden, .. }) = IgnoredFiles::of(directory) else {
        return Vec::new();
    };
    let endings = Difference::new(
        "other_endings",
        "envoyproxy/ratelimit loads every file; tollgate loads files that end in .yaml or .yml",
        other_endings,
    );
    let hidden = if reads_hidden { hidden } else { Vec::new() };
    let hidden = Difference::new(
        "hidden_files",
        "envoyproxy/ratelimit loads files whose names begin with a dot, unless RUNTIME_IGNOREDOTFILES is true; tollgate does not",
        hidden,
    );
    let endings = endings.map(|found| found.with_todo("rename files with rules so that they end in .yaml"));
    let hidden =
        hidden.map(|found| found.with_todo("rename files with rules so that they begin without a dot"));
    [endings, hidden].into_iter().flatten().collect()
}

/// Differences by the contents of the rules.
pub(super) fn of_rules(directory: &Path, rules: &Rules, options: Options) -> Vec<Difference> {
    let keeps = |rule: &&Rule| {
        let names_values =
            rule.detailed_metric || rule.segments.iter().any(|segment| segment.value_to_metric);
        rule.metadata.is_some() && names_values
    };
    let found = [
        Difference::new(
            "no_rules",
            "nothing is limited: the directory has no rules",
            if rules.rule_count() == 0 { vec![".".to_owned()] } else { Vec::new() },
        )
        .map(|difference| difference.with_todo("set --config to the directory of the rules")),
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
            own_keys(directory),
        ),
    ];
    found.into_iter().chain(of_metrics(rules)).flatten().collect()
}

/// Differences in metrics.
fn of_metrics(rules: &Rules) -> [Option<Difference>; 2] {
    let of_values = |rule: &&Rule| rule.has_metric_of_values();
    [
        Difference::new(
            "bounded_series",
            "metrics of tollgate have at most 1,000 paths with request values, and count the rest under the path of the rule; \
             envoyproxy/ratelimit has no bound",
            places(rules, of_values),
        ),
        Difference::new(
            "many_rules",
            "metrics of tollgate have series for at most 10,000 rules, and count the rest as `(other)`",
            if rules.rule_count() > MAX_RULES {
                vec![format!("{} rules", rules.rule_count())]
            } else {
                Vec::new()
            },
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
fn own_keys(directory: &Path) -> Vec<String> {
    let has_own = |text: &str| documents(text).iter().take(1).flatten().any(is_extended);
    texts(directory).into_iter().filter(|(_, text)| has_own(text)).map(|(name, _)| name).collect()
}

fn is_extended(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| match key.as_str() {
            // Free-form.
            "metadata" => false,
            "<<" => is_extended(value),
            key => !is_of_reference(key) || is_extended(value),
        }),
        Value::Array(items) => items.iter().any(is_extended),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
