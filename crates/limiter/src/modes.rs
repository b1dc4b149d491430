//! Modes of the process.

/// Modes that apply to every rule of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// Nothing is denied; denials are only counted.
    pub shadow: bool,
    /// Every descriptor counts as a quota.
    pub quota: bool,
    /// The share of a limit, 0 to 1, above which hits count as near the limit in metrics.
    pub near_limit_ratio: f64,
}

impl Default for Modes {
    fn default() -> Self {
        Self { shadow: false, quota: false, near_limit_ratio: 0.8 }
    }
}
