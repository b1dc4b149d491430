//! JSON responses, errors included.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use tollgate_control::ControlError;
use tollgate_rules::config::{LoadError, Problem, Severity};
use tollgate_store::StoreError;

/// Result of an API handler.
pub(super) type ApiResult = Result<Response, ApiError>;

/// A 200 response.
pub(super) fn json(value: &impl Serialize) -> ApiResult {
    Ok(respond(StatusCode::OK, Bytes::from(to_vec(value)?)))
}

/// The error of guardrails that a change violates, if any.
pub(super) fn require_force(violations: Vec<Violation>) -> Result<(), ApiError> {
    if violations.is_empty() { Ok(()) } else { Err(ApiError::NeedsForce(violations)) }
}

/// Serialises a value.
pub(super) fn to_vec(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "failed to serialise an API response");
        ApiError::Internal
    })
}

pub(super) fn respond(status: StatusCode, body: Bytes) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, Body::from(body)).into_response()
}

/// Error of an API request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The token is missing or unknown.
    #[error("missing or unknown token; expected `Authorization: Bearer TOKEN`")]
    Unauthorized,
    /// The caller's role does not permit the request, or it may come from a page of another origin.
    #[error("{0}")]
    Forbidden(String),
    /// The resource does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The path exists, but not with this method.
    #[error("method not allowed for this path")]
    Method,
    /// Malformed or invalid parameters.
    #[error("{0}")]
    BadRequest(String),
    /// The body is larger than this number of bytes.
    #[error("body too large; expected at most {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// A large body was not received in time.
    #[error("timed out receiving the body; expected it within {0:?}")]
    Slow(Duration),
    /// The `Content-Type` of the body is not JSON.
    #[error("unsupported Content-Type; expected application/json")]
    ContentType,
    /// The rules are invalid.
    #[error("the rules are invalid")]
    Invalid(Box<Invalid>),
    /// A limit that the request states is invalid; contains the reason.
    #[error("{0}")]
    InvalidLimit(String),
    /// The rules, or records, violate a guardrail.
    #[error("refused by guardrails; set `force` to apply anyway")]
    NeedsForce(Vec<Violation>),
    /// The control store refused the request or failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The store of the counters failed.
    #[error("counter store unavailable: {0}")]
    Store(#[from] StoreError),
    /// Too many concurrent expensive requests.
    #[error("{0}")]
    Busy(&'static str),
    /// A bug, described in the log.
    #[error("internal error; see the server log")]
    Internal,
}

/// A guardrail that proposed rules or records violate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Violation {
    pub(super) code: ViolationCode,
    pub(super) domain: String,
    pub(super) message: String,
}

impl Violation {
    pub(super) fn new(code: ViolationCode, domain: &str, message: impl Into<String>) -> Self {
        Self { code, domain: domain.to_owned(), message: message.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ViolationCode {
    /// All traffic of the domain would be denied, or all of it with some keys.
    DeniesAll,
    /// More of the domain's traffic would be denied than a guardrail permits.
    DeniesTraffic,
    /// The domain has traffic and would have no rules, or no rules would remain at all.
    DropsDomain,
}

/// Problems of invalid rules.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(super) problems: Vec<Problem>,
    /// The report that `tollgate check` prints.
    pub(super) report: String,
}

impl From<&LoadError> for Invalid {
    fn from(error: &LoadError) -> Self {
        let problems = match error {
            LoadError::Invalid { report, .. } => report.problems.clone(),
            LoadError::Directory(_) | LoadError::Broken { .. } => Vec::new(),
        };
        Self { problems, report: error.to_string() }
    }
}

impl Invalid {
    /// One error about a whole file.
    pub(super) fn of_file(file: &str, message: &str) -> Self {
        let problem = Problem {
            severity: Severity::Error,
            file: file.into(),
            line: 0,
            column: 0,
            path: String::new(),
            message: message.to_owned(),
        };
        Self { report: format!("{file}: {message}"), problems: vec![problem] }
    }
}

impl ApiError {
    fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "bad_request"),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "bad_request"),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "bad_request"),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_request"),
            Self::Invalid(_) | Self::InvalidLimit(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            Self::NeedsForce(_) => (StatusCode::UNPROCESSABLE_ENTITY, "needs_force"),
            Self::Store(_) | Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            Self::Control(error) => match error {
                ControlError::Stale { .. } | ControlError::StaleRecord { .. } => {
                    (StatusCode::CONFLICT, "stale")
                }
                ControlError::ReadOnly => (StatusCode::CONFLICT, "read_only"),
                ControlError::OtherRegion { .. } => (StatusCode::CONFLICT, "other_region"),
                ControlError::TooMany { .. } => (StatusCode::CONFLICT, "too_many"),
                ControlError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "bad_request"),
                ControlError::Unavailable(_) | ControlError::Malformed(_) => {
                    (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
                }
            },
        }
    }

    /// Fields beside code and message.
    fn details(&self) -> Option<Value> {
        match self {
            Self::Control(ControlError::Stale { current }) => Some(json!({ "current": current })),
            Self::Control(ControlError::StaleRecord { current, .. }) => Some(json!({ "current": current })),
            Self::Invalid(invalid) => Some(json!({ "problems": invalid.problems, "report": invalid.report })),
            Self::NeedsForce(violations) => Some(json!({ "reasons": violations })),
            _ => None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.code();
        let mut error = json!({ "code": code, "message": self.to_string() });
        if let (Some(error), Some(Value::Object(details))) = (error.as_object_mut(), self.details()) {
            error.extend(details);
        }
        let body = json!({ "error": error }).to_string();
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
