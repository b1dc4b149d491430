//! Regions that enforce a limit together.

/// Regions whose hits a limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Each region enforces the whole limit.
    #[default]
    Regional,
    /// All regions enforce the limit together: each has a share.
    Global,
}

/// Region table that a configuration is used with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableSize {
    /// Not known, as where files are validated without a server.
    #[default]
    Unknown,
    /// There is no table.
    NoTable,
    /// A table of that number of regions.
    Regions(u32),
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 2] = [Self::Regional, Self::Global];

    /// Value of the `scope` key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regional => "regional",
            Self::Global => "global",
        }
    }
}
