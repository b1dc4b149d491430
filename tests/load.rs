//! `tollgate-load`, against tollgate.

use crate::support::{prelude::*, signal};

const RULES: &str = "
domain: d
descriptors:
- key: client
  rate_limit: {unit: year, requests_per_unit: 100}
- key: open
  rate_limit: {unlimited: true}
";

/// Runs a load of the words in `line` on a server.
fn load(port: u16, line: &str) -> Ended {
    let target = format!("http://127.0.0.1:{port}");
    let words = ["--domain", "d", "--target", &target];
    ended(tool("tollgate-load").args(words).args(line.split(' ')))
}

fn json(output: &Ended) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

#[test]
fn every_key_is_admitted_exactly_its_limit() {
    let tollgate = Tollgate::serving(RULES, &[]);
    // Few keys, each of which even a busy machine exhausts.
    let line =
        "--descriptor client={key} --keys 5 --threads 2 --connections 3 --warmup 0 --duration 2s --json";
    let output = load(tollgate.grpc_port, &format!("{line} --admitted-limit 100"));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.is_empty());
    let report = json(&output);
    let admitted = &report["keys"]["admitted"];
    assert_eq!((&report["keys"]["seen"], &report["keys"]["count"]), (&5.into(), &5.into()));
    for (name, value) in [
        ("total", 500),
        ("least", 100),
        ("most", 100),
        ("beyond", 0),
        ("denied_within", 0),
        ("denied_early", 0),
    ] {
        assert_eq!(admitted[name], value, "{name} in {report}");
    }
    assert_eq!(report["ok"], 500);
    assert_eq!(report["errors"], serde_json::json!({}));
    let number = |name: &str| report[name].as_u64().expect("a number");
    assert_eq!(number("requests"), number("ok") + number("over_limit"));
    let quantile = |name: &str| report["latency_us"][name].as_u64().expect("a number");
    let quantiles = ["p50", "p90", "p99", "p99.9", "max"].map(quantile);
    assert!(quantiles.is_sorted() && quantiles[0] > 0, "{report}");
}

#[test]
fn over_admission_by_instances_without_a_shared_store_is_counted() {
    let config = rules(RULES);
    let (one, other) = (Tollgate::start(config.path(), &[]), Tollgate::start(config.path(), &[]));
    let second = format!("--target http://127.0.0.1:{}", other.grpc_port);
    let line = "--descriptor client={key} --keys 5 --duration 1s --json --admitted-limit 100";
    let output = load(one.grpc_port, &format!("{second} {line}"));
    assert_eq!(output.code, Some(1));
    let says = "5 keys were admitted more than 100 hits, 500 hits too many in all; the most, 200, key 0\n";
    assert_eq!(output.stderr, says);
    assert_eq!(json(&output)["keys"]["admitted"]["beyond"], 500);
}

#[test]
fn hits_and_descriptors_match_the_flags() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let line = "--descriptor client=a{key} --descriptor client=b --hits 30 --keys 5 --zipf 1.1 \
                --duration 300ms --warmup 100ms --json";
    let report = json(&load(tollgate.grpc_port, line));
    // The second limit is that of all keys together.
    assert_eq!(report["keys"]["admitted"]["total"], 90, "{report}");
    let metrics = tollgate.metrics();
    let hits = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tollgate_rule_hits_total{domain=\"d\",rule=\"client\"} "));
    let hits: u64 = hits.expect("counted").parse().expect("a number");
    assert_eq!(hits % 60, 0);
}

#[test]
fn an_open_loop_reports_how_long_unsent_requests_waited() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let line = "--descriptor open={key} --connections 1 --streams 4 --duration 2s --warmup 0 --json";
    let pause = Duration::from_millis(500);
    let closed = json(&during_a_pause(&tollgate, line, pause));
    let open = json(&during_a_pause(&tollgate, &format!("{line} --rate 500"), pause));
    // The pause is a quarter of the time; a closed loop meets it with 4 requests of thousands.
    let p90 = |report: &Value| report["latency_us"]["p90"].as_u64().expect("a number");
    assert!(p90(&open) > 100_000, "{open}");
    assert!(p90(&closed) < 100_000, "{closed}");
    assert!(open["latency_us"]["max"].as_u64() >= Some(400_000), "{open}");
    assert_eq!(
        open["requests"].as_u64().zip(open["unsent"].as_u64()).map(|(sent, unsent)| sent + unsent),
        Some(1000)
    );
}

#[test]
fn a_timed_out_request_counts_with_its_waiting_time() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let line =
        "--descriptor open={key} --connections 1 --streams 4 --duration 2s --warmup 0 --timeout 200ms --json";
    let report = json(&during_a_pause(&tollgate, line, Duration::from_millis(1_500)));
    assert!(report["errors"]["DEADLINE_EXCEEDED"].as_u64() >= Some(4), "{report}");
    let longest = report["latency_us"]["max"].as_u64().expect("a number");
    // The pause is longer.
    assert!((200_000..1_400_000).contains(&longest), "{report}");
}

#[test]
fn an_interrupted_load_has_counted_all_sent_requests() {
    let tollgate = Tollgate::serving(RULES, &[]);
    for rate in ["", " --rate 2000"] {
        let target = format!("http://127.0.0.1:{}", tollgate.grpc_port);
        let line = format!("--domain d --descriptor open={{key}} --duration 1h --warmup 0 --json{rate}");
        let mut load = tool("tollgate-load");
        load.args(line.split(' ')).args(["--target", &target]).stdout(Stdio::piped());
        let before = passed(&tollgate);
        let load = load.spawn().expect("it runs");
        until_passed(&tollgate, before + 51);
        signal(load.id(), "INT");
        let report = json(&load.wait_with_output().expect("it ends").into());
        let sent = report["requests"].as_u64().expect("a number");
        assert_eq!(passed(&tollgate) - before, sent, "{report}");
        assert!(sent > 50 && report["errors"] == serde_json::json!({}), "{report}");
    }
}

/// Requests that the server let pass.
fn passed(tollgate: &Tollgate) -> u64 {
    let metrics = tollgate.metrics();
    let count = metrics.lines().find_map(|line| line.strip_prefix("tollgate_requests_total{result=\"ok\"} "));
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// Waits until the server has let this many requests pass.
fn until_passed(tollgate: &Tollgate, count: u64) {
    wait("the load does not begin", || passed(tollgate) >= count);
}

/// Runs a load, during which the server stands still for some time.
fn during_a_pause(tollgate: &Tollgate, line: &str, pause: Duration) -> Ended {
    let target = format!("http://127.0.0.1:{}", tollgate.grpc_port);
    let words = ["--domain", "d", "--target", &target];
    let before = passed(tollgate);
    let load = tool("tollgate-load")
        .args(words)
        .args(line.split(' '))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    until_passed(tollgate, before + 20);
    tollgate.signal("STOP");
    thread::sleep(pause);
    tollgate.signal("CONT");
    load.wait_with_output().expect("it ends").into()
}

#[test]
fn a_failing_server_is_reported_by_its_status_codes() {
    let config = rules(RULES);
    let port = free_port();
    let store = format!("redis://127.0.0.1:{port}");
    let tollgate = Tollgate::spawn(config.path(), &["--store", &store, "--log-level", "off"]);
    while TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    let output = load(tollgate.grpc_port, "--descriptor client=a --duration 200ms --warmup 0");
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.starts_with("no request was answered: UNAVAILABLE: "), "{output:?}");
    assert!(output.stdout.contains("\n  UNAVAILABLE "), "{output:?}");
}

#[test]
fn a_recovered_server_is_called_again() {
    let tollgate = Tollgate::serving(RULES, &["--grpc-max-connection-age", "300ms"]);
    let line = "--descriptor open={key} --connections 2 --streams 2 --rate 200 --duration 1500ms --json";
    let report = json(&load(tollgate.grpc_port, line));
    // A connection that is not made again answers 60.
    assert!(report["ok"].as_u64() > Some(150), "{report}");
}
