//! Records of a region in its control store.

/// Record that a region keeps for instances that start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionRecord {
    /// The region's tables that may count.
    Tables,
    /// The primary region by the last table, and whether the own region waits to become it.
    Primary,
}

impl RegionRecord {
    /// Name of its key.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Tables => "region-tables",
            Self::Primary => "region-primary",
        }
    }
}
