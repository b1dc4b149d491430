//! Mistakes on the command line of `tollgate-load`. Loads on a server are in the integration tests of the workspace.

#![allow(clippy::expect_used)]

use std::net::TcpListener;
use std::process::{Command, Output};

fn load(line: &str) -> Output {
    let words = ["--domain", "d"].into_iter().chain(line.split(' '));
    Command::new(env!("CARGO_BIN_EXE_tollgate-load")).args(words).output().expect("it runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn mistakes_are_clear() {
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = unused.local_addr().expect("an address");
    drop(unused);
    let output = load(&format!("--target http://{address} --descriptor client=a"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("cannot connect to http://127.0.0.1:"), "{output:?}");
    for (line, expected) in [
        (
            "--descriptor client",
            "'client' for '--descriptor <KEY=VALUE,…>': `client` is not an entry; expected KEY=VALUE",
        ),
        (
            "--descriptor client=a --keys 2",
            "--keys: several keys, but no descriptor has one; expected {key} in a --descriptor",
        ),
        (
            "--descriptor client={key} --target redis://a:1",
            "'redis://a:1' for '--target <URL>': expected http://HOST:PORT",
        ),
        ("--descriptor client={key} --rate 0", "'0' for '--rate <NUMBER>': expected a number above 0"),
        ("--keys 1", "--descriptor"),
    ] {
        let output = load(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
    }
}
