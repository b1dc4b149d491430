//! Outcome of a run.

/// Outcome of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) decisions: u64,
    pub(crate) admitted: u64,
    /// Hits that one counter of all regions admits.
    pub(crate) ideal: u64,
    pub(crate) loan_requests: u64,
    pub(crate) granted: u64,
    /// The most hits over the limit at any time.
    pub(crate) over: u64,
    pub(crate) true_over: u64,
    /// The most by which the effective limits of all regions exceeded the limit, where clocks are comparable.
    pub(crate) over_committed: u64,
    /// Hits over the limit that mishaps allow at most.
    pub(crate) allowed: u64,
    /// Hits offered in all by minute, with those admitted and those of the ideal counter.
    pub(crate) minutes: Vec<[u64; 3]>,
    /// Requests that waited and were admitted, and how long in all, in microseconds.
    pub(crate) waited: u64,
    pub(crate) wait: u64,
    pub(crate) longest_wait: u64,
}

impl Report {
    /// Part of the ideal admissions that were not made.
    pub(crate) fn lost(&self) -> f64 {
        1.0 - self.admitted as f64 / self.ideal.max(1) as f64
    }
}
