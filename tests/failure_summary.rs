//! Summary at the end of a failed test run.

use std::{fs, process::Command};

use crate::support::tollgate::project;

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

#[test]
fn each_failed_test_is_listed_with_its_panics() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    fs::write(&log, CARGO_OUTPUT).expect("written");
    let output = Command::new(project("tests/failure_summary.sh")).arg(&log).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
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
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
