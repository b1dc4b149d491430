//! The reference's ports, paths and signals.

use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::program::{Running, Variables};
use crate::support::{free_port, http, tollgate::rules};

const RULES: &str = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1}\n";

/// The program with rules of a directory and these variables.
fn start(directory: &tempfile::TempDir, others: &[(&str, &str)]) -> Running {
    let mut variables: Variables = [
        ("RUNTIME_ROOT".to_owned(), directory.path().display().to_string()),
        ("RUNTIME_APPDIRECTORY".to_owned(), ".".to_owned()),
        ("TOLLGATE_STORE".to_owned(), "memory".to_owned()),
    ]
    .into();
    variables.extend(others.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Running::start(variables)
}

#[test]
fn the_debug_port_points_to_what_it_lacks() {
    let config = rules(RULES);
    let running = start(&config, &[]);
    assert_eq!(http::get(&running.url("DEBUG_PORT", "/")).status, 200);
    for (path, content) in [
        ("/debug/pprof/", "perf record"),
        ("/debug/pprof/profile", "perf record"),
        ("/debug/pprof/trace?seconds=1", "perf record"),
    ] {
        let answer = http::get(&running.url("DEBUG_PORT", path));
        assert_eq!((answer.status, answer.body.lines().count()), (404, 1), "{path}");
        assert!(answer.body.contains(content), "{path}: {}", answer.body);
    }
}

#[test]
fn counts_have_lines_on_the_debug_port() {
    let config = rules(RULES);
    let running = start(&config, &[]);
    let json = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    let statuses = [(); 3].map(|()| http::post(&running.url("PORT", "/json"), json).status);
    assert_eq!(statuses, [200, 429, 429]);
    let page = http::get(&running.url("DEBUG_PORT", "/stats")).body;
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines.is_sorted(), "{page}");
    for line in [
        "ratelimit.service.rate_limit.d.k.total_hits: 3",
        "ratelimit.service.rate_limit.d.k.within_limit: 1",
        "ratelimit.service.rate_limit.d.k.over_limit: 2",
        "ratelimit.service.config_load_success: 1",
        "ratelimit.service.config_load_error: 0",
    ] {
        assert!(lines.contains(&line), "no {line} in\n{page}");
    }
}

#[test]
fn the_metrics_port_serves_only_its_path() {
    let config = rules(RULES);
    let address = format!("127.0.0.1:{}", free_port());
    let listen = format!("{address}/a/b");
    let variables = [("TOLLGATE_METRICS_ADDRESS", &*listen)];
    let running = start(&config, &variables);
    let page = http::get(&format!("http://{address}/a/b"));
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4")));
    assert!(page.body.contains("\ntollgate_rules 1\n"), "{}", page.body);
    // Names of the reference are another matter.
    assert!(!page.body.contains("ratelimit_service_"));
    for path in ["/", "/metrics", "/a/b/", "/json", "/healthcheck"] {
        assert_eq!(http::get(&format!("http://{address}{path}")).status, 404, "{path}");
    }
    let posted = http::post(&format!("http://{address}/a/b"), "{}");
    assert_eq!(posted.status, 405);
    assert!(running.output().contains("metrics port open"), "{}", running.output());
}

#[tokio::test]
async fn the_health_service_uses_the_references_name() {
    let config = rules(RULES);
    let running = start(&config, &[]);
    let endpoint = Endpoint::from_shared(running.url("GRPC_PORT", "")).expect("a URL");
    let mut health = HealthClient::new(endpoint.connect().await.expect("it listens"));
    let answer = health.check(HealthCheckRequest { service: "ratelimit".to_owned() }).await;
    assert_eq!(answer.expect("known").into_inner().status(), ServingStatus::Serving);
}

#[test]
fn every_stop_signal_stops_gracefully() {
    let config = rules(RULES);
    for signal in ["TERM", "INT"] {
        let mut running = start(&config, &[]);
        running.signal(signal);
        assert_eq!(running.wait(), Some(0), "{signal}: {}", running.output());
    }
}
