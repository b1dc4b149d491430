//! Errors of the control store.

use super::Version;

/// Error of a read or a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Another version is current than the one that a change is based on.
    #[error("version {} is current, made by {}; expected the version that the change is based on", .current.number, .current.author)]
    Stale {
        /// The current version.
        current: Box<Version>,
    },
    /// Rules from a directory or a control plane are changed there.
    #[error("the rules come from files; change them there")]
    ReadOnly,
    /// Another region writes the rules, lists and switches.
    #[error("region {region} writes the rules, lists and switches of all regions; change them there")]
    OtherRegion {
        /// Its name.
        region: String,
    },
    #[error("too many {what}; expected at most {most}")]
    TooMany { what: &'static str, most: usize },
    #[error("{what} is too large; expected at most {most} bytes")]
    TooLarge {
        what: &'static str,
        /// Maximum size in bytes.
        most: usize,
    },
    /// The store did not respond or refused; whether the change was made is unknown.
    #[error("the control store is unavailable: {0}")]
    Unavailable(String),
    #[error("malformed data in the control store: {0}")]
    Malformed(String),
}

/// Errors of a server for a missing permission, of the user directly or in a script, also in Redis 7 and before.
const ACL_ERRORS: [&str; 3] = ["NOPERM", "ACL failure in script", "can't run this command or subcommand"];

impl ControlError {
    /// Whether the server's ACL denies the operation.
    pub(crate) fn is_acl_denial(&self) -> bool {
        let Self::Unavailable(reason) = self else { return false };
        ACL_ERRORS.iter().any(|denial| reason.contains(denial))
    }

    /// Label of the error in metrics and responses.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::ReadOnly => "read_only",
            Self::OtherRegion { .. } => "other_region",
            Self::TooMany { .. } => "too_many",
            Self::TooLarge { .. } => "too_large",
            Self::Unavailable(_) => "unavailable",
            Self::Malformed(_) => "malformed_reply",
        }
    }
}
