//! Settings of the process: its HTTP port, threads, shutdown and log.

use std::{net::SocketAddr, num::NonZeroUsize, thread, time::Duration};

use clap::{ArgAction, Args};
use tracing::level_filters::LevelFilter;

use super::{
    error::Problem,
    parsers::{address, boolean, count, duration, level, positive_duration},
    tls::{HttpTlsFlags, TlsSettings},
};
use crate::tracing::{LogFormat, LogSettings};

/// Settings of the process, passed down whole: a new setting changes this file and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Time that a client has for its TLS handshake; then for the HTTP/2 preface and for the rest of each gRPC call that
    /// has begun, or for the head of each HTTP/1 request.
    pub handshake_timeout: Duration,
    /// Threads that serve gRPC calls.
    pub workers: NonZeroUsize,
    /// Time after the first signal during which everything is still served while health checks fail.
    pub drain_delay: Duration,
    /// Time after that for calls in flight to finish.
    pub drain_timeout: Duration,
    /// Level and format of the log.
    pub log: LogSettings,
    /// Names of the metrics on `/metrics`.
    pub metric_names: MetricNames,
}

/// HTTP port with `/json`, `/healthcheck` and `/metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Listen address.
    pub address: SocketAddr,
    /// TLS of the port.
    pub tls: Option<TlsSettings>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Process")]
pub(super) struct ProcessFlags {
    /// Address of the HTTP port: /json, /healthcheck, /metrics.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080", value_parser = address)]
    pub(super) http_address: SocketAddr,
    #[command(flatten)]
    http_tls: HttpTlsFlags,
    /// Time that a client has for its TLS handshake; then for the HTTP/2 preface, or the head of each HTTP/1 request; and
    /// for the rest of a gRPC call that has begun.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    handshake_timeout: Duration,
    /// Threads that serve gRPC calls. Default: the number of processors.
    #[arg(long, value_name = "COUNT", value_parser = count::<NonZeroUsize>)]
    workers: Option<NonZeroUsize>,
    /// Time after SIGTERM during which everything is still served while health checks fail, so that callers move to
    /// another instance.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    drain_delay: Duration,
    /// Time after the drain delay for calls in flight to finish.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    drain_timeout: Duration,
    /// Least severe level that is logged: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    log_level: LevelFilter,
    /// Format of a log line.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Metrics also under the names of envoyproxy/ratelimit.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    reference_metrics: bool,
}

/// Names of the metrics for Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricNames {
    /// Names of tollgate.
    #[default]
    Own,
    /// Names of tollgate and of envoyproxy/ratelimit.
    WithLegacy,
}

impl ProcessFlags {
    pub(super) fn resolve(self) -> Result<(HttpSettings, ProcessSettings), Problem> {
        let http = HttpSettings { address: self.http_address, tls: self.http_tls.resolve()? };
        let processors = || thread::available_parallelism().ok();
        let process = ProcessSettings {
            handshake_timeout: self.handshake_timeout,
            workers: self.workers.or_else(processors).unwrap_or(NonZeroUsize::MIN),
            drain_delay: self.drain_delay,
            drain_timeout: self.drain_timeout,
            log: LogSettings { level: self.log_level, format: self.log_format },
            metric_names: if self.reference_metrics { MetricNames::WithLegacy } else { MetricNames::Own },
        };
        Ok((http, process))
    }
}
