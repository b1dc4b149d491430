//! Settings of the log and of the trace exporter.

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

use crate::otlp::CollectorSettings;

/// Level and format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Least severe level that is logged.
    pub level: LevelFilter,
    /// Format of a line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Exporter of traces, and its sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// Where to.
    pub collector: CollectorSettings,
    /// Share of calls without a trace context that begin a trace, from 0 to 1.
    pub sample_ratio: f64,
}
