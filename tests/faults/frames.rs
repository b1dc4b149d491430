//! One HTTP/2 connection to tollgate, as one of Envoy's: each call has a deadline, and is reset when that is over.

use ::http::{HeaderMap, Request};
use h2::client::{self, SendRequest};
use tokio::net::TcpStream;
use tonic::Code;

use super::{messages::outcome_of, *};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Room for answers, so that none waits for a window to open.
const WINDOW: u32 = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct Connection {
    port: u16,
    requests: Rc<RefCell<SendRequest<Bytes>>>,
    /// Whether a task is already reconnecting.
    opening: Rc<Cell<bool>>,
    head: Request<()>,
    deadline: Duration,
}

impl Connection {
    /// Connects, on the runtime that this runs on.
    pub(super) async fn open(port: u16, deadline: Duration) -> Self {
        let requests = Rc::new(RefCell::new(connect(port).await));
        let head = Request::post(format!("http://127.0.0.1:{port}{PATH}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", format!("{}m", deadline.as_millis()))
            .body(())
            .expect("valid");
        Self { port, requests, opening: Rc::default(), head, deadline }
    }

    /// Opens a connection in place of a lost one, for the next calls.
    async fn renew(&self) {
        if !self.opening.replace(true) {
            let requests = connect(self.port).await;
            *self.requests.borrow_mut() = requests;
            self.opening.set(false);
        }
    }

    /// Sends a request and awaits what becomes of it, which is nothing more once the deadline is over.
    pub(super) async fn send(&self, message: Bytes) -> (Outcome, By) {
        match tokio::time::timeout(self.deadline, self.exchange(message)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(code)) => (Outcome::Error(code), By::Store),
            Err(_) => (Outcome::Late, By::Store),
        }
    }

    async fn exchange(&self, message: Bytes) -> Result<(Outcome, By), Code> {
        let lost = |_: h2::Error| Code::Unavailable;
        let requests = self.requests.borrow().clone();
        let mut requests = match requests.ready().await {
            Ok(requests) => requests,
            Err(error) => {
                self.renew().await;
                return Err(lost(error));
            }
        };
        let (response, mut body) = requests.send_request(self.head.clone(), false).map_err(lost)?;
        body.send_data(message, true).map_err(lost)?;
        let response = response.await.map_err(lost)?;
        if !response.status().is_success() {
            return Err(Code::Unknown);
        }
        if response.headers().contains_key("grpc-status") {
            succeeded(response.headers())?;
        }
        let mut body = response.into_body();
        let mut answer = Vec::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(lost)?;
            let _ = body.flow_control().release_capacity(part.len());
            answer.extend_from_slice(&part);
        }
        succeeded(&body.trailers().await.map_err(lost)?.unwrap_or_default())?;
        Ok(outcome_of(&answer))
    }
}

async fn connect(port: u16) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("tollgate listens");
    stream.set_nodelay(true).expect("a socket");
    let mut builder = client::Builder::new();
    builder.enable_push(false).initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    // Responses to cancelled calls may still arrive, however many: that is not a fault of the server.
    builder.max_concurrent_reset_streams(100_000).max_local_error_reset_streams(None);
    let (requests, connection) = builder.handshake(stream).await.expect("HTTP/2");
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            println!("a connection broke: {error}");
        }
    });
    requests
}

fn succeeded(headers: &HeaderMap) -> Result<(), Code> {
    match headers.get("grpc-status").map(|value| Code::from_bytes(value.as_bytes())) {
        Some(Code::Ok) => Ok(()),
        Some(code) => Err(code),
        None => Err(Code::Internal),
    }
}
