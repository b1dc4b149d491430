//! Summary at the end of a failed test run, and the repetition of failed tests.

use std::os::unix::fs::PermissionsExt;

use crate::support::prelude::*;

/// Output of `cargo test` for two failing tests, one of which panics twice, and a crate that does not compile.
const CARGO_OUTPUT: &str = "\
test a::works ... ok
test a::fails ... FAILED
thread 'not::captured' (7) panicked at tests/early.rs:1:1:

failures:

---- a::fails stdout ----
slowest: 3 ms

thread 'a::fails' (12) panicked at tests/a.rs:87:5:
assertion `left == right` failed
  left: None
 right: Some(2)
stack backtrace:
   0: std::panicking
---- b::c::fails_too stdout ----
thread '<unnamed>' (13) panicked at tests/b.rs:1:2:
first
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
thread 'b::c::fails_too' (14) panicked at tests/b.rs:3:4:
second


failures:
    a::fails
    b::c::fails_too

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3.00s

error: test failed, to rerun pass `--test integration`
error[E0308]: mismatched types
error: 1 target failed:
";

/// Runs a script of the tests with a log.
fn run(script: &str, directory: &Path, log: &str) -> Ended {
    let path = directory.join("log");
    fs::write(&path, log).expect("written");
    ended(Command::new(project(script)).arg(&path))
}

#[test]
fn each_failed_test_is_listed_with_its_panics() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = run("tests/failure_summary.sh", directory.path(), CARGO_OUTPUT);
    assert_eq!(output.code, Some(0), "{output:?}");
    let expected = "
== what failed

a::fails
    panicked at tests/a.rs:87:5:
    assertion `left == right` failed
      left: None
     right: Some(2)

b::c::fails_too
    panicked at tests/b.rs:1:2:
    first
    panicked at tests/b.rs:3:4:
    second

error[E0308]: mismatched types

2 failed with a panic
";
    assert_eq!(output.stdout, expected);
}

/// Output of `cargo test` for failed tests of one program.
fn failures(program: &Path, names: &[&str]) -> String {
    let names: String = names.iter().map(|name| format!("    {name}\n")).collect();
    format!(
        "     Running tests/main.rs ({})\n\nfailures:\n\n---- a stdout ----\n    left: 1\n\n\nfailures:\n{names}\n\
         test result: FAILED.\n\n   Doc-tests tollgate\n\nerror: 1 target failed:\n    `--test main`\n",
        program.display()
    )
}

/// A program of tests in which `steady` passes, `broken` fails, and `rare` fails the third time.
fn test_program(directory: &Path) -> PathBuf {
    let path = directory.join("tests");
    let script = "#!/bin/sh\necho \"$2\" >>\"$0.runs\"\ncase $2 in\n*steady) ;;\nrare) [ $(grep -c rare \"$0.runs\") -lt 3 ] ;;\n*) exit 1 ;;\nesac\n";
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    path
}

#[test]
fn a_run_passes_only_if_few_failed_tests_each_pass_three_times_alone() {
    for (names, passes) in [
        (&["steady"][..], true),
        (&["steady", "steady"], true),
        (&["steady", "steady", "steady"], false),
        (&["rare"], false),
        (&["steady", "broken"], false),
        (&["exactness::steady"], false),
        (&[], false),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let program = test_program(directory.path());
        let output = run("tests/repeat_failures.sh", directory.path(), &failures(&program, names));
        assert_eq!(output.code == Some(0), passes, "{names:?}: {output:?}");
        assert_eq!(output.stdout.contains("UNSTABLE"), passes, "{names:?}: {output:?}");
    }
}

#[test]
fn a_run_fails_if_a_program_crashed_beside_a_failed_test() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = test_program(directory.path());
    let log = failures(&program, &["steady"]).replace("1 target failed", "2 targets failed");
    assert_ne!(run("tests/repeat_failures.sh", directory.path(), &log).code, Some(0));
}
