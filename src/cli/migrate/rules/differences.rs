//! What behaves differently with the rules that were read. What does not apply to them is not told.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Serialize;
use serde_json::Value;

use super::{super::yaml::documents, files::Passed, names, texts};
use crate::{
    config::{Options, is_of_reference},
    metrics::series::MAX_RULES,
    rules::{Rule, Rules},
};

/// What behaves differently, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name, for programs.
    pub id: &'static str,
    /// What differs, and why.
    pub text: &'static str,
    /// What to do before the switch; nothing where the rules are enforced as they are there all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<&'static str>,
    /// Where it applies: files, or rules with theirs. Sorted.
    pub places: Vec<String>,
}

impl Difference {
    fn new(id: &'static str, text: &'static str, places: Vec<String>) -> Option<Self> {
        (!places.is_empty()).then_some(Self { id, text, todo: None, places })
    }

    fn wants(self, todo: &'static str) -> Self {
        Self { todo: Some(todo), ..self }
    }
}

/// What differs by the names of the files.
pub(super) fn of_files(directory: &Path, reads_hidden: bool) -> Vec<Difference> {
    let Ok(Passed { other_endings, hidden, .. }) = Passed::of(directory) else { return Vec::new() };
    let endings = Difference::new(
        "other_endings",
        "the reference loads every file; tollgate those that end in .yaml or .yml",
        other_endings,
    );
    let hidden = if reads_hidden { hidden } else { Vec::new() };
    let hidden = Difference::new(
        "hidden_files",
        "the reference loads files whose names begin with a dot, unless RUNTIME_IGNOREDOTFILES is true; tollgate never does",
        hidden,
    );
    let endings = endings.map(|found| found.wants("rename those with rules, so that they end in .yaml"));
    let hidden = hidden.map(|found| found.wants("rename those with rules, without the dot"));
    [endings, hidden].into_iter().flatten().collect()
}

/// What differs by what the rules say.
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
        .map(|difference| difference.wants("name the directory with the rules by --config")),
        Difference::new(
            "order_of_merged_files",
            "patterns of one domain in several files: the reference tries them in an order that changes from load to load, \
             tollgate in the order of the files' paths",
            if options.merge_domains { merged_patterns(rules) } else { Vec::new() },
        ),
        Difference::new(
            "joined_names",
            "the reference joins keys and values by `_`, so that requests of these pairs can share a counter there (`a` = \
             `b_c` and `a_b` = `c`); here each has its own",
            names::joined(rules).iter().map(|(a, b)| format!("{} and {}", place(a), place(b))).collect(),
        ),
        Difference::new(
            "metadata_kept",
            "the reference loses the metadata of rules that have `detailed_metric` or `value_to_metric`; here it is in answers",
            places(rules, keeps),
        ),
        Difference::new(
            "own_keys",
            "these files have keys that the reference refuses: it can't go back to them",
            own_keys(directory),
        ),
    ];
    found.into_iter().chain(of_metrics(rules)).flatten().collect()
}

/// What differs in metrics.
fn of_metrics(rules: &Rules) -> [Option<Difference>; 2] {
    let of_values = |rule: &&Rule| rule.has_metric_of_values();
    [
        Difference::new(
            "bounded_series",
            "metrics name values of requests for 1,000 paths at most, and count the rest under the rule's own; the reference \
             has no bound",
            places(rules, of_values),
        ),
        Difference::new(
            "many_rules",
            "metrics have a series for each of 10,000 rules at most, and count the rest as `(other)`",
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

/// Domains with patterns on their first level in several files, with these.
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

/// The files with keys that are ours.
fn own_keys(directory: &Path) -> Vec<String> {
    let has_own = |text: &str| documents(text).iter().take(1).flatten().any(is_extended);
    texts(directory).into_iter().filter(|(_, text)| has_own(text)).map(|(name, _)| name).collect()
}

fn is_extended(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| match key.as_str() {
            // It may say anything.
            "metadata" => false,
            "<<" => is_extended(value),
            key => !is_of_reference(key) || is_extended(value),
        }),
        Value::Array(items) => items.iter().any(is_extended),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
