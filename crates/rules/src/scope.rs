//! Regions that enforce a limit together.

/// Regions whose hits a limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Each region enforces the whole limit.
    #[default]
    Regional,
    /// All regions enforce the limit together: each has a share.
    Global,
    /// The primary region decides for all regions.
    Primary,
}

/// Decision of a hit that the own region's share denies while a loan request is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnShareExhausted {
    /// The hit is denied.
    #[default]
    Deny,
    /// The hit waits for the loan, within the caller's deadline.
    Wait,
}

impl OnShareExhausted {
    /// All decisions.
    pub const ALL: [Self; 2] = [Self::Deny, Self::Wait];

    /// Value of the `on_share_exhausted` key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Wait => "wait",
        }
    }
}

/// Region table that a configuration is used with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableSize {
    /// Not known, as where files are validated without a server.
    #[default]
    Unknown,
    /// There is no table.
    NoTable,
    /// A table.
    Regions {
        /// Number of regions that have a share.
        sharing: u32,
        /// Whether one of them is the primary region.
        has_primary: bool,
    },
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Regional, Self::Global, Self::Primary];

    /// Value of the `scope` key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regional => "regional",
            Self::Global => "global",
            Self::Primary => "primary",
        }
    }
}
