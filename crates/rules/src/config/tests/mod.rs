//! Loading of configurations: files in a directory to rules and problems.

mod accepted;
mod algorithm_parameters;
mod amounts;
mod ban;
mod bombs;
mod calendar;
mod changed_windows;
mod charging;
mod examples;
mod extensions;
mod files;
mod load_shedding;
mod mistakes;
mod notify;
mod overdraft;
mod overriding;
mod reserve;
mod rollout;
mod several;
mod suspicious;
mod sync;
mod weight;
mod regions;
mod yaml;

use std::{fs, path::Path, sync::Arc};

use tempfile::TempDir;
use tollgate_core::{algorithm::Policy, descriptor::Entry, quota::Quota};

use super::{LoadError, Loaded, Options, load, load_files};
use crate::{Limit, Rule, Rules};

const LIMIT: &str = "rate_limit: {unit: day, requests_per_unit: 1}";

/// Creates a directory with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, content) in files {
        write(directory.path(), name, content);
    }
    directory
}

fn write(directory: &Path, name: &str, content: &str) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// The rules of one file.
pub(crate) fn rules_of(yaml: &str) -> Rules {
    loads(yaml).rules
}

fn load_all(files: &[(&str, &str)], options: Options) -> Result<Loaded, LoadError> {
    load(directory(files).path(), &options)
}

/// Loads one file that causes no warnings.
fn clean(yaml: &str) -> Loaded {
    let loaded = loads(yaml);
    assert_eq!(loaded.warnings.to_string(), "");
    loaded
}

/// Loads one file.
fn loads(yaml: &str) -> Loaded {
    load_all(&[("a.yaml", yaml)], Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Errors of one file.
fn errors(yaml: &str) -> String {
    load_all(&[("a.yaml", yaml)], Options::default()).expect_err("it loads").to_string()
}

/// Warnings of one file, which are errors under `strict`.
fn warnings(yaml: &str) -> String {
    let warnings = loads(yaml).warnings.to_string();
    let strict = Options { strict: true, ..Options::default() };
    let errors = load_all(&[("a.yaml", yaml)], strict).expect_err("it loads though strict").to_string();
    assert_eq!(warnings.replace(" warning:", ""), errors);
    warnings
}

/// The rule of the domain `d` that a descriptor matches.
fn rule(loaded: &Loaded, entries: &[(&str, &str)]) -> Option<Arc<Rule>> {
    let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
    loaded.rules.domain("d").expect("has the domain").root.rule(&entries).cloned()
}

/// The rule of the descriptor `k` in a file that causes no warnings.
fn rule_of(yaml: &str) -> Arc<Rule> {
    rule(&clean(yaml), &[("k", "x")]).expect("matches")
}

fn limit_of(rule: &Rule) -> (Quota, Policy) {
    match rule.limit {
        Limit::Quota { quota, policy } => (quota, policy),
        Limit::Unlimited => panic!("is unlimited"),
    }
}

/// A file of the domain `d` with these descriptors, indented by two.
fn domain(descriptors: &str) -> String {
    format!("domain: d\ndescriptors:\n{descriptors}")
}

/// The descriptor `k` with these keys of a limit in line 5, below these keys of `defaults` in line 2.
fn with(defaults: &str, limit: &str) -> String {
    format!("domain: d\ndefaults: {{{defaults}}}\ndescriptors:\n  - key: k\n    rate_limit: {{{limit}}}\n")
}

/// The descriptor `k` with these keys, and a limit of 60 a minute with these keys besides in line 5.
fn minutely(descriptor: &str, limit: &str) -> String {
    domain(&format!(
        "  - key: k\n    {descriptor}\n    rate_limit: {{unit: minute, requests_per_unit: 60, {limit}}}\n"
    ))
}

/// Asserts that the text contains each of `parts`.
#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
}
