//! Routing of calls to the rate-limit service or to a side service (reservations, health, reflection).

use std::task::{Context, Poll, ready};
use std::{convert::Infallible, pin::Pin, sync::Arc, time::Instant};

use hyper::{Request, Response, body::Incoming};
use tollgate_proto::{
    FILE_DESCRIPTOR_SET, tollgate::reservation::v1::reservation_service_server::ReservationServiceServer,
};
use tollgate_runtime::panics::{CatchUnwind, Panicked};
use tonic::{Status, body::Body, codegen::Service as _, service::Routes};
use tonic_health::pb::health_server::HealthServer;

use super::overload::{AdmissionControl, EarlyAdmission};
use super::request_body::{MessageLimits, WholeMessages};
use super::unary::{self, ShedCall};
use super::{
    call_headers::NotGrpc, health::HealthService, reservations::Reservations, response_body::ResponseBody,
    service::UnaryService, unread_responses::StallDetector,
};
use crate::net::{Port, read_budget::ReadBudget, unfinished};
use crate::{readiness::Readiness, service::metrics};

/// Error of the embedded service descriptors.
pub use tonic_reflection::server::Error as ReflectionError;

/// Services of the gRPC port. `ShouldRateLimit` bypasses the routing table.
pub struct Dispatch<T> {
    rate_limit: Arc<T>,
    limits: MessageLimits,
    side_services: Routes,
    admission: Arc<AdmissionControl>,
    /// One per connection, as the read budget.
    pub(super) detector: StallDetector,
    pub(super) read_budget: ReadBudget,
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
    pub(super) fn with_cost(self, cost: std::time::Duration) -> Self {
        Self { admission: Arc::new(AdmissionControl::with_cost(cost)), ..self }
    }

    /// Returns a handle for the connection with this read budget and stall detector.
    pub(super) fn for_connection(&self, read_budget: ReadBudget, detector: StallDetector) -> Self {
        Self { detector, read_budget, ..self.clone() }
    }

    /// Admission of the connection's calls before they are dispatched.
    pub(super) fn early_admission(&self) -> EarlyAdmission {
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
