//! Detection of unusual traffic: pure, deterministic functions of one count for each minute.
//!
//! - [`Season`](season): hourly levels of the last three weeks. The expectation for a minute is the median of the same
//!   hours of the week, interpolated between the middles of hours.
//! - [`band`]: the range around an expectation, on a variance-stabilised scale (Anscombe 1948: square root for counts,
//!   arcsine for shares), with a spread that [`scale`] learns as a quantile (Robbins and Monro 1951).
//! - [`alarm`]: an anomaly begins after several minutes outside, and ends after more minutes inside (hysteresis).
//! - [`drift`]: slow changes, by the cumulative sum of daily deviations (CUSUM, Page 1954).
//! - [`Series`] joins these for one rule or domain, and [`Watch`] has a bounded number of series.
//!
//! Comparable past periods, a band that widens with their dispersion, and past anomalies that weigh less are the approach
//! of Farrington et al. (1996) and Noufaily et al. (2013) for the early detection of outbreaks.
//!
//! Minutes and hours are those of UTC. A minute without counts is a gap, from which nothing is concluded.

#![allow(clippy::float_arithmetic)] // Statistics; no decision of a limit depends on them.
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::print_stdout))]

mod alarm;
mod anomaly;
mod band;
mod drift;
mod hour;
mod reading;
mod record;
mod scale;
mod season;
mod series;
mod watch;
mod window;

#[cfg(test)]
mod tests;

pub use self::{
    anomaly::{Anomaly, AnomalyEnd, AnomalyKind, Counts, Transition},
    band::Sensitivity,
    series::Series,
    watch::{MAX_SERIES, SeriesKey, SeriesStatus, Traffic, Watch, WatchEvent},
};
