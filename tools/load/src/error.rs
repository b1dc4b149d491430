//! Reasons why a request of the load has no verdict.

use std::{fmt, time::Duration};

use tonic::Code;

/// Reason why a request has no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestError {
    pub(super) code: Code,
    message: String,
    /// Whether no response came in time.
    pub(super) is_timeout: bool,
}

impl RequestError {
    pub(super) fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), is_timeout: false }
    }

    /// A response that can't be understood.
    pub(super) fn malformed(message: &str) -> Self {
        Self::new(Code::Internal, message)
    }

    /// No response in time.
    pub(super) fn timed_out(timeout: Duration) -> Self {
        let message = format!("no response within {timeout:?}");
        Self { code: Code::DeadlineExceeded, message, is_timeout: true }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<h2::Error> for RequestError {
    fn from(error: h2::Error) -> Self {
        Self::new(Code::Unavailable, error)
    }
}
