//! Why a call is refused, and how that reads.

use std::time::Duration;

use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{body, safety::Reason};
use crate::{
    config::{LoadError, Problem, Severity},
    control::{ControlError, Version},
    store::StoreError,
};

/// Why a call is refused.
#[derive(Debug, thiserror::Error)]
pub(in crate::http) enum ApiError {
    /// No token, or one that nobody has.
    #[error("expected a token: Authorization: Bearer …")]
    Unauthorized,
    /// A caller who may not, or a browser that may not speak for one.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// There is such a path, but not for this method.
    #[error("the path does not take this method")]
    Method,
    /// What can't be read, or makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// A body that is too large.
    #[error("expected a body of {} MiB at the most", body::LARGEST >> 20)]
    TooLarge,
    /// A large body that takes too long to come.
    #[error("expected the body within {0:?}")]
    Slow(Duration),
    /// A body that is no JSON, by what it says of itself.
    #[error("expected Content-Type: application/json")]
    ContentType,
    /// Rules that are not valid.
    #[error("the rules are not valid")]
    Invalid(Box<Invalid>),
    /// Rules that are likely a mistake.
    #[error("this is likely a mistake; force makes it so all the same")]
    NeedsForce(Vec<Reason>),
    /// Operators' changes could not be made or read.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The counters could not be reached.
    #[error("the store of the counters does not answer: {0}")]
    Store(#[from] StoreError),
    /// Others have their turn.
    #[error("{0}")]
    Busy(&'static str),
    /// A defect of ours, which the log describes.
    #[error("a part of this failed; the log says where")]
    Broken,
}

/// What is wrong with rules.
#[derive(Debug)]
pub(in crate::http) struct Invalid {
    pub(super) problems: Vec<ProblemView>,
    /// The same, as `check` prints it.
    pub(super) report: String,
}

/// One problem.
#[derive(Clone, Debug, Serialize)]
pub(in crate::http) struct ProblemView {
    severity: &'static str,
    file: String,
    line: usize,
    path: String,
    message: String,
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
        Self {
            severity: match problem.severity {
                Severity::Warning => "warning",
                Severity::Error => "error",
            },
            file: problem.file.to_string(),
            line: problem.line,
            path: problem.path.clone(),
            message: problem.message.clone(),
        }
    }
}

impl From<&LoadError> for Invalid {
    fn from(error: &LoadError) -> Self {
        let problems = match error {
            LoadError::Invalid { report, .. } => report.problems().iter().map(ProblemView::from).collect(),
            LoadError::Directory { .. } | LoadError::Broken { .. } => Vec::new(),
        };
        Self { problems, report: error.to_string() }
    }
}

impl Invalid {
    /// One problem with a whole file.
    pub(super) fn of_file(file: &str, message: &str) -> Self {
        let problem = ProblemView {
            severity: "error",
            file: file.to_owned(),
            line: 0,
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
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "bad_request"),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "bad_request"),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_request"),
            Self::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            Self::NeedsForce(_) => (StatusCode::UNPROCESSABLE_ENTITY, "needs_force"),
            Self::Store(_) | Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Self::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            Self::Control(error) => match error {
                ControlError::Stale { .. } => (StatusCode::CONFLICT, "stale"),
                ControlError::ReadOnly => (StatusCode::CONFLICT, "read_only"),
                ControlError::TooMany { .. } => (StatusCode::CONFLICT, "too_many"),
                ControlError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "bad_request"),
                ControlError::Unavailable(_) | ControlError::Garbled(_) => {
                    (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
                }
            },
        }
    }

    /// What is told beside code and message.
    fn details(&self) -> Option<Value> {
        match self {
            Self::Control(ControlError::Stale { current }) => Some(stale(current)),
            Self::Invalid(invalid) => Some(json!({ "problems": invalid.problems, "report": invalid.report })),
            Self::NeedsForce(reasons) => Some(json!({ "reasons": reasons })),
            _ => None,
        }
    }
}

fn stale(current: &Version) -> Value {
    json!({ "current": current })
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
