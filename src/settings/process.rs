//! The process itself: its HTTP port, its threads, its end, its log.

use std::{net::SocketAddr, num::NonZeroUsize, thread, time::Duration};

use clap::{ArgAction, Args, ValueEnum};
use tracing::level_filters::LevelFilter;

use super::{
    tls::HttpTlsFlags,
    value::{address, boolean, duration, level, positive_duration},
};

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The least severe level that is logged.
    pub level: LevelFilter,
    /// What a line looks like.
    pub format: LogFormat,
}

/// What a line of the log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Process")]
pub(super) struct ProcessFlags {
    /// Address of the HTTP side: /json, /healthcheck, /metrics.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080", value_parser = address)]
    pub(super) http_address: SocketAddr,
    #[command(flatten)]
    pub(super) http_tls: HttpTlsFlags,
    /// How long a client may take for its TLS handshake, then until HTTP/2 is opened, or until the head of a request of
    /// HTTP/1 is there; and for the rest of a gRPC call that has begun.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    pub(super) handshake_timeout: Duration,
    /// Threads that answer gRPC calls. Default: one for each processor.
    #[arg(long, value_name = "COUNT")]
    workers: Option<NonZeroUsize>,
    /// How long everything is still served once the process was told to stop, while health checks fail already: the time
    /// that callers need to notice and to turn to another instance.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub(super) drain_delay: Duration,
    /// How long calls in flight may take to finish after that.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(super) drain_timeout: Duration,
    /// Least severe level that is logged: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    log_level: LevelFilter,
    /// What a line of the log looks like.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Show metrics under the names of envoyproxy/ratelimit as well.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    reference_metrics: bool,
}

/// Names of the metrics for Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricNames {
    /// Our own.
    #[default]
    Own,
    /// Those of envoyproxy/ratelimit as well.
    WithLegacy,
}

impl ProcessFlags {
    pub(super) fn workers(&self) -> NonZeroUsize {
        self.workers.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }

    pub(super) const fn metric_names(&self) -> MetricNames {
        match self.reference_metrics {
            true => MetricNames::WithLegacy,
            false => MetricNames::Own,
        }
    }

    pub(super) const fn log(&self) -> LogSettings {
        LogSettings { level: self.log_level, format: self.log_format }
    }
}
