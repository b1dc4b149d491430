//! The files of `deploy/envoy`, each before a live tollgate with its rules.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use tempfile::TempDir;

use super::by_the_hour;
use crate::support::{
    envoy::{self, Bootstrap, Envoy},
    http,
    tollgate::{Tollgate, project},
};

/// Names of the files, without `.yaml`.
fn files() -> Vec<String> {
    let paths = fs::read_dir(project("deploy/envoy")).expect("a directory").map(|entry| entry.expect("read"));
    let names =
        paths.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".yaml").map(str::to_owned));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Other tests run `concurrency`, `edge`, `llm_budget` and `load_shedding`: see `tests/envoy`.
#[test]
fn every_file_is_valid_and_run_by_a_test() {
    assert_eq!(
        files(),
        ["concurrency", "edge", "fail_closed", "llm_budget", "load_shedding", "response_cost", "tcp"]
    );
    for name in files() {
        let path = project(&format!("deploy/envoy/{name}.yaml"));
        let validated = Command::new(envoy::program())
            .args(["--mode", "validate", "--log-level", "error", "--config-path"])
            .arg(path)
            .output()
            .expect("Envoy runs");
        assert!(validated.status.success(), "{name}: {}", String::from_utf8_lossy(&validated.stderr));
    }
}

/// All files define the cluster `tollgate` alike, so that results for one hold for all.
#[test]
fn every_file_reaches_tollgate_alike() {
    let cluster = |name: &str| {
        let yaml = fs::read_to_string(project(&format!("deploy/envoy/{name}.yaml"))).expect("readable");
        let begin = yaml.find("  - name: tollgate\n").expect("a cluster");
        yaml.get(begin..).expect("a text").to_owned()
    };
    let all: Vec<_> = files().iter().map(|name| cluster(name)).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    for part in ["grpc_health_check", "outlier_detection", "connection_keepalive"] {
        assert!(all[0].contains(part), "{part}");
    }
}

/// An Envoy before a tollgate, both as their files say.
fn pair(name: &str) -> (TempDir, Tollgate, Envoy) {
    let rules = by_the_hour("deploy/envoy/rules");
    let tollgate = Tollgate::start(rules.path(), &[]);
    let envoy = Bootstrap::read(name, tollgate.grpc_port, None).run(&[tollgate.grpc_port]);
    (rules, tollgate, envoy)
}

/// The response of the upstream to a new connection; nothing if it is closed before.
fn over_tcp(envoy: &Envoy) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", envoy.port)).expect("Envoy listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    // One that is closed meanwhile may refuse this.
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
    let mut text = String::new();
    match stream.read_to_string(&mut text) {
        Ok(_) => (!text.is_empty()).then_some(text),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            None
        }
    }
}

#[test]
fn connections_over_the_limit_are_closed_before_the_first_byte() {
    let (_rules, tollgate, envoy) = pair("tcp");
    for connection in 1..=5 {
        let answer = over_tcp(&envoy).unwrap_or_else(|| panic!("connection {connection} was closed"));
        assert!(answer.ends_with("hello from the upstream\n"), "{answer}");
    }
    for _ in 0..3 {
        assert_eq!(over_tcp(&envoy), None);
    }
    // Fails open.
    drop(tollgate);
    assert!(over_tcp(&envoy).is_some());
}

#[test]
fn routes_fail_closed_where_configured_and_open_otherwise() {
    let (_rules, tollgate, envoy) = pair("fail_closed");
    let statuses: Vec<_> = (0..12).map(|_| envoy.get("/login").status).collect();
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
    assert!((0..100).any(|_| envoy.get("/a").status == 429), "the other routes have no limit");
    drop(tollgate);
    for _ in 0..5 {
        assert_eq!(envoy.get("/login").status, 503);
        assert_eq!(envoy.get("/a").status, 200);
    }
}

#[test]
fn a_response_is_charged_its_reported_cost_when_its_stream_ends() {
    let (_rules, _tollgate, envoy) = pair("response_cost");
    let url = format!("http://127.0.0.1:{}/", envoy.port);
    let ask = || http::get_as(&url, &[("x-user", "me")]);
    let remaining = |answer: &http::Answer| {
        let text = answer.header("x-ratelimit-remaining").expect("Envoy sets it");
        text.parse::<u32>().expect("a number")
    };
    let answers: Vec<_> = (0..5).map(|_| ask()).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    let left: Vec<_> = answers.iter().map(remaining).collect();
    assert_eq!(left, [17, 12, 7, 2, 0]);
    // A request without a user matches no rule.
    assert_eq!(envoy.get("/").status, 200);
}
