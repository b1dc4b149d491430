//! One HTTP/2 connection to the server, opened again when it is lost.
//!
//! It speaks HTTP/2 itself, without the queues and layers of a general gRPC client: a load that costs more than what it
//! measures is of no use.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use h2::client::{self, SendRequest};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    sync::Mutex as AsyncMutex,
    time::{sleep, timeout},
};
use tonic::Code;

use super::request;
use crate::settings::Target;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How long to wait before another attempt to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// Room for answers, so that none waits for a window to open.
const WINDOW: u32 = 1 << 20;

/// Why a request has no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: Code,
    message: String,
    /// Whether it is that nothing came in time.
    pub(super) is_late: bool,
}

impl Failure {
    fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), is_late: false }
    }

    /// The answer makes no sense.
    pub(super) fn garbled(message: &str) -> Self {
        Self::new(Code::Internal, message)
    }

    /// There was no answer in time.
    pub(super) fn late(timeout: Duration) -> Self {
        let message = format!("no answer within {timeout:?}");
        Self { code: Code::DeadlineExceeded, message, is_late: true }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Self {
        Self::new(Code::Unavailable, error)
    }
}

/// A connection that several streams use.
#[derive(Debug)]
pub(super) struct Connection {
    target: Target,
    timeout: Duration,
    /// What is the same in every request.
    head: Request<()>,
    current: Mutex<Sender>,
    /// Held by the one who opens it again.
    opening: AsyncMutex<()>,
}

/// A handle on a connection, as one stream has it.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    requests: SendRequest<Bytes>,
    /// How often the connection had been opened again.
    generation: u64,
}

impl Connection {
    /// Connects on the runtime that this runs on.
    pub(super) async fn open(
        target: &Target,
        timeout: Duration,
        sends_deadline: bool,
    ) -> Result<Self, Failure> {
        let current = Mutex::new(Sender { requests: connect(target, timeout).await?, generation: 0 });
        let head = head(target, sends_deadline.then_some(timeout))?;
        Ok(Self { target: target.clone(), timeout, head, current, opening: AsyncMutex::new(()) })
    }

    /// A handle on it.
    pub(super) fn sender(&self) -> Sender {
        self.current.lock().clone()
    }

    /// Sends a request and answers whether it passes. Nothing is sent twice.
    pub(super) async fn ask(&self, sender: &mut Sender, message: Bytes) -> Result<bool, Failure> {
        let ready = match sender.requests.clone().ready().await {
            Ok(ready) => ready,
            Err(_) => {
                self.renew(sender).await?;
                sender.requests.clone().ready().await?
            }
        };
        exchange(ready, self.head.clone(), message).await
    }

    /// Opens a lost connection again, unless someone else did.
    async fn renew(&self, sender: &mut Sender) -> Result<(), Failure> {
        let _alone = self.opening.lock().await;
        let current = self.sender();
        if current.generation != sender.generation {
            *sender = current;
            return Ok(());
        }
        match connect(&self.target, self.timeout).await {
            Ok(requests) => {
                *sender = Sender { requests, generation: current.generation.saturating_add(1) };
                *self.current.lock() = sender.clone();
                Ok(())
            }
            Err(failure) => {
                sleep(PAUSE).await;
                Err(failure)
            }
        }
    }
}

fn head(target: &Target, timeout: Option<Duration>) -> Result<Request<()>, Failure> {
    let uri = Uri::builder().scheme("http").authority(target.authority()).path_and_query(PATH).build();
    let uri = uri.map_err(|error| Failure::new(Code::InvalidArgument, format_args!("{target}: {error}")))?;
    let mut head = Request::new(());
    *head.method_mut() = Method::POST;
    *head.uri_mut() = uri;
    let fixed = [
        (header::CONTENT_TYPE, "application/grpc"),
        (header::TE, "trailers"),
        (header::USER_AGENT, "tollgate-load"),
    ];
    head.headers_mut().extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if let Some(timeout) = timeout {
        // The header has eight digits at the most.
        let millis = timeout.as_millis().clamp(1, 99_999_999) as u64;
        let value = HeaderValue::try_from(format!("{millis}m"));
        let value = value.map_err(|error| Failure::new(Code::InvalidArgument, error))?;
        head.headers_mut().insert("grpc-timeout", value);
    }
    Ok(head)
}

async fn connect(target: &Target, limit: Duration) -> Result<SendRequest<Bytes>, Failure> {
    let failed =
        |error: &dyn fmt::Display| Failure::new(Code::Unavailable, format_args!("{target}: {error}"));
    let connecting = async {
        let stream = TcpStream::connect(target.authority()).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let mut builder = client::Builder::new();
        builder.enable_push(false).initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (requests, connection) = builder.handshake(stream).await.map_err(|error| failed(&error))?;
        // When it fails, so do the requests on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(requests)
    };
    timeout(limit, connecting)
        .await
        .unwrap_or_else(|_| Err(failed(&format_args!("no answer within {limit:?}"))))
}

async fn exchange(
    mut requests: SendRequest<Bytes>,
    head: Request<()>,
    message: Bytes,
) -> Result<bool, Failure> {
    let (response, mut body) = requests.send_request(head, false)?;
    body.send_data(message, true)?;
    let response = response.await?;
    if response.status() != StatusCode::OK {
        return Err(Failure::new(Code::Unknown, format_args!("HTTP status {}", response.status())));
    }
    // A failure may come without a message, all in the headers.
    if response.headers().contains_key("grpc-status") {
        succeeded(response.headers())?;
    }
    let mut body = response.into_body();
    let mut answer = Bytes::new();
    while let Some(part) = body.data().await {
        let part = part?;
        // Fails only when nothing more can come.
        let _ = body.flow_control().release_capacity(part.len());
        answer = joined(answer, part);
    }
    succeeded(&body.trailers().await?.unwrap_or_default())?;
    request::passes(&answer)
}

/// An answer comes in one part, as a rule.
fn joined(one: Bytes, other: Bytes) -> Bytes {
    match one.is_empty() {
        true => other,
        false => {
            let mut both = BytesMut::from(one);
            both.extend_from_slice(&other);
            both.freeze()
        }
    }
}

fn succeeded(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name| headers.get(name).map(HeaderValue::as_bytes);
    match text("grpc-status").map(Code::from_bytes) {
        Some(Code::Ok) => Ok(()),
        Some(code) => {
            let message = String::from_utf8_lossy(text("grpc-message").unwrap_or_default());
            Err(Failure::new(code, message.replace("%20", " ")))
        }
        None => Err(Failure::garbled("the answer has no grpc-status")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(status: Option<&'static str>) -> Option<Code> {
        let mut headers = HeaderMap::new();
        if let Some(status) = status {
            headers.insert("grpc-status", HeaderValue::from_static(status));
        }
        succeeded(&headers).err().map(|failure| failure.code)
    }

    #[test]
    fn only_status_zero_is_a_success() {
        assert_eq!(code(Some("0")), None);
        assert_eq!(code(Some("14")), Some(Code::Unavailable));
        assert_eq!(code(Some("x")), Some(Code::Unknown));
        assert_eq!(code(None), Some(Code::Internal));
    }
}
