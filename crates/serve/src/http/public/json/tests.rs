use axum::body::{Body, to_bytes};
use prost_types::{Struct, Value, value::Kind};
use serde_json::Value as Json;
use tollgate_proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::{self, DescriptorStatus},
    rate_limit_service_server::RateLimitService,
};
use tonic::{Request, async_trait, codegen::Service as _};

use super::*;
use crate::http::{PublicParts, public_router};
use crate::readiness::Readiness;

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

const JSON_TYPE: (&str, &str) = ("content-type", "application/json");

async fn call_with(method: &str, headers: &[(&str, &str)], body: &str) -> (StatusCode, Json) {
    let parts =
        PublicParts { rate_limit: Stub, readiness: Readiness::new(0), exporter: None, max_body: 1000 };
    let request = http::Request::builder().method(method).uri("/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    let response = public_router(parts).expect("descriptors").call(request).await.expect("answered");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    assert!(!response.headers().keys().any(|name| name.as_str().starts_with("access-control-")));
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

async fn call(method: &str, body: &str) -> (StatusCode, Json) {
    call_with(method, &[JSON_TYPE], body).await
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
async fn fields_may_have_json_or_protobuf_names() {
    for body in [r#"{"domain": "open", "hitsAddend": 3}"#, r#"{"domain": "open", "hits_addend": 3}"#] {
        let (_, response) = call("POST", body).await;
        assert_eq!(response["dynamicMetadata"]["echo"], "3 hits, 0 descriptors");
    }
}

#[tokio::test]
async fn other_requests_have_a_status_and_a_reason() {
    let long = format!(r#"{{"domain": "{}"}}"#, "x".repeat(1000));
    for (body, status, reason) in [
        (r#"{"domain": "over"}"#, StatusCode::TOO_MANY_REQUESTS, r#""overallCode":"OVER_LIMIT""#),
        ("", StatusCode::BAD_REQUEST, "EOF"),
        ("{", StatusCode::BAD_REQUEST, "EOF"),
        (r#"{"domain": "open"} x"#, StatusCode::BAD_REQUEST, "trailing"),
        (r#"{"domain": "open", "descriptor": []}"#, StatusCode::BAD_REQUEST, "descriptor"),
        (r#"{"domain": 7}"#, StatusCode::BAD_REQUEST, "string"),
        (r#"{"domain": "none"}"#, StatusCode::BAD_REQUEST, "no such domain"),
        (&long, StatusCode::PAYLOAD_TOO_LARGE, ""),
        (r#"{"domain": "down"}"#, StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"no connection"}"#),
    ] {
        let (found, response) = call("POST", body).await;
        assert_eq!(found, status, "{body}");
        let shown = if status == StatusCode::BAD_REQUEST { &response["error"] } else { &response };
        assert!(shown.to_string().contains(reason), "{body}: {response}");
    }
}

/// A page can send these without a preflight request.
#[tokio::test]
async fn only_the_content_type_of_json_is_accepted() {
    let status = async |headers: &[(&str, &str)]| call_with("POST", headers, r#"{"domain": "open"}"#).await.0;
    for kind in ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON"] {
        assert_eq!(status(&[("content-type", kind)]).await, StatusCode::OK, "{kind}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
        assert_eq!(status(&[("content-type", kind)]).await, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    assert_eq!(status(&[]).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    // A preflight request gets no permission.
    let (status, _) = call_with("OPTIONS", &[("access-control-request-method", "POST")], "").await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn requests_of_web_pages_are_refused() {
    let from = async |host: &str, origin: &str| {
        let headers = [JSON_TYPE, ("host", host), ("origin", origin)];
        call_with("POST", &headers, r#"{"domain": "open"}"#).await.0
    };
    assert_eq!(from("127.0.0.1:8080", "http://127.0.0.1:8080").await, StatusCode::OK);
    for (host, origin) in [
        ("127.0.0.1:8080", "https://evil.example"),
        ("127.0.0.1:8080", "http://127.0.0.1:3000"),
        ("tollgate:8080", "null"),
        // The name resolves to this port only for the page.
        ("evil.example:8080", "http://evil.example:8080"),
    ] {
        assert_eq!(from(host, origin).await, StatusCode::FORBIDDEN, "{origin} to {host}");
    }
    // A program has no origin, and may use any name.
    let program = [JSON_TYPE, ("host", "tollgate.limits.svc:8080")];
    assert_eq!(call_with("POST", &program, r#"{"domain": "open"}"#).await.0, StatusCode::OK);
}
