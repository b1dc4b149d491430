//! Sums of reports, in which old ones lose weight: of one instance, or shared by several.

use std::time::Duration;

use super::{Priority, SheddingPolicy};
use crate::clock::Timestamp;

/// Weighted sums of reports and requests, whose weights halve in every half-life. Those of several instances can be
/// added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UtilizationSums {
    /// Seconds in which utilization was reported.
    pub weight: f64,
    /// Utilization times weight.
    pub utilization: f64,
    /// Part of the requests that passed when the reported work was done, times weight.
    pub passed: f64,
    /// Requests of each priority.
    pub requested: [f64; Priority::COUNT],
}

/// Weight below which no utilization is known.
const MIN_WEIGHT: f64 = 1e-6;

#[allow(clippy::float_arithmetic)] // Measurements: an error of rounding does not matter.
impl UtilizationSums {
    /// The factor by which weights fall in `time`.
    pub fn decay(policy: &SheddingPolicy, time: Duration) -> f64 {
        (-time.as_secs_f64() / policy.half_life.as_secs_f64().max(MIN_WEIGHT)).exp2()
    }

    /// Returns the sums with all weights multiplied by `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            weight: self.weight * factor,
            utilization: self.utilization * factor,
            passed: self.passed * factor,
            requested: self.requested.map(|hits| hits * factor),
        }
    }

    /// Returns the sums of both.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        let mut requested = self.requested;
        requested.iter_mut().zip(other.requested).for_each(|(sum, hits)| *sum += hits);
        Self {
            weight: self.weight + other.weight,
            utilization: self.utilization + other.utilization,
            passed: self.passed + other.passed,
            requested,
        }
    }

    /// The smoothed utilization, if it was reported recently.
    pub fn smoothed(&self) -> Option<f64> {
        (self.weight > MIN_WEIGHT).then(|| self.utilization / self.weight)
    }

    /// The part of the requests that passed, smoothed in the same way.
    pub fn passed_part(&self) -> Option<f64> {
        (self.weight > MIN_WEIGHT).then(|| self.passed / self.weight)
    }

    /// The share of each priority in all requests; equal ones if there are none.
    pub fn shares(&self) -> [f64; Priority::COUNT] {
        let total: f64 = self.requested.iter().sum();
        if total > MIN_WEIGHT {
            self.requested.map(|hits| hits / total)
        } else {
            [1.0 / Priority::COUNT as f64; Priority::COUNT]
        }
    }
}

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
