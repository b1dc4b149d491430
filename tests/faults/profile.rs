//! Duration and strictness of a scenario.

use std::time::Duration;

/// The length of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    /// Requests per second.
    pub(super) rate: u32,
    pub(super) before: Duration,
    pub(super) fault: Duration,
    /// The observation time after the fault is healed.
    pub(super) after: Duration,
    /// When callers give up.
    pub(super) deadline: Duration,
    /// The store timeout given to tollgate as a flag.
    pub(super) store_timeout: &'static str,
    /// The store timeout as a duration.
    pub(super) timeout: Duration,
    /// The p99 at which things are called normal.
    pub(super) normal_p99: Duration,
    judged: Judged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    /// By outcomes and times.
    Fully,
    /// By outcomes, since the machine has other things to do.
    ByOutcomes,
}

impl Profile {
    /// The length of the table, on a machine that has nothing else to do. Deadlines are Envoy's and tollgate's own.
    pub(super) const FULL: Self = Self {
        rate: 3_000,
        before: Duration::from_secs(5),
        fault: Duration::from_secs(10),
        after: Duration::from_secs(8),
        deadline: Duration::from_millis(20),
        store_timeout: "10ms",
        timeout: Duration::from_millis(10),
        normal_p99: Duration::from_millis(5),
        judged: Judged::Fully,
    };

    /// Short, and patient: the tests run beside each other.
    pub(super) const SHORT: Self = Self {
        rate: 300,
        before: Duration::from_millis(400),
        fault: Duration::from_millis(1_000),
        after: Duration::from_millis(400),
        deadline: Duration::from_secs(2),
        store_timeout: "150ms",
        timeout: Duration::from_millis(150),
        normal_p99: Duration::from_millis(500),
        judged: Judged::ByOutcomes,
    };

    pub(super) fn is_timed(&self) -> bool {
        self.judged == Judged::Fully
    }
}
