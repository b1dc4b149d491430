//! Deadlines of calls.

use std::time::Duration;

/// Deadline of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The decision is due after this time, if the caller states one.
    At(Option<Duration>),
    /// No time is left to call the store: verdicts that are not cached are decided as while the store fails.
    Exceeded,
}

impl Deadline {
    /// Deadline of a caller that states none.
    pub const UNKNOWN: Self = Self::At(None);
}
