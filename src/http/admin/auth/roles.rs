//! Callers and their roles.

use std::sync::Arc;

use serde::Serialize;

/// Permissions of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Role {
    /// Reads and dry runs.
    Viewer,
    /// Everything, changes included.
    Operator,
}

impl Role {
    /// The name in the token file.
    pub(in crate::http) const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }

    /// Parses a name of the token file.
    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Viewer, Self::Operator].into_iter().find(|role| role.name() == name)
    }
}

/// A caller, by its token or, where no tokens are configured, by the name it states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct Caller {
    /// The author in the audit log.
    pub(in crate::http) name: Arc<str>,
    pub(in crate::http) role: Role,
}
