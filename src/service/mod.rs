//! The rate-limit service: decodes protobuf requests, calls the limiter, and encodes its decision.

mod decode;
mod encode;
mod headers;
mod metadata;
pub mod metrics;
mod problem;
mod settings;
#[cfg(test)]
mod tests;
mod times;

use futures_util::FutureExt as _;
use tollgate_limiter::{
    Deadline, HeldPermits, Limiter,
    verdict::{Code, Status},
};
use tollgate_store::StoreError;

pub use self::settings::{
    DegradedRemaining, HeaderNames, HeaderStyle, RequestBounds, ResetFormat, ResponseOptions,
};
use self::times::ResponseTimes;
use crate::{
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response as wire,
    },
    tracing::Span,
};

/// Rate-limit service; one for each worker.
#[derive(Clone, Debug)]
pub struct Service {
    limiter: Limiter,
    options: ResponseOptions,
    bounds: RequestBounds,
}

/// Response to a request.
#[derive(Debug)]
pub struct ServiceResponse {
    /// The message.
    pub message: RateLimitResponse,
    /// Permits of the lease that the message names. Dropping them releases them, unless they are marked as handed over.
    pub permits: Option<HeldPermits>,
}

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request is malformed or too large; contains the reason.
    #[error("{0}")]
    Invalid(String),
    /// No rules are loaded yet.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The store failed, and a limit has `on_store_error: error`.
    #[error("store unavailable: {0}")]
    Store(#[from] StoreError),
}

impl RequestError {
    /// Label of the error in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NoRules => "no_rules",
            Self::Store(error) => error.label(),
        }
    }
}

impl Service {
    /// Creates a service that decides with `limiter`.
    pub const fn new(limiter: Limiter, options: ResponseOptions, bounds: RequestBounds) -> Self {
        Self { limiter, options, bounds }
    }

    /// Decides `request` before the deadline, and records the outcome in `span` and in metrics.
    ///
    /// # Errors
    /// See [`RequestError`]. Being over the limit is not an error.
    pub async fn respond(
        &self,
        request: &RateLimitRequest,
        deadline: Deadline,
        span: &mut Span,
    ) -> Result<ServiceResponse, RequestError> {
        let response = self.decide(request, deadline, span).await;
        let result = match &response {
            Ok(response) if response.message.overall_code() == wire::Code::OverLimit => "over_limit",
            Ok(_) => "ok",
            Err(error) => error.label(),
        };
        metrics::answered(result);
        if response.is_ok() {
            span.answered(result);
        } else {
            span.failed(result);
        }
        response
    }

    /// Decides `request` synchronously, if the store never waits; otherwise returns `None`. Equivalent to
    /// [`Self::respond`] without allocating its large future.
    pub fn respond_immediately(
        &self,
        request: &RateLimitRequest,
        span: &mut Span,
    ) -> Option<Result<ServiceResponse, RequestError>> {
        if !self.limiter.decides_at_once() {
            return None;
        }
        let response = self.respond(request, Deadline::UNKNOWN, span).now_or_never();
        debug_assert!(response.is_some(), "the memory store never waits");
        // The dropped attempt may have charged, and must not be repeated.
        Some(response.unwrap_or(Err(RequestError::Store(StoreError::MalformedReply))))
    }

    async fn decide(
        &self,
        request: &RateLimitRequest,
        deadline: Deadline,
        span: &mut Span,
    ) -> Result<ServiceResponse, RequestError> {
        let descriptors = decode::descriptors(request, &self.bounds)?;
        let rules = self.limiter.rules();
        let rules = rules.get().ok_or(RequestError::NoRules)?;
        span.decision_started();
        let decided = self.limiter.decide(rules, &request.domain, &descriptors, deadline).await;
        span.decided(decided.as_ref().ok().and_then(|(decision, _)| decision.degraded));
        let (decision, permits) = decided?;
        let mut message = encode::response(&decision);
        let (clock, spread) = (self.limiter.clock(), self.options.retry_after_spread);
        let times = ResponseTimes::of(clock, &decision, &request.domain, &descriptors, spread);
        headers::add(&mut message, &self.options, &decision, &times);
        if self.options.problem_body && decision.code == Code::OverLimit {
            problem::add(&mut message, &decision, &times);
        }
        if self.options.dynamic_metadata {
            message.dynamic_metadata = Some(metadata::of(request, &decision));
        }
        if let Some(degraded) = decision.degraded {
            metadata::add_degraded(message.dynamic_metadata.get_or_insert_default(), degraded);
        }
        if let Some(shed) = decision.statuses.iter().find_map(Status::denying_shed) {
            metadata::add_shed(message.dynamic_metadata.get_or_insert_default(), shed);
        }
        if let Some(ban) = &decision.ban() {
            metadata::add_ban(message.dynamic_metadata.get_or_insert_default(), ban);
        }
        if let Some(permits) = &permits {
            metadata::add_lease(message.dynamic_metadata.get_or_insert_default(), permits.lease());
        }
        Ok(ServiceResponse { message, permits })
    }
}
