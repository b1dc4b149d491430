//! Policies for decisions while the store fails.

/// Policy for a counter that the store did not decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnStoreError {
    /// The instance enforces its share of the limit alone.
    #[default]
    Local,
    /// The request passes.
    Allow,
    /// The request is denied as over the limit.
    Deny,
    /// The request fails with an error, and the proxy's `failure_mode_deny` decides.
    Error,
}

impl OnStoreError {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Local, Self::Allow, Self::Deny, Self::Error];

    /// Value of the `on_store_error` key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}
