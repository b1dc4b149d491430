//! Slow changes: cumulative sums of daily deviations.

/// Part of a day's deviation that is usual.
const ALLOWANCE: f64 = 0.08;
/// Sum of the rest at which there is a drift.
const THRESHOLD: f64 = 0.6;
/// Largest deviation of one day: a single day, such as a holiday, is no drift.
const MAX_DAY: f64 = 0.25;
/// Expected hits of a day below which it is not counted.
const MIN_DAY_HITS: f64 = 1_000.0;

/// Sums of a day in progress, and of the days before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Drift {
    pub(crate) up: f32,
    pub(crate) down: f32,
    pub(crate) observed: f64,
    pub(crate) expected: f64,
}

/// A completed day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Day {
    /// Whether the sum of deviations is beyond the threshold.
    pub(crate) is_drifting: bool,
    /// Whether the day itself was usual.
    pub(crate) is_usual: bool,
    /// Hits, and expected ones.
    pub(crate) observed: f64,
    pub(crate) expected: f64,
}

impl Drift {
    pub(crate) fn add(&mut self, observed: f64, expected: f64) {
        self.observed += observed;
        self.expected += expected;
    }

    /// Completes a day.
    pub(crate) fn complete_day(&mut self) -> Day {
        let (observed, expected) = (self.observed, self.expected);
        (self.observed, self.expected) = (0.0, 0.0);
        let deviation = match expected >= MIN_DAY_HITS {
            true => ((observed + 1.0) / (expected + 1.0)).ln().clamp(-MAX_DAY, MAX_DAY),
            false => 0.0,
        };
        self.up = (f64::from(self.up) + deviation - ALLOWANCE).max(0.0) as f32;
        self.down = (f64::from(self.down) - deviation - ALLOWANCE).max(0.0) as f32;
        let is_drifting = f64::from(self.up.max(self.down)) > THRESHOLD;
        Day { is_drifting, is_usual: deviation.abs() <= ALLOWANCE, observed, expected }
    }

    /// Begins anew.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}
