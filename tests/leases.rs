//! Leases of cancelled calls and with failing stores, with Redis.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::{net::TcpStream, time::timeout};

use crate::support::http2::{SHOULD_RATE_LIMIT, call, frame, greeting, reset};
use crate::support::prelude::*;

const RULES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
- {key: tenant, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
";

const USER: (&str, &str) = ("user", "me");
const TENANT: (&str, &str) = ("tenant", "ours");

struct Subject {
    redis: Redis,
    tollgate: Tollgate,
    client: Client,
}

impl Subject {
    async fn start(store_timeout: &str) -> Self {
        let redis = Redis::start();
        let arguments = ["--store", &redis.url(), "--store-timeout", store_timeout, "--replicas-hint", "1"];
        let tollgate = Tollgate::serving(RULES, &arguments);
        let client = tollgate.client().await;
        Self { redis, tollgate, client }
    }

    async fn take(&mut self, entries: &[(&str, &str)]) -> Result<RateLimitResponse, tonic::Status> {
        let descriptors: Vec<_> = entries.iter().map(std::slice::from_ref).collect();
        self.client.call(request("d", &descriptors)).await
    }

    async fn held(&mut self, entry: (&str, &str)) -> u32 {
        5 - self.client.left("d", &[entry]).await
    }

    /// Asserts how many permits had been taken: their keys existed, and are deleted.
    fn assert_taken(&self, times: u32) {
        let info: String =
            cmd("INFO").arg("commandstats").query(&mut self.redis.connect()).expect("statistics");
        assert!(info.contains(&format!("cmdstat_zadd:calls={times}")), "{info}");
    }

    /// Waits until the places that tollgate gave back by itself were given back, as far as Redis knows.
    async fn has_refunded(&self, result: &str) {
        let series = format!(r#"tollgate_refunds_total{{result="{result}"}} "#);
        let is_more = |line: &str| line.strip_prefix(&series).is_some_and(|count| count != "0");
        read_until(async || self.tollgate.metrics(), |page| page.lines().any(is_more)).await;
    }
}

#[tokio::test]
async fn a_cancelled_call_refunds_its_charges() {
    let mut subject = Subject::start("5s").await;
    assert_eq!(subject.held(USER).await, 0);
    subject.redis.signal("STOP");
    let cancelled = timeout(Duration::from_millis(700), subject.take(&[USER, TENANT])).await;
    assert!(cancelled.is_err(), "no decision while Redis sleeps");
    // The cancellation is on its way.
    sleep(Duration::from_millis(300)).await;
    subject.redis.signal("CONT");
    subject.has_refunded("success").await;
    assert_eq!((subject.held(USER).await, subject.held(TENANT).await), (0, 0));
    subject.assert_taken(2);
}

#[tokio::test]
async fn a_call_with_a_late_reply_refunds_its_charges() {
    let mut subject = Subject::start("700ms").await;
    assert_eq!(subject.held(USER).await, 0);
    subject.redis.signal("STOP");
    let error = subject.take(&[USER]).await.expect_err("no decision in time");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    subject.redis.signal("CONT");
    subject.has_refunded("success").await;
    assert_eq!(subject.held(USER).await, 0);
    subject.assert_taken(1);
}

#[tokio::test]
async fn a_failure_of_one_tag_refunds_the_others() {
    let mut subject = Subject::start("5s").await;
    subject.take(&[TENANT]).await.expect("a place");
    let mut connection = subject.redis.connect();
    let keys: Vec<String> = cmd("KEYS").arg("{d|*").query(&mut connection).expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    cmd("SET").arg(&keys[0]).arg("broken").exec(&mut connection).expect("written");
    let error = subject.take(&[USER, TENANT]).await.expect_err("one of them does not decide");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    subject.has_refunded("success").await;
    assert_eq!(subject.held(USER).await, 0);
}

#[tokio::test]
async fn a_release_is_not_counted_as_a_hit() {
    let (tollgate, mut client) = Tollgate::serving_one(RULES, &[]).await;
    client.call(request("d", &[&[USER]])).await.expect("a place");
    client.call(request("d", &[&[USER, ("lease", "00000000000000ff")]])).await.expect("an answer");
    let page = tollgate.metrics();
    for name in ["hits", "within_limit"] {
        let line = format!("tollgate_rule_{name}_total{{domain=\"d\",rule=\"user\"}} 1\n");
        assert!(page.contains(&line), "{page}");
    }
}

/// The bytes of a connection with one call on stream 1, of a client that takes `window` bytes of data before it says
/// that it takes more.
fn call_with_window(window: u32, message: &RateLimitRequest) -> Vec<u8> {
    [greeting(window), call(1, SHOULD_RATE_LIMIT, message)].concat()
}

/// Reads until the end of stream 1.
async fn read_response(connection: &mut TcpStream) {
    let mut received = Vec::new();
    loop {
        let mut rest = &received[..];
        while let Some((header, payload)) = rest.split_at_checked(9) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            // Trailers that end the stream.
            if header[3] == 1 && header[4] & 1 == 1 {
                return;
            }
            rest = payload.get(length..).unwrap_or_default();
        }
        assert!(connection.read_buf(&mut received).await.expect("open") > 0, "it was closed");
    }
}

/// The reset of a caller that cancels a call crosses its response: the caller will not read the lease.
#[tokio::test]
async fn a_reset_after_the_response_releases_its_permits() {
    let redis = Redis::start();
    for store in ["memory", &redis.url()] {
        let tollgate = Tollgate::serving(RULES, &["--store", store, "--store-timeout", "10s"]);
        let held = async || 5 - tollgate.client().await.left("d", &[USER]).await;
        let call = call_with_window(65_535, &request("d", &[&[USER]]));
        let connect = async || {
            let address = ("127.0.0.1", tollgate.grpc_port);
            let mut connection = TcpStream::connect(address).await.expect("tollgate listens");
            connection.write_all(&call).await.expect("sent");
            read_response(&mut connection).await;
            connection
        };
        let (mut crossed, closed) = (connect().await, connect().await);
        assert_eq!(held().await, 2, "{store}");
        for _ in 0..2 {
            crossed.write_all(&reset(1)).await.expect("sent");
            until("it does not come about", async || held().await == 1).await;
        }
        // A caller whose connection ends may have read the lease.
        drop(closed);
        assert_eq!(held().await, 1, "{store}");
    }
}

#[tokio::test]
async fn an_unread_response_refunds_its_charges() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let held = async || 5 - tollgate.client().await.left("d", &[USER]).await;
    let call = call_with_window(0, &request("d", &[&[USER]]));
    let reset = reset(1);

    let mut waits = TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).await.expect("tollgate listens");
    waits.write_all(&call).await.expect("sent");
    until("it does not come about", async || held().await == 1).await;
    waits.write_all(&reset).await.expect("sent");
    until("it does not come about", async || held().await == 0).await;

    // The end of a read budget comes between the call and its reset: frames of an unknown kind, which HTTP/2 ignores.
    let between = frame(0xfa, 0, 0, &[0; 16_384]).repeat(4);
    let mut in_two_parts =
        TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).await.expect("tollgate listens");
    in_two_parts.write_all(&[&call[..], &between, &reset].concat()).await.expect("sent");
    let given_back = r#"tollgate_refunds_total{result="success"} 2"#;
    until("it does not come about", async || tollgate.metrics().contains(given_back)).await;
    assert_eq!(held().await, 0);
}

#[tokio::test]
async fn a_call_that_arrives_with_its_reset_charges_nothing() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let call = call_with_window(0, &request("d", &[&[USER]]));
    let mut at_once = TcpStream::connect(("127.0.0.1", tollgate.grpc_port)).await.expect("tollgate listens");
    at_once.write_all(&[call, reset(1)].concat()).await.expect("sent");
    let cancelled = r#"tollgate_requests_total{result="cancelled"} 1"#;
    until("it does not come about", async || tollgate.metrics().contains(cancelled)).await;
    let page = tollgate.metrics();
    assert!(!page.contains(r#"tollgate_requests_total{result="ok"} 1"#), "{page}");
    assert!(!page.contains(r#"tollgate_refunds_total{result="success"} 1"#), "{page}");
    assert_eq!(tollgate.client().await.left("d", &[USER]).await, 5);
}

#[tokio::test]
async fn a_failed_release_is_repeated_when_redis_recovers() {
    let mut subject = Subject::start("700ms").await;
    let answer = subject.take(&[USER]).await.expect("an answer");
    let lease = &*lease_of(&answer).expect("a lease");
    subject.redis.signal("STOP");
    let released = subject.client.call(request("d", &[&[USER, ("lease", lease)]])).await;
    assert!(released.is_err(), "Redis sleeps");
    subject.redis.signal("CONT");
    // No client requests it again.
    subject.has_refunded("success").await;
    assert_eq!(subject.held(USER).await, 0);
}
