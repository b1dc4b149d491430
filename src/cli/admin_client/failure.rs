//! Errors of a call.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::plain::{line, plain};
use tollgate_control::Version;

/// Error of a call. Contains no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Rejected by the API.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No response.
    #[error("{url} is unreachable: {reason}")]
    Unreachable {
        /// URL of the server.
        url: String,
        /// Reason.
        reason: String,
    },
    /// A response of another kind of server.
    #[error("unexpected response from {url} (HTTP status {status}); expected the admin API")]
    Stranger {
        /// URL of the server.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// An unusable file.
    #[error("{name}: {reason}")]
    File {
        /// Flag that names the file, or its path.
        name: String,
        /// Reason.
        reason: String,
    },
    /// Invalid rules in a directory, with the report of `check`.
    #[error("{0}")]
    Invalid(String),
}

/// Error response of the API.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    code: String,
    message: String,
    /// Problems of the rules, as `check` prints them.
    report: Option<String>,
    #[serde(default)]
    reasons: Vec<Reason>,
    /// The current version.
    current: Option<Version>,
    /// The whole response.
    #[serde(skip)]
    said: Value,
}

/// A guardrail that the rules violate.
#[derive(Debug, Deserialize)]
struct Reason {
    domain: String,
    message: String,
}

impl Refusal {
    /// Decodes an error response; `None` for any other.
    pub(super) fn read(said: Value) -> Option<Self> {
        let refusal = Self::deserialize(said.get("error")?).ok()?;
        Some(Self { said, ..refusal })
    }
}

impl Failure {
    /// The error as JSON, in the form of the API.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Refused(refusal) => refusal.said.clone(),
            Self::Invalid(report) => {
                json!({ "error": { "code": "invalid", "message": "the rules are not valid", "report": report } })
            }
            Self::Unreachable { .. } | Self::Stranger { .. } => {
                json!({ "error": { "code": "unreachable", "message": self.to_string() } })
            }
            Self::File { .. } => json!({ "error": { "code": "file", "message": self.to_string() } }),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = &self.report {
            return f.write_str(plain(report).trim_end());
        }
        write!(f, "refused ({}): {}", line(&self.code), line(&self.message))?;
        for Reason { domain, message } in &self.reasons {
            write!(f, "\n  {}: {}", line(domain), line(message))?;
        }
        if !self.reasons.is_empty() {
            f.write_str("\nuse --force to apply it anyway")?;
        }
        if let Some(Version { number, comment, .. }) = &self.current {
            write!(f, "\nversion {number}: {}\nnothing was changed", line(comment))?;
        }
        Ok(())
    }
}
