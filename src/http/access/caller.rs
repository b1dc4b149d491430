//! Who asks.

use std::sync::Arc;

use serde::Serialize;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Role {
    /// Look, and try what changes nothing.
    Viewer,
    /// Change things too.
    Operator,
}

impl Role {
    /// The name that the token file uses.
    pub(in crate::http) const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }

    /// The role of that name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Viewer, Self::Operator].into_iter().find(|role| role.name() == name)
    }
}

/// Who asks, by the token that was shown; without tokens, whoever that says they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct Caller {
    /// The name that the audit log gets.
    pub(in crate::http) name: Arc<str>,
    /// What they may do.
    pub(in crate::http) role: Role,
}
