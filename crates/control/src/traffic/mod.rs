//! Traffic of the fleet by minute, and baselines that one instance learns from it.
//!
//! The names of series, their baselines and the view of anomalies are opaque here.

mod handle;

use std::collections::BTreeMap;

/// Maximum length of the name of a series; longer ones are not counted.
pub const MAX_SERIES_NAME_BYTES: usize = 512;

/// Hits of one series in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesCounts {
    pub name: String,
    /// Decided hits.
    pub hits: u64,
    /// Hits over the limit.
    pub denied: u64,
}

/// Sums of a minute over the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MinuteTotals {
    /// Number of instances that reported the minute.
    pub reporters: usize,
    /// Number of running instances that did not.
    pub missing: usize,
    /// Hits and denied hits by the name of the series.
    pub counts: BTreeMap<String, (u64, u64)>,
}

/// Baselines by the name of the series.
pub type Baselines = BTreeMap<String, Vec<u8>>;
