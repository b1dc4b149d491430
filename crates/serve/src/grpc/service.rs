//! Adapter from the generated gRPC trait to the rate-limit service.

use std::future::{Ready, ready};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either};
use hyper::body::Bytes;
use prost::Message as _;
use tollgate_core::lease::LeaseId;
use tollgate_limiter::Deadline;
use tollgate_proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
};
use tollgate_telemetry::traces::{Span, Tracer};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use super::call_headers;
use crate::service::{Answer, RequestError, Service, refused};

/// [`Service`] behind the generated trait. Permits of the lease that a response names are in its extensions.
#[derive(Debug)]
pub struct RateLimitAdapter {
    pub service: Service,
    pub tracer: Option<Tracer>,
}

impl RateLimitAdapter {
    fn span(&self, metadata: &MetadataMap, domain: &str, descriptors: usize) -> Span {
        self.tracer.as_ref().map_or_else(Span::off, |tracer| tracer.start(metadata, domain, descriptors))
    }

    async fn answer_call(&self, call: &Call, deadline: Deadline) -> AnswerResult {
        let Some(request) = self.service.read(call.get_ref()) else {
            // Boxed, so that the future of the usual case stays small.
            return Box::pin(self.answer_message(call, deadline)).await;
        };
        let mut span = self.span(call.metadata(), request.domain, request.descriptors.len());
        self.service.answer(&request, deadline, &mut span).await.map_err(|error| status(&error))
    }

    /// Answers a call whose message has to be decoded.
    async fn answer_message(&self, call: &Call, deadline: Deadline) -> AnswerResult {
        let request = decode(call.get_ref())?;
        let mut span = self.span(call.metadata(), &request.domain, request.descriptors.len());
        let answer = self.service.respond(&request, deadline, &mut span).await;
        answer.map(Answer::framed).map_err(|error| status(&error))
    }
}

/// A call with the bytes of its message.
pub type Call = Request<Bytes>;

pub(super) type AnswerResult = Result<Answer<Bytes>, Status>;

/// Answer to a call, in progress.
pub type AnswerFuture<'a> = Either<Ready<AnswerResult>, BoxFuture<'a, AnswerResult>>;

/// Service that answers a call from the bytes of its message.
pub trait UnaryService: RateLimitService {
    /// Answers a call.
    fn answer(&self, call: Call) -> AnswerFuture<'_>;
}

/// Answers a call with a service that is a stub.
#[cfg(any(test, feature = "fuzzing"))]
pub fn answer_decoded(service: &impl RateLimitService, call: Call) -> AnswerFuture<'_> {
    let (metadata, extensions, message) = call.into_parts();
    let request = match decode(&message) {
        Ok(message) => Request::from_parts(metadata, extensions, message),
        Err(status) => return Either::Left(ready(Err(status))),
    };
    let response = service.should_rate_limit(request);
    let answer = response.map(|response| {
        let message = response?.into_inner();
        Ok(Answer { message, code: tollgate_limiter::decision::Code::Ok, permits: None }.framed())
    });
    Either::Right(answer.boxed())
}

impl UnaryService for RateLimitAdapter {
    fn answer(&self, call: Call) -> AnswerFuture<'_> {
        if !self.service.decides_at_once() {
            let deadline = call_headers::store_deadline(call.metadata(), call.extensions());
            return Either::Right(async move { self.answer_call(&call, deadline).await }.boxed());
        }
        // A future that is ready at once need not be boxed.
        let answer = self.answer_call(&call, Deadline::UNKNOWN).now_or_never();
        debug_assert!(answer.is_some(), "the memory store never waits");
        // The dropped attempt may have charged, and must not be repeated.
        Either::Left(ready(answer.unwrap_or_else(|| Err(Status::internal("no answer")))))
    }
}

fn decode(message: &[u8]) -> Result<RateLimitRequest, Status> {
    RateLimitRequest::decode(message).map_err(|error| {
        refused("malformed", None, &error.to_string());
        Status::internal(error.to_string())
    })
}

type ResponseFuture<'a> = BoxFuture<'a, Result<Response<RateLimitResponse>, Status>>;

impl RateLimitService for RateLimitAdapter {
    fn should_rate_limit<'s, 'a>(&'s self, request: Request<RateLimitRequest>) -> ResponseFuture<'a>
    where
        's: 'a,
        Self: 'a,
    {
        let message = request.get_ref();
        let mut span = self.span(request.metadata(), &message.domain, message.descriptors.len());
        // Named by the caller.
        let lease = request.extensions().get::<LeaseId>().copied();
        let named = lease.map(|lease| self.service.clone().with_lease(lease));
        let deadline = if self.service.decides_at_once() {
            Deadline::UNKNOWN
        } else {
            call_headers::store_deadline(request.metadata(), request.extensions())
        };
        Box::pin(async move {
            let service = named.as_ref().unwrap_or(&self.service);
            let answer = service.respond(request.get_ref(), deadline, &mut span).await;
            let Answer { message, permits, .. } = answer.map_err(|error| status(&error))?;
            let mut response = Response::new(message);
            if let Some(permits) = permits {
                response.extensions_mut().insert(permits);
            }
            Ok(response)
        })
    }
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
    use tollgate_store::StoreError;

    #[test]
    fn only_a_malformed_request_is_an_invalid_argument() {
        let code = |error| status(&error).code();
        assert_eq!(
            code(RequestError::Invalid { reason: "domain", text: "no domain".to_owned() }),
            tonic::Code::InvalidArgument
        );
        assert_eq!(code(RequestError::NoRules), tonic::Code::Unavailable);
        assert_eq!(code(RequestError::Store(StoreError::MalformedReply)), tonic::Code::Unavailable);
    }
}
