//! How long a caller waits for a decision.

use std::time::Duration;

/// How long a caller waits for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// So long, if that is known.
    Until(Option<Duration>),
    /// No time is left to ask the store: what is not known is decided as while the store fails.
    Hurried,
}

impl Patience {
    /// That of one who does not say.
    pub const UNKNOWN: Self = Self::Until(None);
}
