//! Errors of a call.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_control::Version;

use super::text::{escape, escape_line};

/// Error of a call. Contains no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// Rejected by the API.
    #[error("{0}")]
    Rejected(Box<ApiError>),
    /// No response.
    #[error("{url} is unreachable: {reason}")]
    Unreachable {
        /// URL of the server.
        url: String,
        /// Violation.
        reason: String,
    },
    /// A response that is not from an admin API.
    #[error("unexpected response from {url} (HTTP status {status}); expected the admin API")]
    NotAdminApi {
        /// URL of the server.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// An instance without a region table.
    #[error("this instance has no region table; expected one that runs with --regions")]
    NoRegions,
    /// An unusable file.
    #[error("{name}: {reason}")]
    File {
        /// Flag that names the file, or its path.
        name: String,
        /// Violation.
        reason: String,
    },
    /// Invalid rules in a directory, with the report of `check`.
    #[error("{0}")]
    Invalid(String),
}

/// Error response of the API.
#[derive(Debug, Deserialize)]
pub(super) struct ApiError {
    code: String,
    message: String,
    /// Problems of the rules, as `check` prints them.
    report: Option<String>,
    #[serde(default)]
    reasons: Vec<Violation>,
    /// The current version.
    current: Option<Version>,
    /// The whole response.
    #[serde(skip)]
    response: Value,
}

/// A guardrail that the rules violate.
#[derive(Debug, Deserialize)]
struct Violation {
    domain: String,
    message: String,
}

impl ApiError {
    /// Decodes an error response; `None` for any other.
    pub(super) fn read(response: Value) -> Option<Self> {
        let error = Self::deserialize(response.get("error")?).ok()?;
        Some(Self { response, ..error })
    }
}

impl ClientError {
    /// The error as JSON, in the form of the API.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Rejected(error) => error.response.clone(),
            Self::Invalid(report) => {
                json!({ "error": { "code": "invalid", "message": "the rules are not valid", "report": report } })
            }
            Self::Unreachable { .. } | Self::NotAdminApi { .. } => {
                json!({ "error": { "code": "unreachable", "message": self.to_string() } })
            }
            Self::NoRegions => json!({ "error": { "code": "not_found", "message": self.to_string() } }),
            Self::File { .. } => json!({ "error": { "code": "file", "message": self.to_string() } }),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = &self.report {
            return f.write_str(escape(report).trim_end());
        }
        write!(f, "refused ({}): {}", escape_line(&self.code), escape_line(&self.message))?;
        for Violation { domain, message } in &self.reasons {
            write!(f, "\n  {}: {}", escape_line(domain), escape_line(message))?;
        }
        if !self.reasons.is_empty() {
            f.write_str("\nuse --force to apply it anyway")?;
        }
        if let Some(Version { number, comment, .. }) = &self.current {
            write!(f, "\nversion {number}: {}\nnothing was changed", escape_line(comment))?;
        }
        Ok(())
    }
}
