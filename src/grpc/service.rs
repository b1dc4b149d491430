//! Adapter from the generated gRPC trait to the rate-limit service.

use std::{future::ready, pin::Pin};

use tonic::{Request, Response, Status};

use super::deadline;
use crate::{
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
    },
    service::{RequestError, Service, ServiceResponse},
    tracing::{Span, Tracer},
};

/// [`Service`] behind the generated trait. Permits of the lease that a response names are in its extensions.
#[derive(Debug)]
pub(crate) struct RateLimitAdapter {
    pub(crate) service: Service,
    pub(crate) tracer: Option<Tracer>,
}

impl RateLimitAdapter {
    fn span(&self, request: &Request<RateLimitRequest>) -> Span {
        let Some(tracer) = &self.tracer else { return Span::off() };
        let message = request.get_ref();
        tracer.start(request.metadata(), &message.domain, message.descriptors.len())
    }
}

type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<RateLimitResponse>, Status>> + Send + 'a>>;

impl RateLimitService for RateLimitAdapter {
    fn should_rate_limit<'s, 'a>(&'s self, request: Request<RateLimitRequest>) -> ResponseFuture<'a>
    where
        's: 'a,
        Self: 'a,
    {
        let mut span = self.span(&request);
        match self.service.respond_immediately(request.get_ref(), &mut span) {
            Some(result) => Box::pin(ready(response(result))),
            None => {
                let deadline = deadline::store_deadline(request.metadata(), request.extensions());
                Box::pin(async move {
                    response(self.service.respond(request.get_ref(), deadline, &mut span).await)
                })
            }
        }
    }
}

fn response(result: Result<ServiceResponse, RequestError>) -> Result<Response<RateLimitResponse>, Status> {
    let ServiceResponse { message, permits } = result.map_err(|error| status(&error))?;
    let mut response = Response::new(message);
    if let Some(permits) = permits {
        response.extensions_mut().insert(permits);
    }
    Ok(response)
}

/// Maps failures to UNAVAILABLE, so that the proxy's `failure_mode_deny` applies. Being over the limit is not an
/// error.
fn status(error: &RequestError) -> Status {
    match error {
        RequestError::Invalid(_) => Status::invalid_argument(error.to_string()),
        RequestError::NoRules | RequestError::Store(_) => Status::unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_store::StoreError;

    #[test]
    fn only_a_malformed_request_is_an_invalid_argument() {
        let code = |error| status(&error).code();
        assert_eq!(code(RequestError::Invalid("no domain".to_owned())), tonic::Code::InvalidArgument);
        assert_eq!(code(RequestError::NoRules), tonic::Code::Unavailable);
        assert_eq!(code(RequestError::Store(StoreError::MalformedReply)), tonic::Code::Unavailable);
    }
}
