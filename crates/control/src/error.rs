//! Why a change was not made.

use super::Version;

/// Why a change was not made, or nothing can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Another version is current than the one that a change is based on.
    #[error("version {} is current by now, made by {}", .current.number, .current.author)]
    Stale {
        /// The version that is.
        current: Box<Version>,
    },
    /// The rules come from a directory, so they are not changed here.
    #[error("the rules come from files: they are changed there")]
    ReadOnly,
    /// More than is kept.
    #[error("there are {most} {what} already, the most that are kept")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are kept.
        most: usize,
    },
    /// Larger than what is kept.
    #[error("{what} may have {most} bytes at the most")]
    TooLarge {
        /// What is.
        what: &'static str,
        /// How many bytes it may have.
        most: usize,
    },
    /// The store did not answer, or refused; whether the change was made is unknown.
    #[error("the store of the rules does not answer: {0}")]
    Unavailable(String),
    /// What the store holds makes no sense.
    #[error("what the store holds makes no sense: {0}")]
    Garbled(String),
}

impl ControlError {
    /// The error's name in metrics and answers.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::ReadOnly => "read_only",
            Self::TooMany { .. } => "too_many",
            Self::TooLarge { .. } => "too_large",
            Self::Unavailable(_) => "unavailable",
            Self::Garbled(_) => "malformed_reply",
        }
    }
}
