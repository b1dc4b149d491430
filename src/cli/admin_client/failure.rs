//! Why something was not done.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::plain::{line, plain};
use crate::control::Version;

/// Why something was not done. Tells no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The API refused.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Nobody answers there.
    #[error("{url} does not answer: {reason}")]
    Unreachable {
        /// Where.
        url: String,
        /// What happened.
        reason: String,
    },
    /// What answers is no admin API.
    #[error("{url} answers, but not as the admin API does (HTTP status {status})")]
    Stranger {
        /// Where.
        url: String,
        /// The status.
        status: u16,
    },
    /// A file can't be used.
    #[error("{name}: {reason}")]
    File {
        /// The flag that names it, or its path.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The rules in a directory are not valid; the report of `check`.
    #[error("{0}")]
    Invalid(String),
}

/// What the API says when it refuses.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    code: String,
    message: String,
    /// What is wrong with rules, as `check` prints it.
    report: Option<String>,
    #[serde(default)]
    reasons: Vec<Reason>,
    /// The version that is current.
    current: Option<Version>,
    /// All that was said.
    #[serde(skip)]
    said: Value,
}

/// Why rules are likely a mistake.
#[derive(Debug, Deserialize)]
struct Reason {
    domain: String,
    message: String,
}

impl Refusal {
    /// What is said, if it is a refusal.
    pub(super) fn read(said: Value) -> Option<Self> {
        let refusal = Self::deserialize(said.get("error")?).ok()?;
        Some(Self { said, ..refusal })
    }
}

impl Failure {
    /// The same for machines, as the API writes it.
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
            f.write_str("\n--force applies it all the same")?;
        }
        if let Some(Version { number, comment, .. }) = &self.current {
            write!(f, "\nversion {number} says: {}\nnothing was changed", line(comment))?;
        }
        Ok(())
    }
}
