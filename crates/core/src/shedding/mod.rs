//! Utilization shedding: requests for a service that reports a high utilization pass with a falling probability, those of
//! a low priority first.
//!
//! - [`Utilization`] is one report, [`Priority`] that of one request.
//! - [`UtilizationSums`] smooth the reports by a half-life in time; [`SharedSums`] adds up those of all instances, here or
//!   in Redis.
//! - [`SheddingController`] turns the sums into the part of all requests that passes, and that into [`PassRates`].
//! - [`SheddingGate`] is what requests use: a snapshot of the pass rates, and counts.
//! - [`SheddingInstance`] runs one instance's part of this, twice a second.
//!
//! Not to be confused with admission control, which protects tollgate itself.

mod controller;
mod gate;
mod sums;
#[cfg(test)]
mod tests;
mod utilization;

use std::time::Duration;

pub use self::{
    controller::{SheddingController, SheddingInstance},
    gate::{GateCounts, PassRates, Priority, SheddingGate, SheddingState},
    sums::{SharedSums, SheddingReading, UtilizationSums},
    utilization::{ReportError, Utilization},
};

/// Parameters of a rule that sheds by utilization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SheddingPolicy {
    /// Smoothed utilization that is aimed at, above 0 and below 1.
    pub target: f64,
    /// Time in which a report loses half of its weight.
    pub half_life: Duration,
    /// Part of the requests of each priority that always passes, 0 to 1.
    pub floor: f64,
    /// Time without reports after which the rule opens gradually.
    pub stale_after: Duration,
}

impl SheddingPolicy {
    /// Half-life where none is stated.
    pub const DEFAULT_HALF_LIFE: Duration = Duration::from_secs(3);
    /// Floor where none is stated.
    pub const DEFAULT_FLOOR: f64 = 0.01;
    /// Time until reports are stale where none is stated.
    pub const DEFAULT_STALE_AFTER: Duration = Duration::from_secs(10);
}
