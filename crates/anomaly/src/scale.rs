//! Learned spread of a series around its expectation.

/// Quantile of deviations that the spread fits, and its distance in a normal distribution.
const QUANTILE: f64 = 0.99;
const QUANTILE_DEVIATIONS: f64 = 2.576;

/// Pace of learning: the step of the logarithm of the spread for each observation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) step: f64,
    /// For that many observations at first, a larger step.
    pub(crate) first_observations: u32,
    pub(crate) first_step: f64,
}

const INITIAL: f64 = 0.2;
const MIN: f64 = 0.01;
const MAX: f64 = 2.0;

/// A relative spread, so that 99 % of the observations lie within 2.576 deviations: an online quantile by stochastic
/// approximation, on which one outlier has the same small effect however large it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    value: f32,
    observations: u32,
}

impl Default for Spread {
    fn default() -> Self {
        Self { value: INITIAL as f32, observations: 0 }
    }
}

impl Spread {
    pub(crate) fn from_parts(value: f32, observations: u32) -> Self {
        let value = if value.is_finite() { value.clamp(MIN as f32, MAX as f32) } else { INITIAL as f32 };
        Self { value, observations }
    }

    pub(crate) const fn parts(self) -> (f32, u32) {
        (self.value, self.observations)
    }

    pub(crate) fn get(self) -> f64 {
        f64::from(self.value)
    }

    pub(crate) const fn observations(self) -> u32 {
        self.observations
    }

    /// Learns from an observation, with its distance from the expectation in deviations.
    pub(crate) fn learn(&mut self, distance: f64, pace: &Pace) {
        let is_first = self.observations < pace.first_observations;
        let step = if is_first { pace.first_step } else { pace.step };
        let outside = f64::from(u8::from(distance > QUANTILE_DEVIATIONS));
        let value = self.get() * (step * (outside - (1.0 - QUANTILE))).exp();
        self.value = value.clamp(MIN, MAX) as f32;
        self.observations = self.observations.saturating_add(1);
    }
}
