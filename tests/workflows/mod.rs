//! `.github`: workflows keep rules of security, and each step that is a command runs, with stand-ins for the programs that
//! reach others. `tests/lint/run.sh` has actionlint.

use crate::{deploy::python, support::prelude::*};

fn dry_run(workflow: &str) {
    let problems = python(&["tests/workflows/dry_run.py", workflow], Vec::new());
    assert_eq!(problems, json!([]), "{workflow}");
}

#[test]
fn actions_are_pinned_and_jobs_have_few_permissions() {
    assert_eq!(python(&["tests/workflows/rules.py"], Vec::new()), json!([]));
}

#[test]
fn a_release_is_built_listed_and_signed() {
    dry_run("release");
}

#[test]
fn a_slower_row_becomes_a_comment() {
    dry_run("benchmarks");
}

#[test]
fn every_fuzz_target_runs_each_night() {
    dry_run("fuzz");
}

#[test]
fn dependencies_of_both_workspaces_are_audited() {
    dry_run("audit");
}
