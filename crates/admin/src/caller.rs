//! Callers of the admin port, and their roles.

use std::sync::Arc;

use serde::Serialize;

/// Permissions of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Reads and dry runs.
    Viewer,
    /// Everything, changes included.
    Operator,
}

/// A caller, by its token or, where no tokens are configured, by the name it states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The author in the audit log.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
}
