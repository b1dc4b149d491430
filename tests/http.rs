//! The HTTP side.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::prelude::*;

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: {unit: year, requests_per_unit: 1, name: once, retry_after_spread: 24h}
- key: open
  rate_limit: {unlimited: true}
";

#[test]
fn the_json_endpoint_answers_with_matching_status_codes() {
    let options = ["--response-headers=x-ratelimit", "--header-names=reset-at=X-RateLimit-Reset"];
    let tollgate = Tollgate::serving(RULES, &options);
    let request = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    let first = tollgate.post(request);
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    let body = first.json();
    assert_eq!(body["overallCode"], "OK");
    assert_eq!(body["statuses"][0]["currentLimit"]["unit"], "YEAR");
    assert_eq!(body["statuses"][0]["currentLimit"]["requestsPerUnit"], 1);
    assert_eq!(body["statuses"][0]["currentLimit"]["name"], "once");
    assert!(body["statuses"][0]["durationUntilReset"].as_str().expect("a duration").ends_with('s'));
    assert!(body["statuses"][0].get("limitRemaining").is_none(), "what is zero is left out");

    let second = tollgate.post(request);
    assert_eq!(second.status, 429);
    let body = second.json();
    assert_eq!(body["overallCode"], "OVER_LIMIT");
    let header = |name: &str| -> u64 {
        let headers = body["responseHeadersToAdd"].as_array().expect("a list");
        let header = headers.iter().find(|header| header["key"] == name).expect("is set");
        header["value"].as_str().expect("a text").parse().expect("a number")
    };
    // The year ends, in years of 365 days; the key's delay is a part of a day.
    assert_eq!(header("X-RateLimit-Reset") % 31_536_000, 0);
    let reset = body["statuses"][0]["durationUntilReset"].as_str().and_then(|text| text.strip_suffix('s'));
    let reset: u64 = reset.expect("a duration").parse().expect("whole seconds");
    let delay = header("Retry-After") - reset;
    assert!((1..=86_400).contains(&delay), "{delay}");

    let snake = r#"{"domain": "d", "hits_addend": 3, "descriptors": [{"entries": [{"key": "open"}]}]}"#;
    assert_eq!(tollgate.post(snake).status, 200);
    for (name, wrong) in [
        ("not JSON", "{"),
        ("an unknown field", r#"{"domain": "d", "surprise": 1}"#),
        ("no domain", r#"{"descriptors": [{"entries": []}]}"#),
        ("no descriptors", r#"{"domain": "d"}"#),
        ("nothing", ""),
    ] {
        assert_eq!(tollgate.post(wrong).status, 400, "{name}");
    }
}

#[test]
fn metrics_and_rules_can_be_read() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let request = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    for _ in 0..3 {
        tollgate.post(request);
    }
    let metrics = http::get(&tollgate.url("/metrics"));
    assert!(metrics.header("content-type").expect("is set").starts_with("text/plain"));
    for line in [
        "tollgate_rule_hits_total{domain=\"d\",rule=\"k\"} 3",
        "tollgate_rule_within_limit_total{domain=\"d\",rule=\"k\"} 1",
        "tollgate_rule_over_limit_total{domain=\"d\",rule=\"k\"} 2",
        "tollgate_config_loads_total{result=\"success\"} 1",
        "tollgate_rules 2",
    ] {
        assert!(metrics.body.lines().any(|found| found == line), "no {line} in\n{}", metrics.body);
    }
    assert_eq!(http::get(&tollgate.url("/rlconfig")).status, 404);
    let rules = http::get(&tollgate.admin_url("/rlconfig"));
    assert!(
        rules.body.contains("d.k: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false"),
        "{}",
        rules.body
    );
    assert_eq!(http::get(&tollgate.url("/nothing")).status, 404);
}

#[test]
fn the_admin_port_requires_the_current_token_of_its_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let token = directory.path().join("token");
    fs::write(&token, "first-0123456789\n").expect("written");
    let path = token.display().to_string();
    let tollgate = Tollgate::serving(RULES, &["--admin-token-file", &path]);
    let status = |path: &str, shown: &str| http::get_with(&tollgate.admin_url(path), shown).status;
    for path in ["/rlconfig", "/stats", "/metrics", "/healthcheck", "/nothing"] {
        let refused = http::get(&tollgate.admin_url(path));
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        for wrong in ["Bearer first-012345678", "Bearer first-0123456789x", "first-0123456789", "Bearer "] {
            assert_eq!(status(path, wrong), 401, "{path} with {wrong}");
        }
        let found = if path == "/nothing" { 404 } else { 200 };
        assert_eq!(status(path, "Bearer first-0123456789"), found, "{path}");
    }
    // The other port has no secrets, and no token.
    assert_eq!(http::get(&tollgate.url("/metrics")).status, 200);

    fs::write(&token, "second-0123456789").expect("written");
    wait("the new token does not count", || status("/rlconfig", "Bearer second-0123456789") == 200);
    assert_eq!(status("/rlconfig", "Bearer first-0123456789"), 401);
}

/// More idle connections than a port has, with a part of a request, or after a response.
#[test]
fn idle_connections_leave_every_port_its_probes() {
    // The soft limit is often 1,024.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("raised");
    // No connection times out by itself before the probe.
    let metrics = format!("127.0.0.1:{}", free_port());
    let tollgate = Tollgate::serving(RULES, &["--metrics-address", &metrics, "--handshake-timeout", "10m"]);
    for url in [
        tollgate.url("/healthcheck"),
        tollgate.url("/live"),
        tollgate.admin_url("/healthcheck"),
        format!("http://{metrics}/metrics"),
    ] {
        let (address, _) = url.trim_start_matches("http://").split_once('/').expect("a path");
        let mut clients = Vec::new();
        for part in ["", "GET /", "GET /live HTTP/1.1\r\nHost: t\r\n\r\n"].iter().cycle().take(1_030) {
            let mut client = TcpStream::connect(address).expect("connected");
            client.write_all(part.as_bytes()).expect("sent");
            clients.push(client);
        }
        assert_eq!(http::get(&url).status, 200, "{url}");
    }
    // The one that has been idle longest makes room, and is counted.
    let page = tollgate.metrics();
    let evicted = |line: &str| line.starts_with("tollgate_connections_evicted_total{port=\"http\"} ");
    assert!(page.lines().any(|line| evicted(line) && !line.ends_with(" 0")), "{page}");
}

#[test]
fn idle_connections_that_take_all_descriptors_leave_room_for_probes() {
    let config = rules(RULES);
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 200 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tollgate")]);
    let tollgate = Tollgate::spawn_by(few, config.path(), &["--handshake-timeout", "10m"]);
    tollgate.wait_until_ready();
    let address = ("127.0.0.1", tollgate.http_port);
    let _clients: Vec<_> = (0..300).map(|_| TcpStream::connect(address).expect("connected")).collect();
    assert_eq!(http::get(&tollgate.url("/healthcheck")).status, 200);
}
