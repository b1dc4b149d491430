//! Ranges around an expectation, on scales on which the variance does not depend on it.

/// Width of the bands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sensitivity {
    /// Large deviations only.
    Low,
    #[default]
    Medium,
    /// Smaller deviations, at the price of more false alarms.
    High,
}

impl Sensitivity {
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Standard deviations from the expectation to the band's edge.
    const fn deviations(self) -> f64 {
        match self {
            Self::Low => 7.0,
            Self::Medium => 5.5,
            Self::High => 4.5,
        }
    }

    /// Least distance from the expectation to the band's edge, relative to it.
    const fn relative(self) -> f64 {
        match self {
            Self::Low => 0.5,
            Self::Medium => 0.3,
            Self::High => 0.2,
        }
    }

    /// Least distance of the denied share to the band's edge.
    const fn share(self) -> f64 {
        match self {
            Self::Low => 0.1,
            Self::Medium => 0.05,
            Self::High => 0.03,
        }
    }
}

/// Standard deviations of a learned spread by which a usual peak or trough may be exceeded.
const EXTREME_DEVIATIONS: f64 = 3.0;

/// Further standard deviations to the band's edge of a share, whose noise has a longer tail.
const MORE_SHARE_DEVIATIONS: f64 = 1.0;

/// Least distance of a count above the expectation to the band's edge, in hits of a window.
const MIN_EXCESS_HITS: f64 = 100.0;

/// Part of the deviations that suffices if hours in a row are beyond it.
pub(crate) const RUN_PART: f64 = 0.65;

/// Part of the distance to the band's edge within which an anomaly ends.
const END_PART: f64 = 0.7;

/// Range of an observation that is usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Band {
    pub(crate) low: f64,
    pub(crate) expected: f64,
    pub(crate) high: f64,
}

impl Band {
    /// Whether a value is well within the upper part.
    pub(crate) fn is_well_below(&self, value: f64) -> bool {
        value <= self.expected + END_PART * (self.high - self.expected)
    }

    /// Whether a value is well within the lower part.
    pub(crate) fn is_well_above(&self, value: f64) -> bool {
        value >= self.expected - END_PART * (self.expected - self.low)
    }

    /// The band of a part of the time.
    pub(crate) fn per(&self, minutes: f64) -> Self {
        let minutes = minutes.max(1.0);
        Self { low: self.low / minutes, expected: self.expected / minutes, high: self.high / minutes }
    }
}

/// Expected hits of a window: by interpolation, without the usual bursts of an hour, and with all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedHits {
    pub(crate) low: f64,
    pub(crate) mid: f64,
    pub(crate) high: f64,
    /// Usual extremes of a window of this length, if they are known.
    pub(crate) peak: f64,
    pub(crate) trough: f64,
}

/// Standard deviation of the root of a count: 1/2 by chance, and more by a relative spread of its rate.
fn root_deviation(expected: f64, spread: f64) -> f64 {
    0.5 * (spread * spread).mul_add(expected, 1.0).sqrt()
}

/// Distance between a count and its expectation in units of the deviation.
pub(crate) fn count_distance(observed: f64, expected: f64, spread: f64) -> f64 {
    (observed.sqrt() - expected.sqrt()).abs() / root_deviation(expected, spread)
}

/// Band of a count; with a `part` below 1, the narrower one for a run of observations.
pub(crate) fn count_band(expected: &ExpectedHits, spread: f64, sensitivity: Sensitivity, part: f64) -> Band {
    let (deviations, relative) = (part * sensitivity.deviations(), sensitivity.relative());
    let edge = |around: f64, deviations: f64| {
        let root = deviations.mul_add(root_deviation(around, spread), around.sqrt()).max(0.0);
        root * root
    };
    let extreme = 1.0 + relative.max(EXTREME_DEVIATIONS * spread);
    let high = edge(expected.high, deviations)
        .max(expected.high * (1.0 + relative))
        .max(expected.peak * extreme)
        .max(expected.high + MIN_EXCESS_HITS);
    let low =
        edge(expected.low, -deviations).min(expected.low * (1.0 - relative)).min(expected.trough / extreme);
    Band { low, expected: expected.mid, high }
}

/// The arcsine scale of shares.
pub(crate) fn angle(share: f64) -> f64 {
    share.clamp(0.0, 1.0).sqrt().asin()
}

/// The share at an angle.
pub(crate) fn share_at(angle: f64) -> f64 {
    let root = angle.clamp(0.0, std::f64::consts::FRAC_PI_2).sin();
    root * root
}

/// Standard deviation of the angle of a share of `hits`.
fn angle_deviation(hits: f64, spread: f64) -> f64 {
    0.5 * spread.mul_add(spread, 1.0 / hits.max(1.0)).sqrt()
}

/// Distance between a share of `hits` and its expectation in units of the deviation.
pub(crate) fn share_distance(observed: f64, expected: f64, hits: f64, spread: f64) -> f64 {
    (angle(observed) - angle(expected)).abs() / angle_deviation(hits, spread)
}

/// Band of a share of `hits`: `expected` now, `high` in the adjacent hours, and its usual `peak`; `part` as for counts.
pub(crate) fn share_band(
    expected: f64,
    high: f64,
    peak: f64,
    hits: f64,
    spread: f64,
    sensitivity: Sensitivity,
    part: f64,
) -> Band {
    let deviations = part * (sensitivity.deviations() + MORE_SHARE_DEVIATIONS);
    let edge = deviations.mul_add(angle_deviation(hits, spread), angle(high));
    let by_peak = share_at(EXTREME_DEVIATIONS.mul_add(angle_deviation(hits, spread), angle(peak)));
    let high = share_at(edge).max(by_peak).max(peak.max(high) + sensitivity.share());
    Band { low: 0.0, expected, high }
}
