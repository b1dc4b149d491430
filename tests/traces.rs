//! Traces, as a collector receives them.

use std::net::TcpListener;

use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use tonic::Request;

use crate::support::{collector::Collector, prelude::*, timing::keeps_to_async};

const RULES: &str = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n\
                     - {key: free, rate_limit: {unit: year, requests_per_unit: 1000000}}\n";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn spans(collector: &Collector) -> Vec<Span> {
    let exports = collector.traces();
    let scopes =
        exports.iter().flat_map(|request| &request.resource_spans).flat_map(|spans| &spans.scope_spans);
    scopes.flat_map(|spans| spans.spans.clone()).collect()
}

/// Waits for this many spans.
async fn wait_for(collector: &Collector, count: usize) -> Vec<Span> {
    read_until(async || spans(collector), |spans| spans.len() >= count).await
}

#[tokio::test]
async fn spans_are_delivered_over_http_with_the_headers_of_the_collector() {
    let (config, (received, url)) = (rules(RULES), Collector::http().await);
    let flags =
        ["--otlp-endpoint", &url, "--otlp-protocol", "http/protobuf", "--otlp-headers", "x-token=a%20b"];
    let tollgate = Tollgate::start(config.path(), &[&flags[..], &["--trace-sample-ratio", "1"]].concat());
    received.respond([503]);
    assert!(tollgate.client().await.passes("d", &[("free", "x")]).await);
    let names: Vec<_> = wait_for(&received, 2).await.into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["ShouldRateLimit", "decide"], "another attempt follows a temporary failure");
    let heads = received.heads();
    assert_eq!(heads.len(), 2);
    for (path, headers) in heads {
        assert_eq!(
            (&*path, &headers["content-type"]),
            ("/v1/traces", &"application/x-protobuf".parse().expect("a value"))
        );
        assert_eq!(headers["x-token"], "a b");
    }
}

#[tokio::test]
async fn a_collector_behind_tls_is_trusted_by_its_authority_and_by_no_other() {
    let (config, authority) = (rules(RULES), Authority::new("ours"));
    let (received, url) = Collector::grpc_by_tls(&authority).await;
    let ca = config.path().join("ca.pem");
    fs::write(&ca, authority.pem()).expect("written");
    let always = ["--otlp-endpoint", &url, "--trace-sample-ratio", "1"];
    let public = Tollgate::start(config.path(), &always);
    assert!(public.client().await.passes("d", &[("free", "x")]).await);
    wait_for_dropped(&public).await;
    assert_eq!(spans(&received).len(), 0);
    let ours = [&always[..], &["--otlp-ca", ca.to_str().expect("UTF-8")]].concat();
    let tollgate = Tollgate::start(config.path(), &ours);
    assert!(tollgate.client().await.passes("d", &[("free", "x")]).await);
    wait_for(&received, 2).await;
}

#[tokio::test]
async fn cluster_wide_otel_variables_do_not_stop_the_start() {
    let (config, (received, url)) = (rules(RULES), Collector::grpc().await);
    for (endpoint, enabled) in [("host:4317", "true"), (&*url, "false")] {
        let mut program = command();
        program.envs([("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("TRACING_ENABLED", enabled)]);
        program.envs([("OTEL_RESOURCE_ATTRIBUTES", "a=b, "), ("TRACING_SAMPLING_RATE", "1")]);
        let mut tollgate = Tollgate::spawn_by(program, config.path(), &[]);
        tollgate.wait_until_ready();
        assert!(tollgate.client().await.passes("d", &[("free", "x")]).await);
        tollgate.signal("TERM");
        assert_eq!(tokio::task::spawn_blocking(move || tollgate.wait()).await.expect("it ended"), Some(0));
    }
    assert_eq!(spans(&received).len(), 0, "what is left is sent at the end");
}

/// Waits until spans are lost.
async fn wait_for_dropped(tollgate: &Tollgate) {
    let is_more = |line: &str| {
        let count = line.strip_prefix("tollgate_trace_spans_total{result=\"dropped\"} ");
        count.is_some_and(|count| count != "0")
    };
    until("nothing was dropped", async || tollgate.metrics().lines().any(is_more)).await;
}

/// A call whose caller is part of a trace.
fn traced(request: RateLimitRequest, flags: &str) -> Request<RateLimitRequest> {
    let mut request = Request::new(request);
    let parent = format!("00-{TRACE}-{PARENT}-{flags}");
    request.metadata_mut().insert("traceparent", parent.parse().expect("a value"));
    request.metadata_mut().insert("tracestate", "vendor=1".parse().expect("a value"));
    request
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(of: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        other => panic!("{other:?}"),
    };
    let value =
        |pair: &KeyValue| text(pair.value.as_ref().expect("a value").value.as_ref().expect("a value"));
    of.iter().map(|pair| (&*pair.key, value(pair))).collect()
}

#[tokio::test]
async fn a_call_is_a_span_of_its_callers_trace_and_holds_no_value_of_a_descriptor() {
    let (config, (received, url)) = (rules(RULES), Collector::grpc().await);
    let flags = ["--otlp-endpoint", &url, "--otlp-resource-attributes", "deployment.environment=test,zone=a"];
    let tollgate = Tollgate::start(config.path(), &[&flags[..], &["--trace-sample-ratio", "0"]].concat());
    let mut client = tollgate.client().await;
    for _ in 0..2 {
        client
            .call_with(traced(request("d", &[&[("k", "secret")], &[("free", "secret")]]), "01"))
            .await
            .expect("an answer");
    }
    client.call_with(traced(RateLimitRequest::default(), "01")).await.expect_err("has no domain");

    let spans = wait_for(&received, 5).await;
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE && span.trace_state == "vendor=1"));
    assert!(!format!("{spans:?}").contains("secret"));
    let (calls, decisions): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.name == "ShouldRateLimit");
    let expected = |code| {
        BTreeMap::from([
            ("rpc.system", "grpc"),
            ("rpc.service", "envoy.service.ratelimit.v3.RateLimitService"),
            ("rpc.method", "ShouldRateLimit"),
            ("tollgate.domain", "d"),
            ("tollgate.descriptors", "2"),
            ("tollgate.degraded", "false"),
            ("tollgate.code", code),
        ])
    };
    let [passed, denied, failed] = calls[..] else { panic!("{calls:?}") };
    for (call, expected) in [(passed, expected("ok")), (denied, expected("over_limit"))] {
        let attributes = attributes(&call.attributes);
        assert_eq!(
            attributes.iter().map(|(key, value)| (*key, &**value)).collect::<BTreeMap<_, _>>(),
            expected
        );
        assert_eq!((hex(&call.parent_span_id).as_str(), call.kind()), (PARENT, SpanKind::Server));
        let decision = decisions.iter().find(|it| it.parent_span_id == call.span_id).expect("a decision");
        assert_eq!(decision.name, "decide");
        assert!(call.start_time_unix_nano <= decision.start_time_unix_nano);
        assert!(decision.end_time_unix_nano <= call.end_time_unix_nano);
    }
    assert_eq!(attributes(&failed.attributes)["error.type"], "invalid");
    assert_eq!(failed.status.as_ref().expect("a status").code(), StatusCode::Error);

    let requests = received.traces();
    let resource = requests[0].resource_spans[0].resource.as_ref().expect("a resource");
    let resource_attributes = attributes(&resource.attributes);
    assert_eq!(resource_attributes["service.name"], "tollgate");
    assert_eq!(
        (&*resource_attributes["deployment.environment"], &*resource_attributes["zone"]),
        ("test", "a")
    );
}

#[tokio::test]
async fn unsampled_spans_are_not_sent_and_untraced_calls_are_sampled_by_ratio() {
    let (config, (received, url)) = (rules(RULES), Collector::grpc().await);
    let always = Tollgate::start(config.path(), &["--otlp-endpoint", &url, "--trace-sample-ratio", "1"]);
    let never = Tollgate::start(config.path(), &["--otlp-endpoint", &url, "--trace-sample-ratio", "0"]);
    let call = || request("d", &[&[("free", "x")]]);
    for tollgate in [&always, &never] {
        let mut client = tollgate.client().await;
        for _ in 0..5 {
            client.call_with(traced(call(), "00")).await.expect("an answer");
            client.call(call()).await.expect("an answer");
        }
    }
    // What came before the last that is sent has come too.
    never.client().await.call_with(traced(call(), "01")).await.expect("an answer");
    let sent = |spans: &[Span]| spans.iter().filter(|span| hex(&span.trace_id) == TRACE).count();
    let are_there = |spans: &Vec<Span>| sent(spans) >= 2 && spans.len() >= 12;
    let spans = read_until(async || spans(&received), are_there).await;
    let begun: Vec<_> =
        spans.iter().filter(|span| hex(&span.trace_id) != TRACE && span.name == "ShouldRateLimit").collect();
    assert_eq!((begun.len(), sent(&spans), spans.len()), (5, 2, 12));
    assert!(
        begun
            .iter()
            .all(|span| span.parent_span_id.is_empty() && span.trace_id.iter().any(|byte| *byte != 0))
    );
}

#[tokio::test]
async fn buffered_spans_are_delivered_at_shutdown() {
    let (config, (received, url)) = (rules(RULES), Collector::grpc().await);
    let mut tollgate =
        Tollgate::start(config.path(), &["--otlp-endpoint", &url, "--trace-sample-ratio", "1"]);
    let mut client = tollgate.client().await;
    for _ in 0..10 {
        client.call(request("d", &[&[("free", "x")]])).await.expect("an answer");
    }
    drop(client);
    tollgate.signal("TERM");
    let ended = tokio::task::spawn_blocking(move || tollgate.wait()).await.expect("it ended");
    assert_eq!(ended, Some(0));
    assert_eq!(spans(&received).len(), 20);
}

/// The time to stop with a collector that does not work.
async fn without_collector(url: &str) -> Duration {
    let (mut tollgate, mut client) =
        Tollgate::serving_one(RULES, &["--otlp-endpoint", url, "--trace-sample-ratio", "1"]).await;
    // More than may wait.
    for _ in 0..3_000 {
        assert!(client.passes("d", &[("free", "x")]).await);
    }
    wait_for_dropped(&tollgate).await;
    drop(client);
    let begun = Instant::now();
    tollgate.signal("TERM");
    let ended = tokio::task::spawn_blocking(move || tollgate.wait()).await.expect("it ended");
    assert_eq!(ended, Some(0));
    begun.elapsed()
}

#[tokio::test]
async fn a_collector_that_never_answers_loses_spans_and_nothing_else() {
    // The kernel accepts connections, but no process does.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    for port in [free_port(), silent.local_addr().expect("a port").port()] {
        let url = format!("http://127.0.0.1:{port}");
        keeps_to_async(Duration::from_secs(3), "the end", async || without_collector(&url).await).await;
    }
}
