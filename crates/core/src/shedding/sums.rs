//! Sums of reports, in which old ones lose weight.

use std::time::Duration;

use super::{Priority, SheddingPolicy};

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
        match total > MIN_WEIGHT {
            true => self.requested.map(|hits| hits / total),
            false => [1.0 / Priority::COUNT as f64; Priority::COUNT],
        }
    }
}
