use axum::body::{Body, to_bytes};
use prost_types::{Struct, Value, value::Kind};
use serde_json::Value as Json;
use tonic::{async_trait, codegen::Service as _};

use super::*;
use crate::{
    http::{PublicParts, public_router},
    proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus,
    readiness::Readiness,
};

/// Responds by the domain of the request, and echoes the decoded request as metadata.
#[derive(Debug)]
struct Stub;

#[async_trait]
impl RateLimitService for Stub {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let code = match request.domain.as_str() {
            "open" => rate_limit_response::Code::Ok,
            "over" => rate_limit_response::Code::OverLimit,
            "down" => return Err(Status::unavailable("no connection")),
            domain => return Err(Status::invalid_argument(format!("no such domain: {domain:?}"))),
        };
        let echo = format!("{} hits, {} descriptors", request.hits_addend, request.descriptors.len());
        let echo = Value { kind: Some(Kind::StringValue(echo)) };
        Ok(tonic::Response::new(RateLimitResponse {
            overall_code: code.into(),
            statuses: vec![DescriptorStatus {
                code: code.into(),
                limit_remaining: 7,
                duration_until_reset: Some(prost_types::Duration { seconds: 12, nanos: 0 }),
                ..DescriptorStatus::default()
            }],
            dynamic_metadata: Some(Struct { fields: [("echo".to_owned(), echo)].into() }),
            ..RateLimitResponse::default()
        }))
    }
}

async fn call(method: &str, body: &str) -> (StatusCode, Json) {
    let parts = PublicParts { rate_limit: Stub, readiness: Readiness::new(), exporter: None, max_body: 1000 };
    let request = http::Request::builder().method(method).uri("/json").body(Body::from(body.to_owned()));
    let response =
        public_router(parts).expect("descriptors").call(request.expect("a request")).await.expect("answered");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

#[tokio::test]
async fn a_request_that_passes_is_200_with_the_response_in_camel_case() {
    let body = r#"{"domain": "open", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    for method in ["POST", "GET"] {
        let (status, response) = call(method, body).await;
        assert_eq!(status, StatusCode::OK);
        let expected = json!({
            "overallCode": "OK",
            "statuses": [{"code": "OK", "limitRemaining": 7, "durationUntilReset": "12s"}],
            "dynamicMetadata": {"echo": "0 hits, 1 descriptors"},
        });
        assert_eq!(response, expected);
    }
}

#[tokio::test]
async fn a_request_over_the_limit_is_429() {
    let (status, response) = call("POST", r#"{"domain": "over"}"#).await;
    assert_eq!((status, &response["overallCode"]), (StatusCode::TOO_MANY_REQUESTS, &json!("OVER_LIMIT")));
}

#[tokio::test]
async fn fields_may_have_json_or_protobuf_names() {
    for body in [r#"{"domain": "open", "hitsAddend": 3}"#, r#"{"domain": "open", "hits_addend": 3}"#] {
        let (_, response) = call("POST", body).await;
        assert_eq!(response["dynamicMetadata"]["echo"], "3 hits, 0 descriptors");
    }
}

#[tokio::test]
async fn undecodable_requests_are_400_with_the_reason() {
    for (body, reason) in [
        ("", "EOF"),
        ("{", "EOF"),
        (r#"{"domain": "open"} x"#, "trailing"),
        (r#"{"domain": "open", "descriptor": []}"#, "descriptor"),
        (r#"{"domain": 7}"#, "string"),
        (r#"{"domain": "none"}"#, "no such domain"),
    ] {
        let (status, response) = call("POST", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(response["error"].as_str().is_some_and(|error| error.contains(reason)), "{body}: {response}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let body = format!(r#"{{"domain": "{}"}}"#, "x".repeat(1000));
    assert_eq!(call("POST", &body).await.0, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn an_unavailable_store_is_503() {
    let (status, response) = call("POST", r#"{"domain": "down"}"#).await;
    assert_eq!((status, response), (StatusCode::SERVICE_UNAVAILABLE, json!({"error": "no connection"})));
}
