//! The files of `deploy/envoy`, each before a live tollgate with its rules.

use std::io::{BufRead as _, BufReader, Read as _};

use super::*;
use crate::support::envoy;

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
        [
            "close_banned",
            "concurrency",
            "connection_limits",
            "edge",
            "egress",
            "fail_closed",
            "llm_budget",
            "load_shedding",
            "local_first",
            "query_parameter",
            "response_cost",
            "tcp"
        ]
    );
    for name in files() {
        let path = project(&format!("deploy/envoy/{name}.yaml"));
        let (is_valid, log) = envoy::validate(&path);
        assert!(is_valid && !log.contains("deprecated"), "{name}: {log}");
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
    pair_with(name, ["", ""], [])
}

/// With a text of the rules replaced, and texts of Envoy's file.
fn pair_with<const N: usize>(
    name: &str,
    [from, to]: [&str; 2],
    edits: [[&str; 2]; N],
) -> (TempDir, Tollgate, Envoy) {
    let rules = by_the_hour("deploy/envoy/rules");
    if !from.is_empty() {
        let files: Vec<_> =
            fs::read_dir(rules.path()).expect("a directory").map(|file| file.expect("read").path()).collect();
        let texts = files.iter().map(|file| fs::read_to_string(file).expect("a text"));
        let (file, text) = files.iter().zip(texts).find(|(_, text)| text.contains(from)).expect(from);
        fs::write(file, text.replace(from, to)).expect("written");
    }
    let tollgate = Tollgate::start(rules.path(), &[]);
    let bootstrap = Bootstrap::read(name, tollgate.grpc_port, None);
    let bootstrap = edits.iter().fold(bootstrap, |bootstrap, [from, to]| bootstrap.with(from, to));
    let envoy = bootstrap.run(&[tollgate.grpc_port]);
    (rules, tollgate, envoy)
}

/// A connection that stays open, unless Envoy closes it.
struct OpenConnection(BufReader<TcpStream>);

impl OpenConnection {
    fn open(envoy: &Envoy) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", envoy.port)).expect("Envoy listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        Self(BufReader::new(stream))
    }

    /// The status and the other lines before the body of a response.
    fn get(&mut self, target: &str, header: &str) -> (u16, Vec<String>) {
        let Self(reader) = self;
        let request = format!("GET {target} HTTP/1.1\r\nhost: t\r\n{header}\r\n\r\n");
        reader.get_mut().write_all(request.as_bytes()).expect("sent");
        let lines = reader.by_ref().lines().map(|line| line.expect("a line").to_lowercase());
        let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let status = lines.first().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        reader.read_exact(&mut body).expect("a body");
        (status.parse().expect("a number"), lines)
    }

    /// The statuses of this many requests.
    fn statuses(&mut self, target: &str, header: &str, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.get(target, header).0).collect()
    }

    /// Whether Envoy closes it.
    fn is_closed(&mut self) -> bool {
        self.0.read(&mut [0; 1]).is_ok_and(|bytes| bytes == 0)
    }
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
    let send = || http::get_as(&url, &[("x-user", "me")]);
    let remaining = |answer: &http::Answer| {
        let text = answer.header("x-ratelimit-remaining").expect("Envoy sets it");
        text.parse::<u32>().expect("a number")
    };
    let answers: Vec<_> = (0..5).map(|_| send()).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    let left: Vec<_> = answers.iter().map(remaining).collect();
    assert_eq!(left, [17, 12, 7, 2, 0]);
    // A request without a user matches no rule.
    assert_eq!(envoy.get("/").status, 200);
}

#[test]
fn a_key_in_the_query_has_a_limit_and_requests_without_one_share_that_of_their_address() {
    let (_rules, _tollgate, envoy) = pair("query_parameter");
    let statuses = |path: &str, count| (0..count).map(|_| envoy.get(path).status).collect::<Vec<_>>();
    assert_eq!(statuses("/?api_key=me", 6), [200, 200, 200, 200, 200, 429]);
    // The same key in another spelling, and one that comes second.
    assert_eq!(statuses("/a?x=1&api_key=%6De", 1), [429]);
    assert_eq!(statuses("/?api_key=you&api_key=me", 1), [200]);
    assert_eq!(statuses("/", 3), [200, 200, 429]);
    assert_eq!(statuses("/?API_KEY=you", 1), [429]);
    assert_eq!(statuses("/?api_key=you&format=export", 2), [200, 429]);
    assert_eq!(statuses("/?api_key=you&format=text", 1), [200]);
}

#[test]
fn a_flood_is_denied_by_envoy_and_not_counted_by_tollgate() {
    let full = "{max_tokens: 20, tokens_per_fill: 20, fill_interval: 1s}";
    let never = "{max_tokens: 20, tokens_per_fill: 1, fill_interval: 3600s}";
    let (_rules, tollgate, envoy) = pair_with("local_first", ["", ""], [[full, never]]);
    let answers: Vec<_> = (0..30).map(|_| envoy.get("/")).collect();
    let of = |answer: &http::Answer| {
        (answer.status, answer.header("retry-after").is_some(), answer.header("x-denied-by").is_some())
    };
    let found: Vec<_> = answers.iter().map(of).collect();
    let expected = [[(200, false, false); 10], [(429, true, false); 10], [(429, false, true); 10]];
    assert_eq!(found, expected.concat());
    let page = tollgate.metrics();
    let hits = "tollgate_rule_hits_total{domain=\"local\",rule=\"remote_address\"} 20";
    assert!(page.lines().any(|line| line == hits), "{page}");
}

#[test]
fn connections_of_banned_clients_are_closed_and_those_of_denied_ones_stay() {
    let (_rules, _tollgate, envoy) = pair_with("close_banned", ["threshold: 3", "threshold: 1"], []);
    let (mut mine, mut other) = (OpenConnection::open(&envoy), OpenConnection::open(&envoy));
    assert_eq!(mine.statuses("/", "x-api-key: me", 5), [200; 5]);
    let deadline = Instant::now() + Duration::from_secs(30);
    let last = loop {
        let (status, lines) = mine.get("/", "x-api-key: me");
        assert_eq!(status, 429);
        if lines.iter().any(|line| line == "x-ratelimit-policy: banned") {
            break lines;
        }
        assert!(!lines.iter().any(|line| line.starts_with("connection:")), "{lines:?}");
        assert!(Instant::now() < deadline, "no ban");
        thread::sleep(Duration::from_millis(20));
    };
    assert!(last.iter().any(|line| line == "connection: close"), "{last:?}");
    assert!(mine.is_closed());
    assert_eq!(other.statuses("/", "x-api-key: other", 6), [200, 200, 200, 200, 200, 429]);
    assert_eq!(other.statuses("/", "x-api-key: third", 1), [200], "its connection stays");
}

#[test]
fn requests_to_other_services_are_limited_by_destination_and_application() {
    let (_rules, tollgate, envoy) = pair("egress");
    let mut application = OpenConnection::open(&envoy);
    let partner = "http://partner.example/";
    assert_eq!(application.statuses(partner, "x-application: a", 4), [200, 200, 200, 429]);
    // Under another name of the same partner.
    assert_eq!(application.statuses("http://partner.example:8080/", "x-application: b", 1), [429]);
    let other = tollgate.url("/healthcheck");
    assert_eq!(application.statuses(&other, "x-application: a", 6), [200, 200, 200, 200, 200, 429]);
    assert_eq!(application.statuses(&other, "x-application: b", 1), [200]);
    // The host has a limit of 20 for all.
    assert_eq!(application.statuses(&other, "x-none: 1", 13), [200; 13]);
    assert_eq!(application.statuses(&other, "x-application: b", 1), [429]);
}

#[test]
fn open_connections_new_ones_and_requests_are_limited() {
    let edits = [["max_connections: 1000", "max_connections: 2"], ["delay: 1s", "delay: 0.01s"]];
    let (_rules, _tollgate, envoy) = pair_with("connection_limits", ["", ""], edits);
    let (mut first, mut second) = (OpenConnection::open(&envoy), OpenConnection::open(&envoy));
    assert_eq!(first.statuses("/", "x: 1", 9), [200; 9]);
    assert_eq!(second.statuses("/", "x: 1", 1), [200]);
    assert_eq!(first.statuses("/", "x: 1", 1), [429], "requests over any connection");
    assert_eq!(over_tcp(&envoy), None, "a third connection");
    drop((first, second));
    for connection in 3..=5 {
        envoy.wait_for_stat("connection_limit.connections.active_connections: 0");
        assert!(over_tcp(&envoy).is_some(), "connection {connection}");
    }
    envoy.wait_for_stat("connection_limit.connections.active_connections: 0");
    assert_eq!(over_tcp(&envoy), None, "a sixth one in the window");
    envoy.wait_for_stat("connection_limit.connections.limited_connections: 1");
    envoy.wait_for_stat("ratelimit.connections.over_limit: 1");
}
