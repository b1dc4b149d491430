//! StatsD exporter, with the metric names of envoyproxy/ratelimit, so that its dashboards keep working.
//!
//! Every interval, a separate thread reads the deltas of all counters ([`tollgate_metrics`]), formats them as lines of plain
//! StatsD or DogStatsD (`lines`), packs the lines into packets (`packets`) and sends these (`socket`). A delta is confirmed
//! once the operating system has accepted its packet, and is part of the next interval otherwise: a slow or unreachable
//! server costs one log line, and no counts.

mod lines;
mod exporter;
mod packets;
mod rewrite;
mod settings;
mod socket;
mod target;

pub use self::{
    exporter::StatsdExporter,
    rewrite::{Rewrite, RewriteError},
    settings::{StatsdFormat, StatsdSettings},
    target::{Target, TargetError},
};
