//! An HTTP/2 connection to the server, with reconnect.
//!
//! Uses `h2` directly, without the queues and layers of a general gRPC client: a generator must cost less than the server
//! under test.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use h2::client::{self, SendRequest};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header, uri::Authority};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio::{net::TcpStream, sync::Mutex as AsyncMutex};
use tonic::Code;

use super::request::{self, RequestError};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Delay before the next attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);

/// HTTP/2 flow-control window, so large that no response waits for it.
const WINDOW_BYTES: u32 = 1 << 20;

/// A connection shared by several streams.
#[derive(Debug)]
pub(super) struct Connection {
    target: Authority,
    timeout: Duration,
    /// The head of every request.
    head: Request<()>,
    current: Mutex<Handle>,
    /// Held while reconnecting.
    reconnecting: AsyncMutex<()>,
}

/// A stream's handle to a connection.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    requests: SendRequest<Bytes>,
    /// Number of reconnects before this handle was made.
    generation: u64,
}

impl Connection {
    /// Connects, on the current runtime.
    pub(super) async fn open(
        target: &Authority,
        timeout: Duration,
        sends_deadline: bool,
    ) -> Result<Self, RequestError> {
        let current = Mutex::new(Handle { requests: connect(target, timeout).await?, generation: 0 });
        let head = head(target, sends_deadline.then_some(timeout))?;
        Ok(Self { target: target.clone(), timeout, head, current, reconnecting: AsyncMutex::new(()) })
    }

    /// A handle to the current connection.
    pub(super) fn handle(&self) -> Handle {
        self.current.lock().clone()
    }

    /// Sends a request and returns whether it passes. A request is never sent twice.
    pub(super) async fn send(&self, handle: &mut Handle, message: Bytes) -> Result<bool, RequestError> {
        let ready = match handle.requests.clone().ready().await {
            Ok(ready) => ready,
            Err(_) => {
                self.reconnect(handle).await?;
                handle.requests.clone().ready().await?
            }
        };
        exchange(ready, self.head.clone(), message).await
    }

    /// Reconnects, unless another stream already has.
    async fn reconnect(&self, handle: &mut Handle) -> Result<(), RequestError> {
        let _guard = self.reconnecting.lock().await;
        let current = self.handle();
        if current.generation != handle.generation {
            *handle = current;
            return Ok(());
        }
        match connect(&self.target, self.timeout).await {
            Ok(requests) => {
                *handle = Handle { requests, generation: current.generation + 1 };
                *self.current.lock() = handle.clone();
                Ok(())
            }
            Err(error) => {
                sleep(RECONNECT_DELAY).await;
                Err(error)
            }
        }
    }
}

fn head(target: &Authority, timeout: Option<Duration>) -> Result<Request<()>, RequestError> {
    let uri = Uri::builder().scheme("http").authority(target.clone()).path_and_query(PATH).build();
    let uri = uri.map_err(|error| RequestError::new(Code::InvalidArgument, error))?;
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
        // The header has at most eight digits.
        let millis = timeout.as_millis().clamp(1, 99_999_999) as u64;
        let value = HeaderValue::try_from(format!("{millis}m"));
        let value = value.map_err(|error| RequestError::new(Code::InvalidArgument, error))?;
        head.headers_mut().insert("grpc-timeout", value);
    }
    Ok(head)
}

async fn connect(target: &Authority, limit: Duration) -> Result<SendRequest<Bytes>, RequestError> {
    let failed = |error: &dyn fmt::Display| {
        RequestError::new(Code::Unavailable, format_args!("http://{target}: {error}"))
    };
    let connecting = async {
        let stream = TcpStream::connect(target.as_str()).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let mut builder = client::Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let (requests, connection) = builder.handshake(stream).await.map_err(|error| failed(&error))?;
        // If it fails, the requests on it fail as well.
        tokio::spawn(async move { drop(connection.await) });
        Ok(requests)
    };
    timeout(limit, connecting)
        .await
        .unwrap_or_else(|_| Err(failed(&format_args!("no response within {limit:?}"))))
}

async fn exchange(
    mut requests: SendRequest<Bytes>,
    head: Request<()>,
    request: Bytes,
) -> Result<bool, RequestError> {
    let (response, mut body) = requests.send_request(head, false)?;
    body.send_data(request, true)?;
    let response = response.await?;
    if response.status() != StatusCode::OK {
        return Err(RequestError::new(Code::Unknown, format_args!("HTTP status {}", response.status())));
    }
    // An error without a message is in the headers alone.
    if response.headers().contains_key("grpc-status") {
        succeeded(response.headers())?;
    }
    let mut body = response.into_body();
    let mut message = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part?;
        // Fails only on a closed stream.
        let _ = body.flow_control().release_capacity(part.len());
        message.extend_from_slice(&part);
    }
    succeeded(&body.trailers().await?.unwrap_or_default())?;
    request::passes(&message)
}

fn succeeded(headers: &HeaderMap) -> Result<(), RequestError> {
    let text = |name| headers.get(name).map(HeaderValue::as_bytes);
    match text("grpc-status").map(Code::from_bytes) {
        Some(Code::Ok) => Ok(()),
        Some(code) => {
            let message = String::from_utf8_lossy(text("grpc-message").unwrap_or_default());
            Err(RequestError::new(code, message.replace("%20", " ")))
        }
        None => Err(RequestError::malformed("response without grpc-status; expected a gRPC response")),
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
        succeeded(&headers).err().map(|error| error.code)
    }

    #[test]
    fn only_status_zero_is_a_success() {
        assert_eq!(code(Some("0")), None);
        assert_eq!(code(Some("14")), Some(Code::Unavailable));
        assert_eq!(code(Some("x")), Some(Code::Unknown));
        assert_eq!(code(None), Some(Code::Internal));
    }
}
