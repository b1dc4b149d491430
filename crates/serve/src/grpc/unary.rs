//! Unary path of `ShouldRateLimit`, from request bytes to response bytes, and the rate-limit service behind it.
//!
//! Implemented here rather than by tonic's server, whose path supports streams of any length, compression and any kind
//! of body, which took a tenth of the CPU time of a call. Callers see no difference, except that data after the first
//! message of a request is ignored.

use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{mem, pin::Pin, sync::Arc, thread};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response, http::request::Parts};
use prost::Message as _;
use tollgate_core::lease::LeaseId;
use tollgate_gate::SHED_MESSAGE;
use tollgate_limiter::Deadline;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;
#[cfg(any(test, feature = "fuzzing"))]
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use tollgate_telemetry::traces::{Span, Tracer};
use tonic::{Code, Status, body::Body, metadata::MetadataMap};

use super::overload::{Overloaded, Permit, grpc_timeout, percent_of};
use super::request_body::{MessageLimits, RequestBody, WholeMessages};
use super::responses::ResponseBody;
use crate::net::Port;
use crate::service::metrics::{self, refused};
use crate::service::{Answer, RequestError, Service};

/// Answers an admitted call with `service`, if its message is within `limits`. `may_be_reset` is whether the poll that read
/// the call read resets too.
pub(super) fn respond<T: UnaryService>(
    service: Arc<T>,
    request: Request<Incoming>,
    mut permit: Permit,
    may_be_reset: bool,
    limits: MessageLimits,
) -> impl Future<Output = Response<ResponseBody>> + Send {
    let (Parts { headers, .. }, body) = request.into_parts();
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
        let mut body = RequestBody::new(body, limits.timeout);
        let received = body.receive(&headers, limits.max_bytes, &mut permit).await;
        latency.since = body.completed_at(permit.admitted_at);
        let result = match received {
            Ok(message) => {
                let mut answer = service.answer(MetadataMap::from_headers(headers), message, permit.waited());
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

fn encode(answer: Answer) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::message(answer.frame, answer.permits));
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
        while let Some(Ok(_)) = std::task::ready!(Pin::new(&mut self.0).poll_frame(cx)) {}
        metrics::answered("overloaded");
        let status = Status::unavailable(SHED_MESSAGE);
        Poll::Ready(ResponseBody::wrap(status.into_http::<Body>()))
    }
}

/// Service behind `ShouldRateLimit`, `/json` and reservations.
pub trait UnaryService: Send + Sync + 'static {
    /// Answers a call, from the bytes of its message, that has waited for some time; `None`: no time is left to call the store.
    fn answer(&self, metadata: MetadataMap, message: Bytes, waited: Option<Duration>) -> AnswerFuture<'_>;

    /// Answers the request of a reservation, under `lease` if the caller names one, or of its settlement. The answer does not
    /// describe the request, so that it can be decoded whatever the metadata of rules.
    fn answer_reservation(
        &self,
        metadata: MetadataMap,
        request: RateLimitRequest,
        lease: Option<LeaseId>,
    ) -> AnswerFuture<'_>;
}

type AnswerResult = Result<Answer, Status>;

/// Answer to a call, in progress.
pub type AnswerFuture<'a> = Either<Ready<AnswerResult>, BoxFuture<'a, AnswerResult>>;

/// Answers of a stub, which implements the generated trait, to decoded requests.
#[cfg(any(test, feature = "fuzzing"))]
impl<T: RateLimitService> UnaryService for T {
    fn answer(&self, metadata: MetadataMap, message: Bytes, _: Option<Duration>) -> AnswerFuture<'_> {
        match decode(&message) {
            Ok(request) => self.answer_reservation(metadata, request, None),
            Err(status) => Either::Left(ready(Err(status))),
        }
    }

    fn answer_reservation(
        &self,
        metadata: MetadataMap,
        request: RateLimitRequest,
        _: Option<LeaseId>,
    ) -> AnswerFuture<'_> {
        let request = tonic::Request::from_parts(metadata, Default::default(), request);
        let response = self.should_rate_limit(request);
        Either::Right(response.map(|response| Ok(Answer::framed(response?.get_ref()))).boxed())
    }
}

/// [`Service`] with traces, which answers in terms of gRPC.
#[derive(Debug)]
pub struct RateLimitAdapter {
    pub service: Service,
    pub tracer: Option<Tracer>,
}

impl RateLimitAdapter {
    fn span(&self, metadata: &MetadataMap, domain: &str, descriptors: usize) -> Span {
        self.tracer.as_ref().map_or_else(Span::off, |tracer| tracer.start(metadata, domain, descriptors))
    }

    /// Deadline of the store for a call that has waited.
    fn deadline(&self, metadata: &MetadataMap, waited: Option<Duration>) -> Deadline {
        if self.service.decides_at_once() {
            return Deadline::UNKNOWN;
        }
        store_deadline(metadata.as_ref(), waited)
    }

    async fn answer_call(&self, metadata: &MetadataMap, message: &[u8], deadline: Deadline) -> AnswerResult {
        let Some(request) = self.service.read(message) else {
            // Boxed, so that the future of the usual case stays small.
            let answer = async { self.respond(&self.service, metadata, &decode(message)?, deadline).await };
            return Box::pin(answer).await;
        };
        let mut span = self.span(metadata, request.domain, request.descriptors.len());
        self.service.answer(&request, deadline, &mut span).await.map_err(|error| status(&error))
    }

    /// Answers a call whose message was decoded.
    async fn respond(
        &self,
        service: &Service,
        metadata: &MetadataMap,
        request: &RateLimitRequest,
        deadline: Deadline,
    ) -> AnswerResult {
        let mut span = self.span(metadata, &request.domain, request.descriptors.len());
        service.respond(request, deadline, &mut span).await.map_err(|error| status(&error))
    }
}

impl UnaryService for RateLimitAdapter {
    fn answer(&self, metadata: MetadataMap, message: Bytes, waited: Option<Duration>) -> AnswerFuture<'_> {
        let deadline = self.deadline(&metadata, waited);
        if !self.service.decides_at_once() {
            return Either::Right(
                async move { self.answer_call(&metadata, &message, deadline).await }.boxed(),
            );
        }
        // A future that is ready at once need not be boxed.
        let answer = self.answer_call(&metadata, &message, deadline).now_or_never();
        debug_assert!(answer.is_some(), "the memory store never waits");
        // The dropped attempt may have charged, and must not be repeated.
        Either::Left(ready(answer.unwrap_or_else(|| Err(Status::internal("no answer")))))
    }

    fn answer_reservation(
        &self,
        metadata: MetadataMap,
        request: RateLimitRequest,
        lease: Option<LeaseId>,
    ) -> AnswerFuture<'_> {
        let service = self.service.for_reservation(lease);
        let deadline = self.deadline(&metadata, Some(Duration::ZERO));
        Either::Right(async move { self.respond(&service, &metadata, &request, deadline).await }.boxed())
    }
}

fn decode(message: &[u8]) -> Result<RateLimitRequest, Status> {
    RateLimitRequest::decode(message).map_err(|error| {
        refused("malformed", None, &error.to_string());
        Status::internal(error.to_string())
    })
}

/// Share of the caller's timeout that a decision may take, in percent. The rest is for the network and the queues.
const DECISION_PERCENT: u32 = 65;

/// Deadline of the store for a call with these headers, given the time that it has [waited](Permit::waited).
fn store_deadline(headers: &HeaderMap, waited: Option<Duration>) -> Deadline {
    let Some(waited) = waited else { return Deadline::Exceeded };
    let share = |timeout| percent_of(timeout, DECISION_PERCENT).saturating_sub(waited);
    Deadline::At(grpc_timeout(headers).map(share))
}

/// Maps failures to UNAVAILABLE, so that the proxy's `failure_mode_deny` applies. Being over the limit is not an
/// error.
fn status(error: &RequestError) -> Status {
    match error {
        RequestError::Invalid { .. } => Status::invalid_argument(error.to_string()),
        RequestError::IdConflict => Status::already_exists(error.to_string()),
        RequestError::NoRules | RequestError::Store(_) => Status::unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::overload::GRPC_TIMEOUT;
    use tollgate_store::StoreError;

    #[test]
    fn only_a_malformed_request_is_an_invalid_argument() {
        let code = |error| status(&error).code();
        assert_eq!(
            code(RequestError::Invalid { reason: "domain", text: "no domain".to_owned() }),
            Code::InvalidArgument
        );
        assert_eq!(code(RequestError::NoRules), Code::Unavailable);
        assert_eq!(code(RequestError::Store(StoreError::MalformedReply)), Code::Unavailable);
    }

    fn deadline(timeout: &'static str, waited: Option<Duration>) -> Deadline {
        store_deadline(&HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(timeout))]), waited)
    }

    #[test]
    fn a_decision_may_take_part_of_the_timeout() {
        for (header, micros) in [
            ("20m", 13_000),
            ("1S", 650_000),
            ("1000u", 650),
            ("20000n", 13),
            ("2M", 78_000_000),
            ("99999999H", 233_999_997_660_000_000),
            ("0m", 0),
        ] {
            let deadline = deadline(header, Some(Duration::ZERO));
            assert_eq!(deadline, Deadline::At(Some(Duration::from_micros(micros))), "{header}");
        }
    }

    #[test]
    fn a_call_that_waited_too_long_has_no_time_for_the_store() {
        assert_eq!(deadline("20m", None), Deadline::Exceeded);
    }

    #[test]
    fn the_time_that_a_call_has_waited_is_not_left_for_the_store() {
        let waited = Some(Duration::from_millis(5));
        assert_eq!(deadline("20m", waited), Deadline::At(Some(Duration::from_millis(8))));
        assert_eq!(deadline("5m", waited), Deadline::At(Some(Duration::ZERO)));
        assert_eq!(deadline("", waited), Deadline::UNKNOWN);
    }

    #[test]
    fn a_malformed_header_counts_as_absent() {
        for header in ["", "m", "20", "20ms", "-1m", "+1m", "1.5S", "123456789m", "20x", "?m"] {
            assert_eq!(deadline(header, Some(Duration::ZERO)), Deadline::UNKNOWN, "{header}");
        }
    }
}
