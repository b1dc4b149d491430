//! Settings of the StatsD exporter.

use std::time::Duration;

use super::{rewrite::Rewrite, target::Target};

/// Destination and format of exported metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdSettings {
    /// StatsD server.
    pub target: Target,
    /// Time between two exports, at least 100 ms.
    pub interval: Duration,
    /// Tags of every metric: distinct keys with their values, at most 512 bytes in total.
    pub tags: Vec<(String, String)>,
    /// Format of a line.
    pub format: StatsdFormat,
    /// Renamed metrics with additional tags; the first match applies. Only for [`StatsdFormat::Dogstatsd`].
    pub rewrites: Vec<Rewrite>,
}

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsdFormat {
    /// `NAME.__KEY=VALUE:1|c`: tags are part of the name.
    Plain,
    /// `NAME:1|c|#KEY:VALUE`, the format of the Datadog agent.
    Dogstatsd,
}
