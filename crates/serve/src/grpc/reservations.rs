//! Reservations for callers other than Envoy, in terms of the rate-limit service.

use std::{num::NonZeroU64, sync::Arc};

use sha2::{Digest as _, Sha256};
use tollgate_core::lease::{self, LeaseId};
use tollgate_limiter::decision::Code as DecisionCode;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, rate_limit_response};
use tollgate_proto::tollgate::reservation::v1::{
    CommitRequest, CommitResponse, Descriptor, ReserveRequest, ReserveResponse,
    reservation_service_server::ReservationService, reserve_response,
};
use tonic::{Code, Request, Response, Status, async_trait};

use super::unary::UnaryService;
use crate::service::Answer;

/// Maximum length of a caller's identifier of a reservation.
const MAX_ID_BYTES: usize = 128;

/// Reservations by a rate-limit service.
#[derive(Debug)]
pub(super) struct Reservations<T>(pub(super) Arc<T>);

#[async_trait]
impl<T: UnaryService> ReservationService for Reservations<T> {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let ReserveRequest { domain, descriptors, amount, id } = message;
        let amount = NonZeroU64::new(amount)
            .ok_or_else(|| Status::invalid_argument("amount is 0; expected at least 1"))?;
        let lease = if id.is_empty() { None } else { Some(lease_of(&domain, &id)?) };
        let descriptors = rate_limit_descriptors(descriptors, amount.get(), None);
        let request = RateLimitRequest { domain, descriptors, ..RateLimitRequest::default() };
        match self.0.answer_reservation(metadata, request, lease).await {
            Ok(answer) => Ok(reserved(answer, id)),
            Err(status) if status.code() == Code::AlreadyExists => {
                let code = reserve_response::Code::IdConflict.into();
                Ok(Response::new(ReserveResponse { code, ..ReserveResponse::default() }))
            }
            Err(status) => Err(status),
        }
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Result<Response<CommitResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let CommitRequest { domain, descriptors, id, used } = message;
        if id.is_empty() {
            return Err(Status::invalid_argument("id is empty; expected that of a reservation"));
        }
        let lease = lease_of(&domain, &id)?;
        let descriptors = rate_limit_descriptors(descriptors, used, Some(lease));
        let request = RateLimitRequest { domain, descriptors, ..RateLimitRequest::default() };
        self.0.answer_reservation(metadata, request, None).await?;
        Ok(Response::new(CommitResponse {}))
    }
}

/// The lease of a reservation: one that the server has named, or one that follows from the caller's name for it.
fn lease_of(domain: &str, id: &str) -> Result<LeaseId, Status> {
    if id.len() > MAX_ID_BYTES {
        return Err(Status::invalid_argument(format!(
            "id is too long; expected at most {MAX_ID_BYTES} bytes"
        )));
    }
    if let Ok(lease) = LeaseId::parse(id) {
        return Ok(lease);
    }
    let mut hash = Sha256::new();
    // The length separates the two texts.
    hash.update((domain.len() as u64).to_le_bytes());
    hash.update(domain.as_bytes());
    hash.update(id.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    Ok(LeaseId::new(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)))
}

fn rate_limit_descriptors(
    descriptors: Vec<Descriptor>,
    hits: u64,
    lease: Option<LeaseId>,
) -> Vec<RateLimitDescriptor> {
    let lease = lease
        .map(|lease| rate_limit_descriptor::Entry { key: lease::KEY.to_owned(), value: lease.to_string() });
    let convert = |descriptor: Descriptor| {
        let entries = descriptor.entries.into_iter();
        let entries =
            entries.map(|entry| rate_limit_descriptor::Entry { key: entry.key, value: entry.value });
        RateLimitDescriptor {
            entries: entries.chain(lease.clone()).collect(),
            hits_addend: Some(hits),
            ..RateLimitDescriptor::default()
        }
    };
    descriptors.into_iter().map(convert).collect()
}

/// The response to a reservation with the caller's identifier, if there is one. Its extensions hold what was reserved, which
/// is released if the caller does not read the response.
fn reserved(answer: Answer, id: String) -> Response<ReserveResponse> {
    // What was reserved has a name even if the frame cannot be decoded.
    let message = answer.message().unwrap_or_default();
    let lease = answer.permits.as_ref().map(|permits| permits.lease().to_string());
    let limited = || message.statuses.iter().filter(|status| status.current_limit.is_some());
    let code = match (answer.code, &lease) {
        (DecisionCode::OverLimit, _) => reserve_response::Code::Denied,
        (_, Some(_)) => reserve_response::Code::Reserved,
        (_, None) => reserve_response::Code::NotLimited,
    };
    let waits = limited().filter(|status| status.code() == rate_limit_response::Code::OverLimit);
    let wait = waits.filter_map(|status| status.duration_until_reset.as_ref()).map(|wait| {
        // A part of a second is a second.
        wait.seconds.saturating_add(i64::from(wait.nanos > 0))
    });
    let mut response = Response::new(ReserveResponse {
        code: code.into(),
        id: lease.map(|lease| if id.is_empty() { lease } else { id }).unwrap_or_default(),
        remaining: limited().map(|status| status.limit_remaining.into()).min().unwrap_or_default(),
        retry_after_seconds: wait.max().and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default(),
    });
    if let Some(permits) = answer.permits {
        response.extensions_mut().insert(permits);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_follows_from_the_callers_identifier() {
        let lease = |domain, id| lease_of(domain, id).expect("valid");
        assert_eq!(lease("llm", "a"), lease("llm", "a"));
        assert_ne!(lease("llm", "a"), lease("llm", "b"));
        assert_ne!(lease("llm", "a"), lease("ll", "ma"));
        let named = LeaseId::random();
        assert_eq!(lease("llm", &named.to_string()), named, "one that the server named");
        assert!(lease_of("llm", &"a".repeat(MAX_ID_BYTES + 1)).is_err());
    }
}
