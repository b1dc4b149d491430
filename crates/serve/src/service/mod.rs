//! The rate-limit service: decodes protobuf requests, calls the limiter, and encodes its decision.

mod banned_frames;
mod decode;
pub mod frame;
mod headers;
mod metadata;
pub mod metrics;
mod problem;
mod settings;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use prost::{DecodeError, Message as _};
use tollgate_core::{ban::Ban, clock::Clock, descriptor::Descriptor, lease::LeaseId};
use tollgate_limiter::decision::{Code, Decision};
use tollgate_limiter::{Deadline, HeldPermits, Limiter};
#[cfg(any(test, feature = "fuzzing"))]
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response;
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate_store::StoreError;
use tollgate_telemetry::traces::Span;

use self::banned_frames::BannedFrames;

pub use self::settings::{HeaderNames, HeaderStyle, NamedDecisions, ResponseOptions};
pub use self::{decode::PlainRequest, metrics::refused};
pub use tollgate_core::descriptor::RequestBounds;

/// Rate-limit service; one for each worker.
#[derive(Clone, Debug)]
pub struct Service {
    limiter: Limiter,
    options: ResponseOptions,
    banned: BannedFrames,
}

/// Answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The response, framed for gRPC.
    pub frame: Bytes,
    /// Code of the decision.
    pub code: Code,
    /// Permits of the lease that the response names. Dropping them releases them, unless they are marked as handed over.
    pub permits: Option<HeldPermits>,
}

impl Answer {
    /// Decodes the response.
    ///
    /// # Errors
    /// If it describes metadata of a rule that is nested more deeply than a protobuf message may be.
    pub fn message(&self) -> Result<RateLimitResponse, DecodeError> {
        RateLimitResponse::decode(self.frame.get(frame::PREFIX_BYTES..).unwrap_or_default())
    }

    /// The answer of a stub.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn framed(message: &RateLimitResponse) -> Self {
        let length = message.encoded_len() as u32;
        let frame = [&[0], &length.to_be_bytes()[..], &message.encode_to_vec()].concat().into();
        let is_over = message.overall_code() == rate_limit_response::Code::OverLimit;
        Self { frame, code: if is_over { Code::OverLimit } else { Code::Ok }, permits: None }
    }
}

/// Content of a response.
struct Parts<'a, 'r, 'd> {
    decision: &'a Decision<'r>,
    ban: Option<Ban>,
    clock: &'a Clock,
    /// `Retry-After` of a denial, in seconds.
    retry_after: Option<u64>,
    descriptors: &'a [Descriptor<'d>],
    permits: Option<&'a HeldPermits>,
}

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request is malformed or too large.
    #[error("{text}")]
    Invalid {
        /// The label of the reason in metrics.
        reason: &'static str,
        /// The reason.
        text: String,
    },
    /// The lease that the caller names is a known one that does not hold the hits to be reserved.
    #[error("the reservation of this id was settled, has ended or holds fewer hits; expected a new id")]
    IdConflict,
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
            Self::Invalid { .. } | Self::IdConflict => "invalid",
            Self::NoRules => "no_rules",
            Self::Store(error) => error.label(),
        }
    }
}

impl Service {
    /// Creates a service that decides with `limiter`.
    pub fn new(limiter: Limiter, options: ResponseOptions) -> Self {
        Self { limiter, options, banned: BannedFrames::default() }
    }

    /// Returns a service for reservations, whose responses do not describe the request. It acquires permits and reserves hits
    /// under `lease`, if the caller names one.
    #[must_use]
    pub fn for_reservation(&self, lease: Option<LeaseId>) -> Self {
        let mut service = self.clone();
        service.limiter.lease = lease;
        service.options.dynamic_metadata = false;
        service
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
    ) -> Result<Answer, RequestError> {
        let described = Some(request).filter(|_| self.options.dynamic_metadata);
        let answer = match decode::descriptors(request, &RequestBounds::default()) {
            Ok(descriptors) => {
                let encode = |parts: &Parts<'_, '_, '_>| frame::encode(&self.options, parts, described);
                self.decide(&request.domain, &descriptors, deadline, span, encode).await
            }
            Err(error) => Err(error),
        };
        record(&request.domain, &answer, span);
        answer
    }

    /// Reads a request whose response needs no more than its domain and descriptors. Returns `None` for others, and for
    /// those that are malformed or too large: [`Self::respond`] decides them.
    pub fn read<'a>(&self, message: &'a [u8]) -> Option<PlainRequest<'a>> {
        if self.options.dynamic_metadata {
            return None;
        }
        PlainRequest::read(message, &RequestBounds::default())
    }

    /// Decides as [`Self::respond`].
    pub async fn answer(
        &self,
        request: &PlainRequest<'_>,
        deadline: Deadline,
        span: &mut Span,
    ) -> Result<Answer, RequestError> {
        let encode = |parts: &Parts<'_, '_, '_>| {
            let new_frame = || frame::encode(&self.options, parts, None);
            // A response with a point in time differs each time.
            if self.options.problem_body || self.options.header_names.reset_at.is_some() {
                new_frame()
            } else {
                self.banned.get(request.bytes, parts, new_frame)
            }
        };
        let answer = self.decide(request.domain, &request.descriptors, deadline, span, encode).await;
        record(request.domain, &answer, span);
        answer
    }

    /// Whether the store never waits, so that [`Self::answer`] and [`Self::respond`] are ready when first polled.
    pub fn decides_at_once(&self) -> bool {
        self.limiter.decides_at_once()
    }

    async fn decide(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        deadline: Deadline,
        span: &mut Span,
        encode: impl FnOnce(&Parts<'_, '_, '_>) -> Bytes,
    ) -> Result<Answer, RequestError> {
        let rules = self.limiter.rules();
        let rules = rules.get().ok_or(RequestError::NoRules)?;
        let refused = self.limiter.check_lease(&rules, domain, descriptors).err();
        if let Some(refused) = refused {
            return Err(RequestError::Invalid { reason: "lease", text: refused.to_string() });
        }
        span.decision_started();
        let decided = self.limiter.decide(rules, domain, descriptors, deadline).await;
        span.decided(decided.as_ref().ok().and_then(|(decision, _)| decision.degraded));
        let (decision, permits) = decided?;
        if tracing::enabled!(tracing::Level::DEBUG) {
            metrics::log_decision(domain, descriptors, &decision);
        }
        if self.limiter.has_id_conflict(&decision) {
            return Err(RequestError::IdConflict);
        }
        // In seconds: until the limits admit the request, and the delay of its key.
        let retry_after = headers::retry_after(&decision, domain, descriptors);
        let frame = encode(&Parts {
            decision: &decision,
            ban: decision.ban(),
            clock: &self.limiter.clock,
            retry_after: retry_after.map(|wait| headers::whole_seconds(wait).max(1)),
            descriptors,
            permits: permits.as_ref(),
        });
        Ok(Answer { frame, code: decision.code, permits })
    }
}

/// Records the outcome of a request in metrics and in `span`, and logs one that is refused.
fn record(domain: &str, answer: &Result<Answer, RequestError>, span: &mut Span) {
    let result = match answer {
        Ok(Answer { code: Code::OverLimit, .. }) => "over_limit",
        Ok(Answer { code: Code::Ok, .. }) => "ok",
        Err(error) => error.label(),
    };
    match answer {
        Err(RequestError::Invalid { reason, text }) => refused(reason, Some(domain), text),
        _ => metrics::answered(result),
    }
    match answer {
        Ok(_) => span.answered(result),
        Err(_) => span.failed(result),
    }
}
