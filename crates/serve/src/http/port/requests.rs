//! Requests of a connection, and the bodies of their responses.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{convert::Infallible, future, io, pin::Pin, sync::Arc};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header::CONNECTION};
use axum::response::{IntoResponse as _, Response};
use hyper::Request;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tollgate_runtime::panics::{CatchUnwind, Panicked};
use tonic::codegen::Service as _;

use crate::net::accept::{ConnectionActivity, RequestInProgress};
use crate::net::{Port, unfinished::Unfinished};

/// Body of a request, after whose end its connection is busy.
#[derive(Debug)]
struct ReceivedBody {
    body: Incoming,
    request: Arc<RequestInProgress>,
    unfinished: Unfinished,
}

impl hyper::body::Body for ReceivedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            self.unfinished.wait()?;
            return Poll::Pending;
        };
        let frame = frame.transpose()?;
        self.unfinished.add(frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len));
        if self.body.is_end_stream() {
            self.request.received();
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves the requests of a connection.
pub(super) struct RequestService {
    /// Cancelled by the first request.
    pub(super) first_request: CancellationToken,
    pub(super) router: Router,
    /// Timeout of each request.
    pub(super) timeout: Duration,
    pub(super) port: Port,
    pub(super) activity: Arc<ConnectionActivity>,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for RequestService {
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        self.first_request.cancel();
        // A connection that was just closed for another one has no use for a response.
        let Some(in_progress) = self.activity.begin_request().map(Arc::new) else {
            return Box::pin(future::ready(Ok(closing(StatusCode::SERVICE_UNAVAILABLE))));
        };
        if request.body().is_end_stream() {
            in_progress.received();
        }
        let body = |body| {
            let (request, unfinished) = (Arc::clone(&in_progress), Unfinished::new(self.port, 0));
            Body::new(ReceivedBody { body, request, unfinished })
        };
        let (response, limit) = (self.router.clone().call(request.map(body)), self.timeout);
        let deadline = Instant::now().checked_add(limit);
        Box::pin(async move {
            let response = match timeout(limit, CatchUnwind::new(response)).await {
                Ok(Ok(response)) => response,
                Ok(Err(Panicked)) => Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
                Err(_) => Ok(closing(StatusCode::REQUEST_TIMEOUT)),
            };
            in_progress.answered();
            response.map(|response| {
                response.map(|body| {
                    Body::new(WriteDeadline { body, rest: Bytes::new(), deadline, _held: in_progress })
                })
            })
        })
    }
}

/// Response that closes the connection, as the rest of the request is not read.
fn closing(status: StatusCode) -> Response {
    let mut response = status.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Maximum bytes of a frame.
const CHUNK_BYTES: usize = 64 * 1024;

/// A body that fails when it is polled after its deadline, so that a slow client does not keep the rest in memory. It is
/// handed out in small chunks, so that the deadline is checked often.
#[derive(Debug)]
struct WriteDeadline<H> {
    body: Body,
    /// Data taken from the body and not handed out yet.
    rest: Bytes,
    deadline: Option<Instant>,
    /// Dropped once the whole body was handed out, or failed.
    _held: H,
}

impl<H: Unpin> hyper::body::Body for WriteDeadline<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return Poll::Ready(other),
            }
        }
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            let late = io::Error::new(io::ErrorKind::TimedOut, "timed out sending the response");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        hint.exact().map_or(hint, |exact| SizeHint::with_exact(exact.saturating_add(rest)))
    }
}
