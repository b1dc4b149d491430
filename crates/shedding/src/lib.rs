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

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod controller;
mod gate;

use std::time::Duration;

use tollgate_core::clock::Timestamp;

pub use self::controller::{SheddingController, SheddingInstance};
pub use self::gate::{GateCounts, PassRates, Priority, SheddingGate, SheddingState};

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

/// Utilization of a service at one time, in 1/10,000; 10,000 is all of its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utilization(u16);

/// Error of a text that is no utilization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number from 0 to 1 such as `0.83`, `83%`, or an ORCA load report with a utilization")]
pub struct ReportError;

/// Metrics of an ORCA load report, the preferred one first, as gRPC's weighted round robin reads them (gRFC A58).
const ORCA_METRICS: [&str; 2] = ["application_utilization", "cpu_utilization"];

impl Utilization {
    /// The utilization at which all capacity is used.
    pub const FULL: Self = Self(10_000);

    /// Largest utilization; a service that reports more than its capacity counts as this.
    pub const MAX: Self = Self(20_000);

    /// Returns a utilization as a part of the capacity, at most [`Self::MAX`]; `None` for a negative number, or none.
    #[allow(clippy::float_arithmetic)] // A measurement, whose fourth digit does not matter.
    pub fn of_ratio(ratio: f64) -> Option<Self> {
        // A cast saturates.
        (ratio >= 0.0).then(|| Self((ratio * 10_000.0).round() as u16).min(Self::MAX))
    }

    fn of_units(units: u64) -> Self {
        u16::try_from(units).map_or(Self::MAX, Self).min(Self::MAX)
    }

    /// The utilization in 1/10,000, at most 20,000.
    pub const fn units(self) -> u16 {
        self.0
    }

    /// Reads the value of an entry that reports: the number itself, or the unit of the hits that came with it.
    ///
    /// Accepted are a number (`0.83`), a percentage (`83%`), a load report of ORCA as text or JSON, and `percent` and
    /// `per_mille`, with which `hits` is the number.
    ///
    /// # Errors
    /// [`ReportError`] for any other text.
    #[allow(clippy::float_arithmetic)]
    pub fn parse(value: &str, hits: u64) -> Result<Self, ReportError> {
        let value = value.trim();
        let parsed = match (value, value.strip_suffix('%')) {
            ("percent", _) => Some(Self::of_units(hits.saturating_mul(100))),
            ("per_mille", _) => Some(Self::of_units(hits.saturating_mul(10))),
            (_, Some(percent)) => number(percent).and_then(|percent| Self::of_ratio(percent / 100.0)),
            (value, None) => number(value).or_else(|| orca(value)).and_then(Self::of_ratio),
        };
        parsed.ok_or(ReportError)
    }
}

/// Reads a decimal number; not `inf` or `nan`, nor one of many digits.
fn number(text: &str) -> Option<f64> {
    const MAX_BYTES: usize = 32;
    let text = text.trim();
    let is_number =
        text.len() <= MAX_BYTES && text.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    text.parse().ok().filter(|number: &f64| is_number && number.is_finite())
}

/// Reads the utilization of an ORCA load report: `TEXT cpu_utilization=0.3,…` or `JSON {"cpu_utilization": 0.3,…}`, with
/// or without the word before it. A metric that is 0 or absent is not reported.
fn orca(report: &str) -> Option<f64> {
    const MAX_REPORT_BYTES: usize = 4_096;
    if report.len() > MAX_REPORT_BYTES {
        return None;
    }
    let mut reported = ORCA_METRICS.iter().filter_map(|metric| value_of(report, metric)).peekable();
    let first = reported.peek().copied()?;
    reported.find(|value| *value > 0.0).or(Some(first))
}

/// The number of a metric in a report: after its name as a whole word, quotes and one `:` or `=`.
fn value_of(report: &str, metric: &str) -> Option<f64> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-');
    let after = report.match_indices(metric).find_map(|(at, _)| {
        let before = report.get(..at)?;
        let rest = report.get(at.saturating_add(metric.len())..)?;
        let rest = rest.strip_prefix('"').unwrap_or(rest).trim_start();
        let rest = rest.strip_prefix([':', '='])?;
        (!before.ends_with(is_name)).then(|| rest.trim_start())
    })?;
    let end = after.find([',', '}', ' ', '\n']).unwrap_or(after.len());
    number(after.get(..end).unwrap_or_default())
}

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
    /// Returns the sums with the weights that they have after `time`, and those of an interval.
    fn plus(self, interval: &Self, time: Duration, policy: &SheddingPolicy) -> Self {
        let half_lives = time.as_secs_f64() / policy.half_life.as_secs_f64().max(MIN_WEIGHT);
        let factor = (-half_lives).exp2();
        let mut requested = self.requested.map(|hits| hits * factor);
        requested.iter_mut().zip(interval.requested).for_each(|(sum, hits)| *sum += hits);
        Self {
            weight: self.weight * factor + interval.weight,
            utilization: self.utilization * factor + interval.utilization,
            passed: self.passed * factor + interval.passed,
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
        self.sums = self.sums.plus(interval, time, policy);
        self.updated_at = Some(now);
        if interval.weight > 0.0 {
            self.reported_at = Some(now);
        }
        SheddingReading { sums: self.sums, report_age: self.reported_at.map(|at| now.since(at)) }
    }
}

#[cfg(test)]
mod tests;
