//! Token budgets behind a real Envoy, by `deploy/envoy/llm_budget.yaml`.

mod monitor;
mod soak;

use std::{convert::Infallible, io};

use axum::body::{Body, Bytes};
use axum::{extract::Request, http::header::CONTENT_TYPE};
use futures_util::StreamExt as _;
use tokio::sync::Barrier;

use super::*;

const LIMIT: u32 = 2_000;

fn budget(keys: &str) -> String {
    format!(
        "domain: llm\ndescriptors:\n- key: user\n  rate_limit: {{unit: year, requests_per_unit: {LIMIT}, {keys}}}\n"
    )
}

/// A model whose answer depends on the path: `/json/120`, `/sse/120` with that usage, `/none` without, `/error`; `/hang` never
/// ends its answer.
async fn answer(request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let tokens = path.rsplit('/').next().unwrap_or_default().to_owned();
    let usage = format!(r#"{{"choices": [], "usage": {{"total_tokens": {tokens}}}}}"#);
    let response = Response::builder().header(CONTENT_TYPE, "application/json");
    let response = match path.split('/').nth(1).unwrap_or_default() {
        "json" => response.body(Body::from(usage)),
        "sse" => {
            let events = format!("data: {{\"choices\": []}}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
            Response::builder().header(CONTENT_TYPE, "text/event-stream").body(Body::from(events))
        }
        "hang" => {
            let begin = futures_util::stream::once(async {
                Ok::<_, Infallible>(Bytes::from_static(b"data: {}\n\n"))
            });
            let stream = begin.chain(futures_util::stream::pending());
            Response::builder().header(CONTENT_TYPE, "text/event-stream").body(Body::from_stream(stream))
        }
        "error" => response.status(StatusCode::INTERNAL_SERVER_ERROR).body(Body::from("{}")),
        _ => response.body(Body::from("{}")),
    };
    response.expect("valid")
}

async fn model() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("is bound").port();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    port
}

/// Sends a request with this body, and returns the connection.
async fn try_send(port: u16, path: &str, body: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nx-user: me\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

async fn send(port: u16, path: &str, body: &str) -> TcpStream {
    try_send(port, path, body).await.expect("Envoy listens")
}

/// The status of a request with this `max_tokens`; `None` if the connection failed.
async fn try_status_of(port: u16, path: &str, max_tokens: u64) -> io::Result<u16> {
    let mut stream = try_send(port, path, &format!(r#"{{"max_tokens": {max_tokens}}}"#)).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::Error::other(answer))
}

async fn status_of(port: u16, path: &str, max_tokens: u64) -> u16 {
    try_status_of(port, path, max_tokens).await.expect("a status")
}

/// Tokens that are used or held, as far as they are within the budget.
async fn spent(client: &mut Client) -> u32 {
    LIMIT - client.left("llm", &[("user", "me")]).await
}

/// Waits until that many tokens are spent: the end of a stream is reported after its client has the answer.
async fn spends(client: &mut Client, tokens: u32) {
    read_until(async || spent(client).await, |spent| *spent == tokens).await;
}

/// Sends 20 requests of 480 tokens at once; returns the number of each status.
async fn twenty(port: u16) -> BTreeMap<u16, usize> {
    let barrier = Arc::new(Barrier::new(20));
    let mut requests = JoinSet::new();
    for _ in 0..20 {
        let barrier = Arc::clone(&barrier);
        requests.spawn(async move {
            barrier.wait().await;
            status_of(port, "/json/480", 480).await
        });
    }
    let mut statuses = BTreeMap::new();
    for status in requests.join_all().await {
        *statuses.entry(status).or_default() += 1;
    }
    statuses
}

fn envoy(tollgate: &Tollgate, model: u16) -> Envoy {
    Bootstrap::read("llm_budget", tollgate.grpc_port, Some(model)).run(&[tollgate.grpc_port])
}

#[tokio::test]
async fn parallel_requests_do_not_overspend_a_budget_with_reservations() {
    let redis = Redis::start();
    let tollgate =
        Tollgate::serving(&budget("reserve: {ttl: 1h}"), &["--store", &redis.url(), "--store-timeout", "5s"]);
    let envoy = envoy(&tollgate, model().await);
    assert_eq!(twenty(envoy.port).await, BTreeMap::from([(200, 4), (429, 16)]));
    spends(&mut tollgate.client().await, 1_920).await;
}

#[tokio::test]
async fn each_end_of_a_stream_settles_its_reservation() {
    for (unsettled, lost) in [("charge", 300), ("release", 0)] {
        let tollgate =
            Tollgate::serving(&budget(&format!("reserve: {{ttl: 1h, unsettled: {unsettled}}}")), &[]);
        let envoy = envoy(&tollgate, model().await);
        let mut client = tollgate.client().await;
        let mut used = 0;
        for (path, status, tokens) in
            [("/json/120", 200, 120), ("/sse/130", 200, 130), ("/none", 200, lost), ("/error", 500, lost)]
        {
            assert_eq!(status_of(envoy.port, path, 300).await, status, "{path}");
            used += tokens;
            spends(&mut client, used).await;
        }
        // Without a number, as many as the file states.
        let mut stream = send(envoy.port, "/hang", "{}").await;
        spends(&mut client, used + 500).await;
        let mut begin = [0; 15];
        stream.read_exact(&mut begin).await.expect("the answer begins");
        drop(stream);
        used += if lost > 0 { 500 } else { 0 };
        spends(&mut client, used).await;
        // More than is left is denied, and nothing is charged for it.
        assert_eq!(status_of(envoy.port, "/json/1", 1_990).await, 429);
        assert_eq!(status_of(envoy.port, "/json/1", 10).await, 200);
        spends(&mut client, used + 1).await;
    }
}
