//! Unary path of `ShouldRateLimit`, from request bytes to response bytes.
//!
//! Implemented here rather than by tonic's server, whose path supports streams of any length, compression and any kind
//! of body, which took a tenth of the CPU time of a call. Callers see no difference, except that data after the first
//! message of a request is ignored.

use std::task::{Context, Poll, ready};
use std::{future::poll_fn, mem, pin::Pin, sync::Arc, thread, time::Instant};

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, http::request::Parts};
use tonic::{Code, Status, body::Body, metadata::MetadataMap};

use super::overload::{Overloaded, Permit};
use super::request_body::{MessageLimits, RequestBody, WholeMessages};
use super::response_body::ResponseBody;
use super::service::{Call, UnaryService};
use tollgate_gate::SHED_MESSAGE;

use crate::net::Port;
use crate::service::Answer;
use crate::service::metrics::{self, refused};

/// Answers an admitted call with `service`, if its message is within `limits`. `may_be_reset` is whether the poll that read
/// the call read resets too.
pub(super) fn respond<T: UnaryService>(
    service: Arc<T>,
    request: Request<Incoming>,
    mut permit: Permit,
    may_be_reset: bool,
    limits: MessageLimits,
) -> impl Future<Output = Response<ResponseBody>> + Send {
    let (Parts { headers, mut extensions, .. }, body) = request.into_parts();
    // Not an asynchronous function, whose future would have room for its arguments twice.
    async move {
        let mut latency = LatencyRecorder { since: permit.admitted_at, outcome: CallOutcome::Unrecorded };
        if may_be_reset {
            drop_if_reset().await;
        }
        if permit.begin() == Err(Overloaded) {
            latency.outcome = CallOutcome::Shed;
            return ShedCall::new(body, limits).await;
        }
        permit.annotate(&mut extensions);
        let mut body = RequestBody::new(body, limits.timeout);
        let received = body.receive(&headers, limits.max_bytes, &mut permit).await;
        latency.since = body.completed_at(permit.admitted_at);
        let result = match received {
            Ok(message) => {
                let metadata = MetadataMap::from_headers(headers);
                let mut answer = service.answer(Call::from_parts(metadata, extensions, message));
                // Waiting for the store costs the worker nothing.
                poll_fn(|cx| {
                    let poll = Pin::new(&mut answer).poll(cx);
                    if poll.is_pending() {
                        permit.pause();
                    } else {
                        permit.resume();
                    }
                    poll
                })
                .await
            }
            Err(status) => {
                // A body breaks off when its caller resets the call.
                count(&status);
                Err(status)
            }
        };
        let response = result.map_or_else(|status| ResponseBody::wrap(status.into_http::<Body>()), encode);
        latency.outcome = CallOutcome::Recorded;
        response
    }
}

/// Counts a call without a whole message.
fn count(status: &Status) {
    match status.code() {
        Code::Cancelled => metrics::answered("cancelled"),
        Code::ResourceExhausted => metrics::answered("overloaded"),
        Code::OutOfRange => refused("max_message_bytes", None, status.message()),
        _ => refused("malformed", None, status.message()),
    }
}

/// Yields to hyper, which drops a call that its caller has reset, but looks only while the call is pending. The body of a
/// call that was reset with `CANCEL` does not fail: it ends, as if it were whole.
async fn drop_if_reset() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Records the call's latency on drop, whether it was answered or reset by the client.
struct LatencyRecorder {
    since: Instant,
    outcome: CallOutcome,
}

/// Whether a metric has recorded the outcome of the call.
enum CallOutcome {
    Recorded,
    Unrecorded,
    /// Rejected undecided; such calls are not part of the latencies.
    Shed,
}

impl Drop for LatencyRecorder {
    fn drop(&mut self) {
        if let CallOutcome::Shed = self.outcome {
            return;
        }
        if let CallOutcome::Unrecorded = self.outcome {
            metrics::answered(if thread::panicking() { "panic" } else { "cancelled" });
        }
        metrics::REQUEST_DURATION.observe_time(self.since.elapsed());
    }
}

fn encode(answer: Answer<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::message(answer.message, answer.permits));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Response to a rejected call. Its message is discarded before, undecoded: HTTP/2 resets a stream whose response comes
/// first, and counts data that arrives after that as an offence, for a thousand of which it closes the connection.
pub struct ShedCall(WholeMessages<Incoming>);

impl ShedCall {
    pub(super) fn new(body: Incoming, limits: MessageLimits) -> Self {
        Self(WholeMessages::new(body, Port::Grpc, limits, 0))
    }
}

impl Future for ShedCall {
    type Output = Response<ResponseBody>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(Ok(_)) = ready!(Pin::new(&mut self.0).poll_frame(cx)) {}
        metrics::answered("overloaded");
        let status = Status::unavailable(SHED_MESSAGE);
        Poll::Ready(ResponseBody::wrap(status.into_http::<Body>()))
    }
}
