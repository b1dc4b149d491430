//! Sums that several instances share, or one has alone.

use std::time::Duration;

use super::{SheddingPolicy, UtilizationSums};
use crate::clock::Timestamp;

/// Sums of reports that lose weight with time. `lua/utilization.lua` is the twin of [`SharedSums::add`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedSums {
    sums: UtilizationSums,
    updated_at: Option<Timestamp>,
    reported_at: Option<Timestamp>,
}

/// Sums as of one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SheddingReading {
    /// The sums of one instance, or of all instances.
    pub sums: UtilizationSums,
    /// Time since the last report; `None` if there was none.
    pub report_age: Option<Duration>,
}

impl SharedSums {
    /// Adds the sums of an interval that ends at `now`, and returns all of them.
    pub fn add(
        &mut self,
        policy: &SheddingPolicy,
        interval: &UtilizationSums,
        now: Timestamp,
    ) -> SheddingReading {
        let time = self.updated_at.map_or(Duration::ZERO, |at| now.since(at));
        self.sums = self.sums.scaled(UtilizationSums::decay(policy, time)).plus(interval);
        self.updated_at = Some(now);
        if interval.weight > 0.0 {
            self.reported_at = Some(now);
        }
        SheddingReading { sums: self.sums, report_age: self.reported_at.map(|at| now.since(at)) }
    }
}
