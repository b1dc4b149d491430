//! Connections that send many calls at once, beside others of the same worker.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::{JoinHandle, yield_now};
use tokio_util::sync::CancellationToken;
use tollgate_fixtures::{HTTP2_START, frame, settings};
use tollgate_gate::SHOULD_RATE_LIMIT_PATH;
use tollgate_proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
};
use tonic::{Request, Response, Status, async_trait};

use super::connection::{Connections, Dispatch, side_services};
use super::{request_body::MessageLimits, responses::StallDetector};
use crate::readiness::Readiness;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Room for everything that a client sends.
const CAPACITY: usize = 8 << 20;

/// Records the domains of the calls that it decides, each followed by its header `trace`.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl RateLimitService for Recorder {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let trace = request.metadata().get("trace").and_then(|trace| trace.to_str().ok()).unwrap_or_default();
        self.0.lock().push(format!("{}{trace}", request.get_ref().domain));
        Ok(Response::new(RateLimitResponse::default()))
    }
}

/// A worker with a service that records.
struct Worker {
    decided: Recorder,
    connections: Connections,
    services: Dispatch<Recorder>,
}

impl Worker {
    fn new() -> Self {
        let mut settings: crate::grpc::GrpcSettings = settings("");
        settings.keepalive_interval = None;
        settings.keepalive_timeout = TIMEOUT;
        settings.max_connection_age = None;
        settings.max_message_bytes = 1024;
        let decided = Recorder::default();
        let side = side_services(Readiness::new(0)).expect("valid descriptors");
        let limits = MessageLimits { max_bytes: 1024, timeout: TIMEOUT };
        let services = Dispatch::new(decided.clone(), side, limits);
        let connections = Connections::new(&settings, None, TIMEOUT, CancellationToken::new());
        Self { decided, connections, services }
    }

    /// Sheds calls as if each took `cost`.
    fn with_cost(self, cost: Duration) -> Self {
        Self { services: self.services.with_cost(cost), ..self }
    }

    /// Connects a client.
    async fn connect(&self) -> Caller {
        let (near, far) = duplex(CAPACITY);
        tokio::spawn(self.connections.clone().serve(near, self.services.clone(), StallDetector::default()));
        let (requests, connection) = client::handshake(far).await.expect("HTTP/2");
        tokio::spawn(connection);
        Caller(requests)
    }

    /// Serves a client that has sent `bytes`; it never ends by itself.
    async fn serve(&self, bytes: &[u8]) -> (DuplexStream, JoinHandle<()>) {
        let (near, mut far) = duplex(CAPACITY);
        far.write_all(bytes).await.expect("room");
        let serving = self.connections.clone().serve(near, self.services.clone(), StallDetector::default());
        (far, tokio::spawn(serving))
    }

    /// Waits until a call of the domain is decided; returns how many of others were before it.
    async fn decided_before(&self, domain: &str) -> usize {
        loop {
            if let Some(at) = self.decided.0.lock().iter().position(|decided| decided == domain) {
                return at;
            }
            yield_now().await;
        }
    }
}

/// A client whose calls have a timeout of a minute.
struct Caller(SendRequest<Bytes>);

impl Caller {
    /// Sends a call with a message, which another task may do.
    fn send(&mut self, path: &str, trace: usize, message: &[u8]) -> ResponseFuture {
        let head = hyper::Request::post(format!("http://tollgate{path}"))
            .header("trace", trace.to_string())
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "60S");
        let (response, mut body) = self.0.send_request(head.body(()).expect("valid"), false).expect("open");
        body.send_data(Bytes::copy_from_slice(message), true).expect("open");
        response
    }
}

/// The status of a call.
async fn status(response: ResponseFuture) -> String {
    let (head, mut body) = response.await.expect("a response").into_parts();
    let mut headers = head.headers;
    if !headers.contains_key("grpc-status") {
        while let Some(data) = body.data().await {
            body.flow_control().release_capacity(data.expect("data").len()).expect("received");
        }
        headers = body.trailers().await.expect("open").expect("trailers");
    }
    headers.get("grpc-status").and_then(|status| status.to_str().ok()).expect("a status").to_owned()
}

/// Bytes that a client sends.
struct Client {
    bytes: Vec<u8>,
    stream: u32,
}

impl Client {
    fn new() -> Self {
        Self { bytes: HTTP2_START.to_vec(), stream: 1 }
    }

    fn frame(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        self.bytes.extend(frame(kind, flags, self.stream, payload));
    }

    fn headers(&mut self) {
        let mut block = vec![0x83, 0x86];
        let fields: [(&[u8], &[u8]); 4] = [
            (&[0x04], SHOULD_RATE_LIMIT_PATH.as_bytes()),
            (&[0x01], b"tollgate"),
            (&[0x0f, 0x10], b"application/grpc"),
            (&[0x00, 2, b't', b'e'], b"trailers"),
        ];
        for (name, value) in fields {
            block.extend_from_slice(name);
            block.push(u8::try_from(value.len()).expect("short"));
            block.extend_from_slice(value);
        }
        self.frame(1, 4, &block);
    }

    /// The message of a call that names a domain.
    fn message(&mut self, domain: &str) {
        let mut body = vec![0, 0, 0, 0, 0, 0x0a];
        body.push(u8::try_from(domain.len()).expect("short"));
        body.extend_from_slice(domain.as_bytes());
        body[4] = u8::try_from(body.len() - 5).expect("short");
        self.frame(0, 1, &body);
    }

    fn reset(&mut self) {
        self.frame(3, 0, &8_u32.to_be_bytes());
    }

    fn ping(&mut self) {
        self.bytes.extend(frame(6, 0, 0, &[0; 8]));
    }

    fn next_call(&mut self) {
        self.stream += 2;
    }

    fn call(&mut self, domain: &str) {
        self.headers();
        self.message(domain);
        self.next_call();
    }
}

#[tokio::test]
async fn a_connection_with_a_thousand_calls_does_not_keep_another_one_waiting() {
    let (mut many, mut one) = (Client::new(), Client::new());
    (0..1_000).for_each(|_| many.call("many"));
    one.call("one");
    let worker = Worker::new();
    let _many = worker.serve(&many.bytes).await;
    let _one = worker.serve(&one.bytes).await;
    let before = worker.decided_before("one").await;
    assert!(before < 200, "{before} calls before");
    while worker.decided.0.lock().len() < 1_001 {
        yield_now().await;
    }
}

#[tokio::test]
async fn floods_do_not_keep_others_waiting_and_the_connection_stays_open() {
    let reset: fn(&mut Client) = |client| {
        client.headers();
        client.reset();
        client.next_call();
    };
    for (flood, count, send) in [("calls reset at once", 10_000, reset), ("pings", 40_000, Client::ping)] {
        let (mut many, mut one) = (Client::new(), Client::new());
        (0..count).for_each(|_| send(&mut many));
        many.call("last");
        one.call("one");
        let worker = Worker::new();
        let (_many, _one) = (worker.serve(&many.bytes).await, worker.serve(&one.bytes).await);
        assert_eq!(worker.decided_before("one").await, 0, "{flood}");
        assert_eq!(worker.decided_before("last").await, 1, "{flood}");
    }
}

#[tokio::test]
async fn whole_calls_are_not_decided_if_their_reset_is_read_with_them() {
    let mut flood = Client::new();
    for _ in 0..10_000 {
        flood.headers();
        flood.message("flood");
        flood.reset();
        flood.next_call();
    }
    flood.call("last");
    let worker = Worker::new();
    let _flood = worker.serve(&flood.bytes).await;
    // The end of a read budget may come between a call and its reset.
    let decided = worker.decided_before("last").await;
    assert!(decided < 100, "{decided} decided");
}

/// A message with a domain of one character.
fn named(domain: u8) -> [u8; 8] {
    [0, 0, 0, 0, 3, 0x0a, 1, domain]
}

/// Calls of a client, of which each has the header `trace` with the number that `trace` returns.
async fn call_an_overloaded_worker(trace: fn(usize) -> usize) {
    const HEALTH: &str = "/grpc.health.v1.Health/Check";
    let worker = Worker::new().with_cost(Duration::from_secs(1_000));
    let mut caller = worker.connect().await;
    // The first of each kind fills the table of headers.
    assert_eq!(status(caller.send(SHOULD_RATE_LIMIT_PATH, trace(0), &named(b'a'))).await, "0");
    assert_eq!(status(caller.send(HEALTH, trace(1), &[0; 5])).await, "0");
    for round in 0..200 {
        let number = |call: usize| trace(2 + 4 * round + call);
        let calls = [b'b', b'c', b'd']
            .map(|name| caller.send(SHOULD_RATE_LIMIT_PATH, number(usize::from(name - b'b')), &named(name)));
        let health = caller.send(HEALTH, number(3), &[0; 5]);
        let mut statuses = Vec::new();
        for call in calls {
            statuses.push(status(call).await);
        }
        assert_eq!(statuses, ["0", "14", "14"], "round {round}");
        assert_eq!(status(health).await, "0", "health checks are not refused");
    }
    let decided = worker.decided.0.lock();
    let rounds = (0..200).map(|round| format!("b{}", trace(2 + 4 * round)));
    let expected: Vec<String> = [format!("a{}", trace(0))].into_iter().chain(rounds).collect();
    assert_eq!(*decided, expected);
}

#[tokio::test]
async fn an_overloaded_worker_answers_calls_that_http2_does_not_see() {
    call_an_overloaded_worker(|_| 0).await;
}

#[tokio::test]
async fn refused_calls_may_change_the_table_of_headers() {
    call_an_overloaded_worker(|number| number).await;
}
