//! Which service a call is for.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{Request, Response, body::Incoming};
use tonic::{body::Body, codegen::Service as _, server::NamedService as _, service::Routes};
use tonic_health::pb::health_server::HealthServer;

use super::{
    delivery::Delivery,
    health::{HealthService, Readiness},
};
use crate::proto::{
    FILE_DESCRIPTOR_SET,
    envoy::service::ratelimit::v3::rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};

/// What keeps the description of our services from being served.
pub(super) use tonic_reflection::server::Error as ReflectionError;

/// The services of the gRPC port. The one that matters skips the routing table.
pub(super) struct Dispatch<T> {
    rate_limit: RateLimitServiceServer<T>,
    others: Routes,
}

/// Health and reflection.
pub(super) fn side_services(readiness: Readiness) -> Result<Routes, ReflectionError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let routes = Routes::new(HealthServer::new(HealthService::new(readiness)))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok(routes.prepare())
}

impl<T: RateLimitService> Dispatch<T> {
    pub(super) fn new(rate_limit: T, others: Routes, max_message_bytes: usize) -> Self {
        let rate_limit = RateLimitServiceServer::new(rate_limit).max_decoding_message_size(max_message_bytes);
        Self { rate_limit, others }
    }
}

impl<T> Clone for Dispatch<T> {
    fn clone(&self) -> Self {
        Self { rate_limit: self.rate_limit.clone(), others: self.others.clone() }
    }
}

impl<T: RateLimitService> hyper::service::Service<Request<Incoming>> for Dispatch<T> {
    type Response = Response<Delivery>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path().strip_prefix('/');
        let service = path.and_then(|path| path.split_once('/')).map(|(service, _)| service);
        Answering(match service == Some(RateLimitServiceServer::<T>::NAME) {
            true => self.rate_limit.clone().call(request),
            false => Box::pin(self.others.clone().call(request.map(Body::new))),
        })
    }
}

/// A call that is being answered.
pub(super) struct Answering(Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>);

impl Future for Answering {
    type Output = Result<Response<Delivery>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map_ok(Delivery::of)
    }
}
