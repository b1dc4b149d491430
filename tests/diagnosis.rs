//! Traces of requests that are not limited as meant: in the log, in metrics and in `top`.

use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code as Decision;
use tonic::Code;

use crate::support::prelude::*;

const RULES: &str = "
domain: edge
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
- {key: free, rate_limit: {unlimited: true}}
";

/// Starts with variables in place of the default level.
fn logging(variables: &[(&str, &str)]) -> (Tollgate, TempDir) {
    let (config, mut program) = (rules(RULES), command());
    program.envs(variables.iter().copied()).stdin(Stdio::null());
    let tollgate = Tollgate::spawn_logging(program, config.path(), &["--workers", "2"]);
    tollgate.wait_until_ready();
    (tollgate, config)
}

#[tokio::test]
async fn a_domain_without_rules_is_logged_once_counted_by_name_and_shown_in_top() {
    let (server, _config) = logging(&[]);
    let mut client = server.client().await;
    for _ in 0..3 {
        assert!(client.passes("egde", &[("user", "a")]).await);
        assert!(client.passes("edge", &[("free", "a")]).await);
    }
    assert!(client.passes("mesh\n", &[("user", "a")]).await);
    let lines = server.logged("domain without rules; nothing is limited");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains(r#"domain="egde""#) && lines[0].contains(r#"did_you_mean="edge""#),
        "{lines:?}"
    );
    assert!(lines[1].contains("mesh") && !lines[1].contains("did_you_mean"), "{lines:?}");
    let metrics = server.metrics();
    for line in ["{domain=\"egde\"} 3", "{domain=\"mesh\\\\n\"} 1", "{domain=\"(other)\"} 0"] {
        assert!(
            metrics.contains(&format!("tollgate_unknown_domain_requests_total{line}\n")),
            "{line}: {metrics}"
        );
    }
    let shown = || {
        let top = server.api("/top");
        let domains = top["domains"].as_array().expect("a list").clone();
        let named = domains.iter().map(|one| (one["domain"].clone(), one["has_rules"].clone()));
        named.collect::<Vec<_>>()
    };
    until("it is not shown", async || shown().contains(&("egde".into(), false.into()))).await;
    until("it has no rules", async || shown().contains(&("edge".into(), true.into()))).await;
    let text = output_of(command().arg("top").args(["--admin-url", &server.admin_url("")]));
    assert!(text.contains("egde (no rules)"), "{text}");
}

#[tokio::test]
async fn random_domains_fill_neither_the_log_nor_the_page() {
    let (server, _config) = logging(&[]);
    let mut client = server.client().await;
    for number in 0..500 {
        assert!(client.passes("real", &[("user", "a")]).await);
        assert!(client.passes(&format!("random {number}"), &[("user", "a")]).await);
    }
    let lines = server.logged("domain without rules");
    assert!((2..=40).contains(&lines.len()), "{}", lines.len());
    let metrics = server.metrics();
    assert!(metrics.contains("tollgate_unknown_domain_requests_total{domain=\"real\"} 500\n"), "{metrics}");
    let series = metrics.lines().filter(|line| line.starts_with("tollgate_unknown_domain_requests_total{"));
    assert_eq!(series.count(), 33);
}

#[tokio::test]
async fn debug_logs_the_rule_and_the_verdict_of_each_descriptor_and_no_frames() {
    let (server, _config) = logging(&[("LOG_LEVEL", "debug")]);
    let mut client = server.client().await;
    for _ in 0..3 {
        let answer = client
            .call(request("edge", &[&[("user", "a\nb")], &[("free", "b")], &[("other", "c"), ("d", "e")]]));
        answer.await.expect("an answer");
    }
    let lines = server.logged("descriptor decided");
    assert_eq!(lines.len(), 9, "{lines:?}");
    let has = |line: &String, texts: &[&str]| {
        assert!(texts.iter().all(|text| line.contains(text)), "{texts:?}: {line}");
    };
    has(
        &lines[0],
        &[
            r#"domain="edge""#,
            "user=a",
            r#"rule="user""#,
            r#"verdict="ok""#,
            "hits=1",
            "limit=2",
            "remaining=1",
        ],
    );
    has(&lines[1], &["free=b", r#"rule="unlimited""#]);
    has(&lines[2], &["other=c,d=e", r#"rule="none""#, r#"verdict="ok""#]);
    has(&lines[6], &["user=a", r#"verdict="over_limit""#, "remaining=0"]);
    let before = server.log().len();
    for number in 0..2_000 {
        client.passes("edge", &[("user", &number.to_string())]).await;
    }
    let log = server.log();
    assert!(log.len() - before < 1 << 20, "{} bytes", log.len() - before);
    let foreign: Vec<&str> = log
        .lines()
        .filter(|line| ["h2::", "hyper", "tonic", "tower"].iter().any(|target| line.contains(target)))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    // After a pause, a line has the number of those before it.
    sleep(Duration::from_millis(50)).await;
    client.passes("edge", &[("user", "last")]).await;
    has(&server.logged("descriptor decided").pop().expect("a line"), &["user=last", "suppressed="]);
}

#[tokio::test]
async fn other_levels_have_no_values_of_requests() {
    for level in ["info", "warn"] {
        let (server, _config) = logging(&[("TOLLGATE_LOG_LEVEL", level)]);
        let mut client = server.client().await;
        assert!(client.passes("edge", &[("user", "sesame")]).await);
        assert!(client.passes("egde", &[("user", "sesame")]).await);
        assert!(!server.log().contains("sesame"));
    }
}

#[tokio::test]
async fn requests_above_a_bound_are_logged_and_counted() {
    let (server, _config) = logging(&[]);
    let mut client = server.client().await;
    let (pair, long) = (&[("user", "a")][..], "x".repeat(131_073));
    let requests = [
        ("max_descriptors", request("edge", &vec![pair; 257]), "257 descriptors; expected at most 256"),
        ("max_entries", request("edge", &[&vec![("user", "a"); 265]]), "265 entries; expected at most 264"),
        ("max_text_bytes", request("edge", &[&[("user", &*long)]]), "expected at most 131072"),
        (
            "max_message_bytes",
            request("edge", &[&vec![("user", &long[..10_000]); 200]]),
            "the limit is: 1048576 bytes",
        ),
        ("domain", request("", &[pair]), "domain must not be empty"),
        ("descriptors", request("edge", &[]), "descriptor list must not be empty"),
    ];
    for (reason, request, text) in requests {
        let refused = client.call(request).await.expect_err("refused");
        assert!(matches!(refused.code(), Code::InvalidArgument | Code::OutOfRange), "{refused}");
        let line = server.logged("request refused").pop().unwrap_or_default();
        assert!(line.contains(text) && line.contains(&format!("reason=\"{reason}\"")), "{reason}: {line}");
        let counted = format!("tollgate_refused_requests_total{{reason=\"{reason}\"}} 1\n");
        assert!(server.metrics().contains(&counted), "{reason}");
    }
    for _ in 0..100 {
        client.call(request("edge", &[])).await.expect_err("refused");
    }
    assert!(server.logged("request refused").len() <= 10);
}

#[tokio::test]
async fn a_request_at_the_bounds_of_envoy_gateway_is_decided() {
    let (server, _config) = logging(&[]);
    let mut client = server.client().await;
    let entries = vec![("rule-0-match-0", "rule-0-match-0"); 8 * 16 + 8 * 16 + 5];
    let mut descriptors = vec![&*entries; 255];
    descriptors.push(&[("user", "a")]);
    for expected in [Decision::Ok, Decision::Ok, Decision::OverLimit] {
        let mut call = request("edge", &descriptors);
        call.descriptors.iter_mut().take(255).for_each(|one| one.entries.truncate(20));
        let answer = client.call(call).await.expect("within the bounds");
        assert_eq!((answer.overall_code(), answer.statuses.len()), (expected, 256));
    }
    let wide = client.call(request("edge", &[&entries])).await.expect("within the bounds");
    assert_eq!(wide.statuses.len(), 1);
}
