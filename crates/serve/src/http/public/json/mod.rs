//! `/json`: the gRPC call in protobuf's JSON mapping.
//!
//! Callers need no credentials, so a web page must not be able to charge or refund by its visitors' browsers: a request
//! needs the content type of JSON, and an `Origin`, which only browsers send, has to be that of this port at an address or
//! `localhost`, since any other name may be an attacker's that resolves to this port (DNS rebinding).

use std::{sync::Arc, time::Duration};

use axum::extract::{self, State, rejection::BytesRejection};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use axum::response::{IntoResponse, Response};
use axum::{body::Bytes, middleware::Next};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::json;
use tollgate_limiter::{HeldPermits, decision::Code};
use tollgate_proto::FILE_DESCRIPTOR_SET;
use tonic::{Status, metadata::MetadataMap};

use crate::grpc::unary::UnaryService;
use crate::http::origin::{host, is_address_or_localhost, is_cross_origin, is_json};
use crate::service::frame::PREFIX_BYTES;

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

    /// Encodes a request in protobuf. Fields may have their JSON or their protobuf names; unknown fields are refused.
    pub(in crate::http) fn decode(&self, body: &[u8]) -> Result<Bytes, String> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let message = DynamicMessage::deserialize(self.request.clone(), &mut reader);
        let message = message.and_then(|message| reader.end().map(|()| message));
        message.map(|message| message.encode_to_vec().into()).map_err(|error| error.to_string())
    }

    /// Encodes a framed response in JSON, without the fields that have their default value. Fails if it describes metadata of
    /// a rule that is nested more deeply than a protobuf message may be.
    pub(in crate::http) fn encode(&self, frame: &[u8]) -> Result<Vec<u8>, String> {
        let message = frame.get(PREFIX_BYTES..).unwrap_or_default();
        let message = DynamicMessage::decode(self.response.clone(), message);
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
pub(super) async fn should_rate_limit<T: UnaryService>(
    State(endpoint): State<Arc<JsonEndpoint<T>>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let message = match endpoint.codec.decode(&body) {
        Ok(message) => message,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    let answer = endpoint.rate_limit.answer(MetadataMap::new(), message, Some(Duration::ZERO)).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(status) => return error(http_status(&status), status.message()),
    };
    let status = match answer.code {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
    };
    match endpoint.codec.encode(&answer.frame) {
        Ok(text) => {
            // Whether the client reads the response is unknown; an unreleased lease expires by its time to live.
            answer.permits.iter().for_each(HeldPermits::hand_over);
            (status, [(CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(message) => error(StatusCode::INTERNAL_SERVER_ERROR, &message),
    }
}

fn http_status(status: &Status) -> StatusCode {
    match status.code() {
        tonic::Code::InvalidArgument => StatusCode::BAD_REQUEST,
        tonic::Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    let text = json!({ "error": message }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
