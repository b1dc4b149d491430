//! Which service a call is for.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper::{Request, Response, body::Incoming};
use tonic::{Status, body::Body, codegen::Service as _, service::Routes};
use tonic_health::pb::health_server::HealthServer;

use super::{
    health::HealthService,
    overload::Turns,
    request_body::{Limits, Punctual},
    response_body::Delivery,
    stalled_reader::Uptake,
    unary,
};
use crate::{
    metrics,
    panics::{CatchUnwind, Panicked},
    proto::{
        FILE_DESCRIPTOR_SET, envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService,
    },
    readiness::Readiness,
};

/// What keeps the description of our services from being served.
pub(crate) use tonic_reflection::server::Error as ReflectionError;

/// The services of the gRPC port. The one that matters skips the routing table.
pub(crate) struct Dispatch<T> {
    rate_limit: Arc<T>,
    limits: Limits,
    others: Routes,
    turns: Arc<Turns>,
    /// Of one connection.
    uptake: Uptake,
}

/// Bytes of a message to health or reflection, which name a service or a file.
const MAX_SIDE_MESSAGE: usize = 16 * 1024;

/// Health and reflection.
pub(crate) fn side_services(readiness: Readiness) -> Result<Routes, ReflectionError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(HealthService::new(readiness));
    let routes = Routes::new(health.max_decoding_message_size(MAX_SIDE_MESSAGE))
        .add_service(reflection().build_v1()?.max_decoding_message_size(MAX_SIDE_MESSAGE))
        .add_service(reflection().build_v1alpha()?.max_decoding_message_size(MAX_SIDE_MESSAGE));
    Ok(routes.prepare())
}

impl<T: RateLimitService> Dispatch<T> {
    pub(crate) fn new(rate_limit: T, others: Routes, limits: Limits) -> Self {
        Self {
            rate_limit: Arc::new(rate_limit),
            limits,
            others,
            turns: Arc::default(),
            uptake: Uptake::default(),
        }
    }

    /// The same services for a connection of their own.
    pub(super) fn for_connection(&self, uptake: Uptake) -> Self {
        Self { uptake, ..self.clone() }
    }
}

impl<T> Clone for Dispatch<T> {
    fn clone(&self) -> Self {
        Self {
            rate_limit: Arc::clone(&self.rate_limit),
            limits: self.limits,
            others: self.others.clone(),
            turns: Arc::clone(&self.turns),
            uptake: self.uptake.clone(),
        }
    }
}

impl<T: RateLimitService> hyper::service::Service<Request<Incoming>> for Dispatch<T> {
    type Response = Response<Delivery>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        match request.uri().path() == unary::PATH {
            true => {
                let Ok(turn) = self.turns.take_on(request.headers()) else { return Answering::Refused };
                let answer = unary::answer(Arc::clone(&self.rate_limit), turn, request, self.limits);
                Answering::RateLimit(CatchUnwind::new(Box::pin(answer)), self.uptake.clone())
            }
            false => {
                let answer = self
                    .others
                    .clone()
                    .call(request.map(|body| Body::new(Punctual::new(body, self.limits.time))));
                Answering::Other(CatchUnwind::new(Box::pin(answer)))
            }
        }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A call that is being answered.
pub(crate) enum Answering {
    /// It is not: there is no time.
    Refused,
    RateLimit(CatchUnwind<Boxed<Response<Delivery>>>, Uptake),
    Other(CatchUnwind<Boxed<Result<Response<Body>, Infallible>>>),
}

impl Future for Answering {
    type Output = Result<Response<Delivery>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut *self {
            Self::Refused => return Poll::Ready(Ok(refused())),
            Self::RateLimit(answer, uptake) => {
                let answer = ready!(Pin::new(answer).poll(cx));
                answer.map(|answer| answer.map(|delivery| delivery.counted(uptake)))
            }
            Self::Other(answer) => ready!(Pin::new(answer).poll(cx)).map(|Ok(answer)| Delivery::of(answer)),
        };
        Poll::Ready(Ok(answer.unwrap_or_else(|Panicked| failed())))
    }
}

/// What the caller of a call hears that would be answered too late.
fn refused() -> Response<Delivery> {
    metrics::answered("overloaded");
    Delivery::of(Status::unavailable("overloaded: there is no time for an answer").into_http::<Body>())
}

/// What the caller of a call hears whose answer panicked.
fn failed() -> Response<Delivery> {
    Delivery::of(Status::internal("the answer failed; the log tells where").into_http::<Body>())
}
