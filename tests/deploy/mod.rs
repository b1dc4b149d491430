//! Checks of `deploy/`: each file is run, or checked against the program that it configures.

mod compose;
mod debian;
mod envoy;
mod helm;
mod image;
mod istio;
pub(crate) mod manifests;
mod mutations;
mod pgo;
mod redis;
mod rolling_restart;

use std::os::unix::fs::PermissionsExt as _;

use tokio::task::spawn_blocking;
use tollgate::config::{self, Options};
use tollgate::settings;

use crate::support::prelude::*;

/// A copy of rules of the project, with windows of an hour in place of a minute, which would end on the way.
fn by_the_hour(rules: &str) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(project(rules)).expect("a directory") {
        let path = entry.expect("read").path();
        let yaml = fs::read_to_string(&path).expect("readable");
        let file = copy.path().join(path.file_name().expect("a file"));
        fs::write(file, yaml.replace("unit: minute", "unit: hour")).expect("writable");
    }
    copy
}

/// A program that `tests/run.sh` installs.
fn installed(path: &str) -> PathBuf {
    let program = project(path);
    assert!(program.exists(), "{path} is missing; `tests/run.sh install` installs it");
    program
}

/// The JSON output of a Python script for `input`, with the packages that `tests/run.sh` installs.
pub(crate) fn python(arguments: &[&str], input: impl Into<Vec<u8>>) -> Value {
    let mut script = Command::new(installed("target/tools/bin/python"));
    let ended = ended_with(script.args(arguments).current_dir(project(".")), input);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

/// The documents of a file of the project.
fn documents(path: &str) -> Vec<Value> {
    let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    let documents = python(&["-c", script], fs::read(project(path)).expect("readable"));
    documents.as_array().expect("a list").clone()
}

/// The one document of a file of the project.
fn yaml(path: &str) -> Value {
    let mut all = documents(path);
    assert_eq!(all.len(), 1, "{path}");
    all.remove(0)
}
