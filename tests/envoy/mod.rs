//! tollgate behind a real Envoy.

mod access_log;
mod actions;
mod concurrency;
mod llm_budget;
mod load_shedding;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::{Router, http::StatusCode, response::Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::docs;
use crate::support::{http::Answer, prelude::*};

fn per_path(limit: u32) -> String {
    format!(
        "domain: edge\ndescriptors:\n- key: path\n  rate_limit: {{unit: year, requests_per_unit: {limit}, name: per-path}}\n"
    )
}

/// Requests `path` until it is denied; returns the responses that passed, and the denial.
fn until_denied(envoy: &Envoy, path: &str) -> (Vec<Answer>, Answer) {
    let mut passed = Vec::new();
    loop {
        match envoy.get(path) {
            answer if answer.status == 200 => passed.push(answer),
            denied => return (passed, denied),
        }
        assert!(passed.len() < 100, "nothing is denied");
    }
}

#[test]
fn envoy_passes_until_the_limit_then_answers_429_before_and_after_an_edit() {
    let config = rules(&per_path(3));
    let tollgate = Tollgate::start(config.path(), &[]);
    let envoy = Envoy::edge(tollgate.grpc_port);

    let (passed, denied) = until_denied(&envoy, "/a");
    assert_eq!((passed.len(), denied.status), (3, 429));
    assert_eq!(passed[0].body, "hello from the upstream\n");
    assert_eq!(passed[0].header("x-ratelimit-limit"), Some("3, 3;w=31536000;name=\"per-path\""));
    assert_eq!(passed[0].header("x-ratelimit-remaining"), Some("2"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
    let retry_after: u32 = denied.header("retry-after").expect("is set").parse().expect("a number");
    assert!((1..=31_536_000).contains(&retry_after));
    let reset: u32 = denied.header("x-ratelimit-reset").expect("is set").parse().expect("a number");
    assert!(retry_after.abs_diff(reset) <= 1);

    fs::write(config.path().join("rules.yaml"), per_path(5)).expect("writable");
    wait("it does not come about", || {
        envoy.get("/look").header("x-ratelimit-limit").is_some_and(|limit| limit.starts_with("5,"))
    });
    let (passed, denied) = until_denied(&envoy, "/b");
    assert_eq!((passed.len(), denied.status), (5, 429));
    // Four hits were counted on the old limit, the denied one among them; they count on.
    assert_eq!(until_denied(&envoy, "/a").0.len(), 1);
    assert_eq!(denied.header("x-ratelimit-limit"), Some("5, 5;w=31536000;name=\"per-path\""));
}

/// Envoy sends the name of the cluster as the authority of its calls, and of its health checks.
#[test]
fn limits_are_enforced_under_the_name_of_a_cluster_of_istio() {
    const ISTIO: &str = "outbound|8081||ratelimit.default.svc.cluster.local";
    let tollgate = Tollgate::serving(&per_path(3), &[]);
    let bootstrap = Bootstrap::read("edge", tollgate.grpc_port, None)
        .with("cluster_name: tollgate", &format!("cluster_name: {ISTIO}"))
        .with("- name: tollgate\n", &format!("- name: {ISTIO}\n"));
    let envoy = bootstrap.run(&[tollgate.grpc_port]);
    for path in ["/a", "/b"] {
        let (passed, denied) = until_denied(&envoy, path);
        assert_eq!((passed.len(), denied.status), (3, 429));
    }
}

#[test]
fn a_denial_has_the_configured_headers_and_body() {
    let at = "reset-at=X-RateLimit-Reset-At";
    for (style, names) in [
        ("ratelimit", ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]),
        ("x-ratelimit", ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset-at"]),
        ("ietf", ["ratelimit-policy", "ratelimit", "retry-after"]),
    ] {
        let arguments = ["--response-headers", style, "--problem-body", "--header-names", at];
        let tollgate =
            Tollgate::serving(&per_path(1).replace("name:", "retry_after_spread: 1h, name:"), &arguments);
        let envoy = Envoy::edge(tollgate.grpc_port);
        let (_, denied) = until_denied(&envoy, "/a");
        for name in names {
            assert!(denied.header(name).is_some(), "{style}: no {name}");
        }
        if style == "ietf" {
            assert_eq!(denied.header("ratelimit-policy"), Some("\"per-path\";q=1;w=31536000"));
            assert!(denied.header("ratelimit").expect("is set").starts_with("\"per-path\";r=0;t="));
        }
        assert_eq!(denied.header("content-type"), Some("application/problem+json"));
        let body = denied.json();
        assert_eq!(body["status"], 429);
        assert_eq!(body["violated-policies"][0]["name"], "per-path");
        assert_eq!(body["violated-policies"][0]["limit"], 1);
        assert_eq!(body["violated-policies"][0]["window"], 31_536_000);
        assert_eq!(body["retry_after"].to_string(), denied.header("retry-after").expect("is set"));
        let sentence = "Rate limit \"per-path\" of 1 request per 365 days exceeded; retry in ";
        assert!(body["detail"].as_str().expect("a text").starts_with(sentence), "{body}");
        // The year's end, from the Unix epoch in years of 365 days.
        let reset_at = body["reset_at"].as_u64().expect("a time");
        assert_eq!(reset_at % 31_536_000, 0);
        assert_eq!(denied.header("x-ratelimit-reset-at"), Some(&*reset_at.to_string()));
        let [retry_after, reset] = ["retry-after", "ratelimit-reset"]
            .map(|name| denied.header(name).and_then(|seconds| seconds.parse::<u64>().ok()));
        if let Some((retry_after, reset)) = retry_after.zip(reset) {
            // One key has one delay.
            let again = envoy.get("/a");
            let [retry_again, reset_again] = ["retry-after", "ratelimit-reset"]
                .map(|name| again.header(name).expect("is set").parse::<u64>().expect("a number"));
            assert!((reset..=reset + 3_600).contains(&retry_after), "{retry_after} {reset}");
            assert_eq!(retry_again - reset_again, retry_after - reset);
        }
    }
}

#[test]
fn envoy_lets_requests_pass_when_tollgate_is_down() {
    let tollgate = Tollgate::serving(&per_path(1), &[]);
    let envoy = Envoy::edge(tollgate.grpc_port);
    until_denied(&envoy, "/a");
    drop(tollgate);
    for _ in 0..5 {
        assert_eq!(envoy.get("/a").status, 200);
    }
}

#[test]
fn edits_while_requests_flow_cause_no_error() {
    let config = rules(&per_path(1_000_000));
    let tollgate = Tollgate::start(config.path(), &[]);
    let envoy = Arc::new(Envoy::edge(tollgate.grpc_port));
    let stop = Arc::new(AtomicBool::new(false));
    let flow = thread::spawn({
        let (envoy, stop) = (Arc::clone(&envoy), Arc::clone(&stop));
        move || {
            let mut answers = 0;
            while !stop.load(Ordering::Relaxed) {
                let answer = envoy.get("/flow");
                // Without the header, Envoy had no answer from tollgate and let the request pass.
                assert_eq!(answer.status, 200);
                assert!(answer.header("x-ratelimit-limit").is_some(), "answer {answers} was not limited");
                answers += 1;
            }
            answers
        }
    });
    for edit in 1..=20 {
        let limit = 1_000_000 + edit;
        fs::write(config.path().join("rules.yaml"), per_path(limit)).expect("writable");
        let shows_it = |answer: &Answer| {
            answer.header("x-ratelimit-limit").is_some_and(|text| text.starts_with(&limit.to_string()))
        };
        wait("it does not come about", || shows_it(&envoy.get("/edit")));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(flow.join().expect("no request failed") > 20);
}

#[test]
fn envoy_presents_its_certificate_as_documented() {
    let authority = Authority::new("mesh");
    let [server, client] = ["localhost", "spiffe://mesh/ns/edge/sa/envoy"].map(|name| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        authority.sign(&[name]).write(directory.path());
        fs::write(directory.path().join("ca.pem"), authority.pem()).expect("written");
        directory
    });
    let config = rules(&per_path(3));
    let file = |name: &str| server.path().join(name).display().to_string();
    let tollgate = Tollgate::start(
        config.path(),
        &[
            &format!("--grpc-tls={},{}", file("cert.pem"), file("key.pem")),
            &format!("--grpc-tls-client-ca={}", file("ca.pem")),
            "--grpc-tls-client-san=spiffe://mesh/ns/edge/sa/envoy",
        ],
    );
    let shown = docs::block("yaml envoy tls");
    let moved = shown.replace("/etc/envoy/tls", &client.path().display().to_string());
    assert_ne!(shown, moved);
    let envoy = Envoy::edge_with(tollgate.grpc_port, &moved);
    let (passed, denied) = until_denied(&envoy, "/a");
    assert_eq!((passed.len(), denied.status), (3, 429));
}
