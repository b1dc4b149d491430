//! Figures of traffic that the instances of a fleet share: a report of each, totals by time, and leases.
//!
//! - A *report* is a text that an instance stores every few seconds; it expires soon after the instance stops.
//! - *Totals* are sums over all instances, by intervals of the server's clock.
//! - A *lease* lets one instance do what must be done once.

mod handle;

use std::collections::BTreeMap;

/// Maximum size of a report.
pub const MAX_REPORT_BYTES: usize = 64 << 10;

/// Maximum number of totals of an interval that are written at once.
pub(crate) const MAX_TOTALS: usize = 64;

/// Sums by name.
pub type Totals = BTreeMap<String, u64>;

/// Report of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// Id of the instance.
    pub instance: String,
    /// The report and its age in milliseconds; `None` for an instance without one, such as one of an older release.
    pub report: Option<(u64, String)>,
}
