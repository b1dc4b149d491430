//! What becomes of a request while the store does not decide.

/// How a counter is decided that the store did not decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnStoreError {
    /// By this instance alone, which enforces its share of the limit.
    #[default]
    Local,
    /// It passes.
    Allow,
    /// It is over the limit.
    Deny,
    /// Not at all: the request fails, and the proxy's `failure_mode_deny` decides.
    Error,
}

impl OnStoreError {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::Local, Self::Allow, Self::Deny, Self::Error];

    /// The name that the configuration uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}
