//! The edge between the protobuf messages and the limiter.

mod decode;
mod encode;
mod headers;
mod metadata;
pub mod metrics;
mod problem;
mod settings;
#[cfg(test)]
mod tests;

use futures_util::FutureExt as _;

pub use self::settings::{Answers, Bounds, HeaderNames, HeaderStyle};
use crate::{
    limiter::{Limiter, Patience, Places},
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response as wire,
    },
    store::StoreError,
    tracing::Span,
    verdict::Code,
};

/// Answers rate-limit requests; one for each worker.
#[derive(Clone, Debug)]
pub struct Service {
    limiter: Limiter,
    answers: Answers,
    bounds: Bounds,
}

/// What a request is answered.
#[derive(Debug)]
pub struct Answer {
    /// The message.
    pub response: RateLimitResponse,
    /// The places whose lease the message tells. They are given up unless it is said that the caller has it.
    pub places: Option<Places>,
}

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request is malformed or too large; the text says how.
    #[error("{0}")]
    Invalid(String),
    /// No version of the rules was loaded yet.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The store did not decide.
    #[error("the store did not decide: {0}")]
    Store(#[from] StoreError),
}

impl RequestError {
    /// The error's name in metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NoRules => "no_rules",
            Self::Store(error) => error.label(),
        }
    }
}

impl Service {
    /// A service that decides with `limiter`.
    pub const fn new(limiter: Limiter, answers: Answers, bounds: Bounds) -> Self {
        Self { limiter, answers, bounds }
    }

    /// Decides `request`, for a caller of such patience, and notes in `span` how that went.
    ///
    /// # Errors
    /// See [`RequestError`]. Being over the limit is no error.
    pub async fn answer(
        &self,
        request: &RateLimitRequest,
        patience: Patience,
        span: &mut Span,
    ) -> Result<Answer, RequestError> {
        let answer = self.decide(request, patience, span).await;
        let result = match &answer {
            Ok(answer) if answer.response.overall_code() == wire::Code::OverLimit => "over_limit",
            Ok(_) => "ok",
            Err(error) => error.label(),
        };
        metrics::answered(result);
        if answer.is_ok() {
            span.answered(result);
        } else {
            span.failed(result);
        }
        answer
    }

    /// Decides `request`, if its counters can be asked without waiting for anyone. It is the same as [`Self::answer`],
    /// but for a future that need not be kept, which is large.
    pub fn answer_at_once(
        &self,
        request: &RateLimitRequest,
        span: &mut Span,
    ) -> Option<Result<Answer, RequestError>> {
        if !self.limiter.decides_at_once() {
            return None;
        }
        let answer = self.answer(request, Patience::UNKNOWN, span).now_or_never();
        debug_assert!(answer.is_some(), "nobody is waited for");
        // What was begun may have charged, and must not be begun again.
        Some(answer.unwrap_or(Err(RequestError::Store(StoreError::Garbled))))
    }

    async fn decide(
        &self,
        request: &RateLimitRequest,
        patience: Patience,
        span: &mut Span,
    ) -> Result<Answer, RequestError> {
        let descriptors = decode::descriptors(request, &self.bounds)?;
        let rules = self.limiter.rules();
        let rules = rules.get().ok_or(RequestError::NoRules)?;
        span.decision_started();
        let decided = self.limiter.decide(rules, &request.domain, &descriptors, patience).await;
        span.decided(decided.as_ref().ok().and_then(|(decision, _)| decision.degraded));
        let (decision, places) = decided?;
        let mut response = encode::response(&decision);
        headers::add(&mut response, &self.answers, &decision);
        if self.answers.problem_body && decision.code == Code::OverLimit {
            problem::add(&mut response, &decision);
        }
        if self.answers.dynamic_metadata {
            response.dynamic_metadata = Some(metadata::of(request, &decision));
        }
        if let Some(degraded) = decision.degraded {
            metadata::add_degraded(response.dynamic_metadata.get_or_insert_default(), degraded);
        }
        if let Some(places) = &places {
            metadata::add_lease(response.dynamic_metadata.get_or_insert_default(), places.lease());
        }
        Ok(Answer { response, places })
    }
}
