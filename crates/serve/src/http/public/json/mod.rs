//! `/json`: the gRPC call in protobuf's JSON mapping.
//!
//! Callers need no credentials, so a web page must not be able to charge or refund by its visitors' browsers: a request
//! needs the content type of JSON, and an `Origin`, which only browsers send, has to be that of this port at an address or
//! `localhost`, since any other name may be an attacker's that resolves to this port (DNS rebinding).

use std::sync::Arc;

use axum::extract::{self, State, rejection::BytesRejection};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::response::{IntoResponse, Response};
use axum::{body::Bytes, middleware::Next};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::json;
use tollgate_limiter::HeldPermits;
use tollgate_proto::FILE_DESCRIPTOR_SET;
use tollgate_proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response, rate_limit_service_server::RateLimitService,
};
use tonic::{Code, Request, Status};

use crate::http::origin::{host, is_address_or_localhost, is_cross_origin, is_json};

/// The embedded protobuf descriptors are unusable.
#[derive(Debug, thiserror::Error)]
#[error("unusable protobuf descriptors: {0}")]
pub struct DescriptorError(String);

/// State of `/json`.
#[derive(Debug)]
pub(super) struct JsonEndpoint<T> {
    pub(super) rate_limit: T,
    pub(super) codec: JsonCodec,
}

/// Converts requests and responses between JSON and protobuf.
#[derive(Debug)]
pub(in crate::http) struct JsonCodec {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

impl JsonCodec {
    pub(in crate::http) fn new() -> Result<Self, DescriptorError> {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET);
        let pool = pool.map_err(|error| DescriptorError(error.to_string()))?;
        let find = |name: &str| {
            let name = format!("envoy.service.ratelimit.v3.{name}");
            pool.get_message_by_name(&name).ok_or_else(|| DescriptorError(format!("{name} is missing")))
        };
        Ok(Self { request: find("RateLimitRequest")?, response: find("RateLimitResponse")? })
    }

    /// Decodes a request. Fields may have their JSON or their protobuf names; unknown fields are refused.
    pub(in crate::http) fn decode(&self, body: &[u8]) -> Result<RateLimitRequest, String> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let message = DynamicMessage::deserialize(self.request.clone(), &mut reader);
        let message = message.and_then(|message| reader.end().map(|()| message));
        let message = message.map_err(|error| error.to_string())?;
        message.transcode_to().map_err(|error| error.to_string())
    }

    /// Encodes a response without the fields that have their default value.
    pub(in crate::http) fn encode(&self, response: &RateLimitResponse) -> Result<Vec<u8>, String> {
        let encoded = response.encode_to_vec();
        let message = DynamicMessage::decode(self.response.clone(), encoded.as_slice());
        let message = message.map_err(|error| error.to_string())?;
        serde_json::to_vec(&message).map_err(|error| error.to_string())
    }
}

/// Refuses requests that a web page may have made a browser send.
pub(super) async fn refuse_web_pages(request: extract::Request, next: Next) -> Response {
    let host = host(&request);
    let is_trusted = host.as_ref().is_some_and(is_address_or_localhost);
    let is_from_page =
        is_cross_origin(&request, host.as_ref()) || (request.headers().contains_key(ORIGIN) && !is_trusted);
    if is_from_page {
        let message = "request of a web page; expected no Origin, or that of this address";
        return error(StatusCode::FORBIDDEN, message);
    }
    if !is_json(request.headers()) {
        let message = "unsupported Content-Type; expected application/json";
        return error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    next.run(request).await
}

/// Handles a call. Responds with 200 or 429 and the response message, or with another status and an error.
pub(super) async fn should_rate_limit<T: RateLimitService>(
    State(endpoint): State<Arc<JsonEndpoint<T>>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let request = match endpoint.codec.decode(&body) {
        Ok(request) => request,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    let mut response = match endpoint.rate_limit.should_rate_limit(Request::new(request)).await {
        Ok(response) => response,
        Err(status) => return error(http_status(&status), status.message()),
    };
    let permits: Option<HeldPermits> = response.extensions_mut().remove();
    let message = response.into_inner();
    let status = match message.overall_code() {
        rate_limit_response::Code::Ok => StatusCode::OK,
        rate_limit_response::Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        rate_limit_response::Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    match endpoint.codec.encode(&message) {
        Ok(text) => {
            // Whether the client reads the response is unknown; an unreleased lease expires by its time to live.
            permits.inspect(HeldPermits::hand_over);
            (status, [(CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(message) => error(StatusCode::INTERNAL_SERVER_ERROR, &message),
    }
}

fn http_status(status: &Status) -> StatusCode {
    match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    let text = json!({ "error": message }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
