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

/// A release is built, listed and signed; a slower row becomes a comment; every fuzz target runs each night; dependencies of
/// both workspaces are audited.
#[test]
fn every_step_runs() {
    ["release", "benchmarks", "fuzz", "audit"].into_iter().for_each(dry_run);
}
