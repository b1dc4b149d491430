//! Body of a denial: problem details (RFC 9457).

use serde_json::json;
use tollgate_limiter::verdict::{Code, Decision, Limited, Status};

use super::{encode::whole_seconds, headers::header};
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// Adds the body and its content type to a denial.
pub(super) fn add(response: &mut RateLimitResponse, decision: &Decision<'_>) {
    let violated: Vec<&Limited<'_>> = decision
        .statuses
        .iter()
        .filter_map(Status::limited)
        .filter(|limited| limited.code() == Code::OverLimit)
        .collect();
    let retry_after = decision.retry_after().map_or(1, whole_seconds).max(1);
    let policies: Vec<_> = violated
        .iter()
        .map(|limited| {
            let (name, limit) = (limited.label(), limited.quota.limit);
            if limited.algorithm.holds_permits() {
                // A concurrency limit has no window.
                json!({"name": name, "limit": limit})
            } else {
                json!({"name": name, "limit": limit, "window": limited.quota.window.seconds()})
            }
        })
        .collect();
    let body =
        match decision.listed.map(|_| "Denied for now").or(decision.shed.map(|_| "The service is busy")) {
            // Denied by a list, or shed: no quota was exceeded.
            Some(reason) => json!({
                "type": "about:blank",
                "title": "Too many requests",
                "status": 429,
                "detail": format!("{reason}; retry in {retry_after} s."),
                "retry_after": retry_after,
            }),
            None => json!({
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "Too many requests",
                "status": 429,
                "detail": format!("Over the limit; retry in {retry_after} s."),
                "retry_after": retry_after,
                "violated-policies": policies,
            }),
        };
    response.response_headers_to_add.push(header("Content-Type", "application/problem+json".into()));
    response.raw_body = body.to_string().into_bytes();
}
