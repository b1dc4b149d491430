//! The JSON twin of the gRPC call, in protobuf's JSON mapping.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::json;
use tonic::{Code, Request, Status};

use crate::{
    limiter::Places,
    proto::{
        FILE_DESCRIPTOR_SET,
        envoy::service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse, rate_limit_response,
            rate_limit_service_server::RateLimitService,
        },
    },
};

/// The descriptors of the messages cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the messages have no usable descriptors: {0}")]
pub struct DescriptorsBroken(String);

/// What `/json` answers with.
#[derive(Debug)]
pub(super) struct Twin<T> {
    pub(super) rate_limit: T,
    pub(super) messages: Messages,
}

/// The descriptors of request and response.
#[derive(Debug)]
pub(super) struct Messages {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

impl Messages {
    pub(super) fn new() -> Result<Self, DescriptorsBroken> {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET);
        let pool = pool.map_err(|error| DescriptorsBroken(error.to_string()))?;
        let find = |name: &str| {
            let name = format!("envoy.service.ratelimit.v3.{name}");
            pool.get_message_by_name(&name).ok_or_else(|| DescriptorsBroken(format!("{name} is missing")))
        };
        Ok(Self { request: find("RateLimitRequest")?, response: find("RateLimitResponse")? })
    }

    /// Reads a request; fields go by their names in JSON or in protobuf, and none may be unknown.
    pub(super) fn request(&self, body: &[u8]) -> Result<RateLimitRequest, String> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let message = DynamicMessage::deserialize(self.request.clone(), &mut reader);
        let message = message.and_then(|message| reader.end().map(|()| message));
        let message = message.map_err(|error| error.to_string())?;
        message.transcode_to().map_err(|error| error.to_string())
    }

    /// Writes a response without the fields that have their default value.
    pub(super) fn response(&self, response: &RateLimitResponse) -> Result<Vec<u8>, String> {
        let encoded = response.encode_to_vec();
        let message = DynamicMessage::decode(self.response.clone(), encoded.as_slice());
        let message = message.map_err(|error| error.to_string())?;
        serde_json::to_vec(&message).map_err(|error| error.to_string())
    }
}

/// Answers a call: 200 or 429 with the response, another status with what went wrong.
pub(super) async fn answer<T: RateLimitService>(
    State(twin): State<Arc<Twin<T>>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return problem(rejection.status(), &rejection.body_text()),
    };
    let request = match twin.messages.request(&body) {
        Ok(request) => request,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error),
    };
    let mut answer = match twin.rate_limit.should_rate_limit(Request::new(request)).await {
        Ok(answer) => answer,
        Err(status) => return problem(code(&status), status.message()),
    };
    let places: Option<Places> = answer.extensions_mut().remove();
    let response = answer.into_inner();
    let status = match response.overall_code() {
        rate_limit_response::Code::Ok => StatusCode::OK,
        rate_limit_response::Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        rate_limit_response::Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    match twin.messages.response(&response) {
        Ok(text) => {
            // Whether the client gets to read it is not known; the lease's time to live has the last word.
            places.inspect(Places::handed_over);
            (status, [(CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error),
    }
}

fn code(status: &Status) -> StatusCode {
    match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn problem(status: StatusCode, error: &str) -> Response {
    let text = json!({ "error": error }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
