//! One gRPC connection, from accept to close, and the routing of its calls to the rate-limit service or to a side service
//! (reservations, health, reflection).
//!
//! Served by hyper rather than by tonic's `Server`: that one (0.14) never sends GOAWAY to a connection past its maximum
//! age if a grace period is set too, and starts a timer for every call with a deadline.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{convert::Infallible, pin::Pin, pin::pin, sync::Arc};

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http2::Builder;
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tollgate_proto::{
    FILE_DESCRIPTOR_SET, tollgate::reservation::v1::reservation_service_server::ReservationServiceServer,
};
use tollgate_runtime::backoff;
use tollgate_runtime::panics::{CatchUnwind, CatchUnwindExecutor, Panicked};
use tonic::{Status, body::Body, codegen::Service as _, service::Routes};
use tonic_health::pb::health_server::HealthServer;

use super::http2::{self, FrameFilter};
use super::overload::{AdmissionControl, EarlyAdmission};
use super::request_body::{MessageLimits, WholeMessages};
use super::responses::{CloseReason, ResponseBody, StallDetector};
use super::unary::{self, ShedCall, UnaryService};
use super::{GrpcSettings, health::HealthService, reservations::Reservations};
use crate::net::read_budget::{BudgetedReader, ReadBudget, ReadBudgetTimer, Unread};
use crate::net::{Port, stall_timeout::StallTimeout, tls::Tls, unfinished};
use crate::{readiness::Readiness, service::metrics};

/// Calls of one connection that may be reset before they are accepted.
const MAX_PENDING_RESETS: usize = 4096;

/// Bytes of a response buffered until its caller's flow-control window opens. Nearly all are smaller.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Size limit of a call's headers.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// Maximum number of calls in flight on a connection, at which Envoy opens another one.
const MAX_STREAMS: u32 = 1024;

/// Jitter of the maximum age, so that connections opened together do not close together.
const MAX_AGE_JITTER_PERCENT: u32 = 10;

/// Time for a connection that is closed for another one to finish the calls that its client has begun.
const EVICTION_GRACE: Duration = Duration::from_secs(1);

/// Settings shared by a worker's connections.
#[derive(Clone)]
pub struct Connections {
    http2: Builder<CatchUnwindExecutor>,
    tls: Option<Tls>,
    handshake_timeout: Duration,
    /// Time without progress after which a client counts as stalled.
    stall_timeout: Duration,
    max_age: Option<Duration>,
    max_age_grace: Option<Duration>,
    draining: CancellationToken,
}

impl Connections {
    /// Connections finish their calls in flight and close once `draining` is cancelled.
    pub fn new(
        settings: &GrpcSettings,
        tls: Option<Tls>,
        handshake_timeout: Duration,
        draining: CancellationToken,
    ) -> Self {
        let mut http2 = Builder::new(CatchUnwindExecutor);
        http2
            .keep_alive_interval(settings.keepalive_interval)
            .keep_alive_timeout(settings.keepalive_timeout)
            .max_concurrent_streams(MAX_STREAMS)
            // A proxy resets every call that timed out, in bursts when the store is slow. That is no attack, to be
            // punished by closing the connection with all other calls on it.
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_header_list_size(MAX_HEADER_BYTES)
            // A proxy has no use for the date.
            .auto_date_header(false);
        Self {
            http2,
            tls,
            handshake_timeout,
            stall_timeout: settings.keepalive_timeout,
            max_age: settings.max_connection_age,
            max_age_grace: settings.max_connection_age_grace,
            draining,
        }
    }

    /// Serves a connection until it closes.
    pub async fn serve<I, T>(self, io: I, services: Dispatch<T>, detector: StallDetector)
    where
        I: AsyncRead + AsyncWrite + Unread + Unpin,
        T: UnaryService,
    {
        let read_budget = ReadBudget::default();
        let io = BudgetedReader::new(io, read_budget.clone());
        let services = services.for_connection(read_budget.clone(), detector);
        read_budget.limit(self.serve_stream(io, services)).await;
    }

    async fn serve_stream<I, T>(self, io: I, services: Dispatch<T>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
        T: UnaryService,
    {
        let Some(tls) = &self.tls else { return self.serve_http2(io, services).await };
        // Also while draining: earlier connections are served, as on a plaintext port.
        let accepted = select! {
            accepted = tls.accept(io, self.handshake_timeout) => accepted,
            _ = services.detector.stalled(self.stall_timeout) => None,
        };
        if let Some(stream) = accepted {
            Box::pin(self.serve_http2(stream, services)).await;
        }
    }

    async fn serve_http2<I, T>(&self, io: I, services: Dispatch<T>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
        T: UnaryService,
    {
        let io = StallTimeout::new(io, self.stall_timeout, Some(self.handshake_timeout));
        let detector = services.detector.clone();
        let read_budget = services.read_budget.clone();
        let io = FrameFilter::new(io, services.early_admission(), detector.clone(), read_budget.clone());
        let mut http2 = self.http2.clone();
        http2.timer(ReadBudgetTimer { read_budget, timer: TokioTimer::new() });
        let mut connection = pin!(http2.serve_connection(TokioIo::new(io), services));
        let mut grace = self.max_age_grace;
        select! {
            biased;
            result = connection.as_mut() => return log_error(result),
            reason = detector.stalled(self.stall_timeout) => match reason {
                CloseReason::Stalled => return log_stalled(),
                CloseReason::Evicted => grace = Some(EVICTION_GRACE),
            },
            () = self.draining.cancelled() => {}
            () = after(self.max_age.map(|age| backoff::around(age, MAX_AGE_JITTER_PERCENT))) => {}
        }
        // Sends GOAWAY: the client opens another connection for its next calls.
        connection.as_mut().graceful_shutdown();
        let stalled = async {
            match detector.stalled(self.stall_timeout).await {
                CloseReason::Stalled => log_stalled(),
                CloseReason::Evicted => sleep(EVICTION_GRACE).await,
            }
        };
        select! {
            biased;
            result = connection => log_error(result),
            () = stalled => {}
            () = after(grace) => tracing::debug!("connection closed: calls outlasted the grace period"),
        }
    }
}

fn log_stalled() {
    tracing::debug!("connection closed: client stopped reading responses");
}

fn log_error(result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        http2::connection_ended(&error);
        tracing::debug!(%error, "connection failed");
    }
}

async fn after(duration: Option<Duration>) {
    if let Some(duration) = duration { sleep(duration).await } else { std::future::pending().await }
}

/// Error of the embedded service descriptors.
pub use tonic_reflection::server::Error as ReflectionError;

/// Services of the gRPC port. `ShouldRateLimit` bypasses the routing table.
pub struct Dispatch<T> {
    rate_limit: Arc<T>,
    limits: MessageLimits,
    side_services: Routes,
    admission: Arc<AdmissionControl>,
    /// One per connection, as the read budget.
    detector: StallDetector,
    read_budget: ReadBudget,
}

/// Size limit of a message to health or reflection, which names a service or a file.
const MAX_SIDE_MESSAGE_BYTES: usize = 16 * 1024;

/// Routes to health and reflection.
pub fn side_services(readiness: Readiness) -> Result<Routes, ReflectionError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(HealthService::new(readiness));
    let routes = Routes::new(health.max_decoding_message_size(MAX_SIDE_MESSAGE_BYTES))
        .add_service(reflection().build_v1()?.max_decoding_message_size(MAX_SIDE_MESSAGE_BYTES))
        .add_service(reflection().build_v1alpha()?.max_decoding_message_size(MAX_SIDE_MESSAGE_BYTES));
    Ok(routes.prepare())
}

impl<T: UnaryService> Dispatch<T> {
    pub fn new(rate_limit: T, side_services: Routes, limits: MessageLimits) -> Self {
        let rate_limit = Arc::new(rate_limit);
        let reservations = ReservationServiceServer::new(Reservations(Arc::clone(&rate_limit)));
        let reservations = reservations.max_decoding_message_size(limits.max_bytes);
        Self {
            side_services: side_services.add_service(reservations).prepare(),
            rate_limit,
            limits,
            admission: Arc::default(),
            detector: StallDetector::default(),
            read_budget: ReadBudget::default(),
        }
    }

    /// Sheds calls as if each took `cost`.
    #[cfg(test)]
    pub(super) fn with_cost(self, cost: Duration) -> Self {
        Self { admission: Arc::new(AdmissionControl::with_cost(cost)), ..self }
    }

    /// Returns a handle for the connection with this read budget and stall detector.
    fn for_connection(&self, read_budget: ReadBudget, detector: StallDetector) -> Self {
        Self { detector, read_budget, ..self.clone() }
    }

    /// Admission of the connection's calls before they are dispatched.
    fn early_admission(&self) -> EarlyAdmission {
        EarlyAdmission::new(Arc::clone(&self.admission), self.read_budget.clone())
    }
}

impl<T> Clone for Dispatch<T> {
    fn clone(&self) -> Self {
        Self {
            rate_limit: Arc::clone(&self.rate_limit),
            limits: self.limits,
            side_services: self.side_services.clone(),
            admission: Arc::clone(&self.admission),
            detector: self.detector.clone(),
            read_budget: self.read_budget.clone(),
        }
    }
}

impl<T: UnaryService> hyper::service::Service<Request<Incoming>> for Dispatch<T> {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.detector.called(self.read_budget.began_at());
        let is_rate_limit = request.uri().path() == tollgate_gate::SHOULD_RATE_LIMIT_PATH;
        if let Some(reason) = NotGrpc::check(request.method(), request.headers()) {
            if is_rate_limit {
                metrics::answered("invalid");
            }
            return ResponseFuture::NotGrpc(reason);
        }
        if !is_rate_limit {
            let headers = unfinished::bytes_of(request.headers());
            let body = |body| Body::new(WholeMessages::new(body, Port::Grpc, self.limits, headers));
            let response = self.side_services.clone().call(request.map(body));
            return ResponseFuture::SideService(CatchUnwind::new(Box::pin(response)), self.detector.clone());
        }
        let Ok(permit) = self.admission.admit(request.headers(), &self.read_budget, Instant::now()) else {
            return ResponseFuture::Shed(ShedCall::new(request.into_body(), self.limits));
        };
        let (service, may_be_reset) = (Arc::clone(&self.rate_limit), self.read_budget.has_reset());
        let response = unary::respond(service, request, permit, may_be_reset, self.limits);
        ResponseFuture::RateLimit(CatchUnwind::new(Box::pin(response)), self.detector.clone())
    }
}

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Response to a call, in progress.
pub enum ResponseFuture {
    NotGrpc(NotGrpc),
    /// Rejected by admission control.
    Shed(ShedCall),
    RateLimit(CatchUnwind<BoxedFuture<Response<ResponseBody>>>, StallDetector),
    SideService(CatchUnwind<BoxedFuture<Result<Response<Body>, Infallible>>>, StallDetector),
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match &mut *self {
            Self::NotGrpc(reason) => return Poll::Ready(Ok(reason.response())),
            Self::Shed(call) => return Pin::new(call).poll(cx).map(Ok),
            Self::RateLimit(future, detector) => {
                let mut response = ready!(Pin::new(future).poll(cx));
                response.iter_mut().for_each(|response| response.body_mut().track(detector));
                response
            }
            Self::SideService(future, detector) => {
                let mut response =
                    ready!(Pin::new(future).poll(cx)).map(|Ok(response)| ResponseBody::wrap(response));
                response.iter_mut().for_each(|response| response.body_mut().track_lease(detector));
                response
            }
        };
        let status = || Status::internal("internal error; see the server log");
        Poll::Ready(Ok(response.unwrap_or_else(|Panicked| ResponseBody::wrap(status().into_http::<Body>()))))
    }
}

/// Content type of gRPC, which may be followed by `+` and a message format or by `;` and parameters. With this content
/// type, a browser first sends a CORS preflight request for a web page, which is refused here.
const GRPC: &[u8] = b"application/grpc";

/// Reason why a request is no gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGrpc {
    Method,
    ContentType,
}

impl NotGrpc {
    /// Returns why a request with this method and these headers is no gRPC call; `None` for a call.
    fn check(method: &Method, headers: &HeaderMap) -> Option<Self> {
        if *method != Method::POST {
            return Some(Self::Method);
        }
        let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| is_grpc(kind.as_bytes()));
        (!is_grpc).then_some(Self::ContentType)
    }

    /// Response to the request. The codes are those of grpc-go.
    fn response(self) -> Response<ResponseBody> {
        let (code, status) = match self {
            Self::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, Status::internal("unsupported method; expected POST"))
            }
            Self::ContentType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Status::invalid_argument("unsupported content-type; expected application/grpc"),
            ),
        };
        let mut response = status.into_http::<Body>();
        *response.status_mut() = code;
        if self == Self::Method {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        }
        ResponseBody::wrap(response)
    }
}

fn is_grpc(kind: &[u8]) -> bool {
    let Some((start, rest)) = kind.split_at_checked(GRPC.len()) else { return false };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_posts_of_grpc_content_types_are_calls() {
        let check = |method, kind: &'static str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            NotGrpc::check(&method, &headers)
        };
        for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC;charset=utf-8"] {
            assert_eq!(check(Method::POST, kind), None, "{kind}");
            for method in [Method::GET, Method::PUT, Method::OPTIONS] {
                assert_eq!(check(method, kind), Some(NotGrpc::Method), "{kind}");
            }
        }
        for kind in [
            "",
            "application/grp",
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/json",
            "application/x-www-form-urlencoded",
            "text/plain",
        ] {
            assert_eq!(check(Method::POST, kind), Some(NotGrpc::ContentType), "{kind}");
        }
        assert_eq!(NotGrpc::check(&Method::POST, &HeaderMap::new()), Some(NotGrpc::ContentType));
    }
}
