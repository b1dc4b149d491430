//! Settings: flags and environment variables.
//!
//! ```text
//! environment ─ reference (variables of envoyproxy/ratelimit) ─┐
//!             └ TOLLGATE_* ────────────────────────────────────┴─> words of a command line ── clap ──> Settings
//! ```
//!
//! A flag overrides its `TOLLGATE_*` variable, which overrides the variable of envoyproxy/ratelimit, which overrides the
//! default. [`Settings`] is the flags of `tollgate serve`, parsed; the sections of a part of the program are declared there.

mod command_line;
mod environment;
mod error;
mod rules;
#[cfg(test)]
mod tests;

use std::{num::NonZeroUsize, thread, time::Duration};

use clap::{ArgAction::Set, Args};
use tollgate_admin::AdminSettings;
use tollgate_flags::{count, duration};
use tollgate_fleet::WebhookSettings;
use tollgate_limiter::{Modes, StoreErrorSettings};
#[cfg(feature = "regions")]
use tollgate_regions::{PeerSettings, RegionSettings};
use tollgate_serve::net::ConnectionSettings;
use tollgate_serve::{grpc::GrpcSettings, http::HttpSettings, service::ResponseOptions};
use tollgate_store::StoreSettings;
use tollgate_telemetry::{log::LogSettings, statsd::StatsdSettings, traces::TraceSettings};

pub use self::command_line::{Command, collects, command, parse, served, serving};
pub use self::{environment::variable, error::SettingsError, rules::RulesSettings};
pub use tollgate_envoyproxy::variables::{Mapping, ValueType, Variable, all as reference_variables};
pub use tollgate_flags::environment::{Environment, EnvironmentFlags};
pub use tollgate_flags::{Problem, boolean};

/// Settings of `tollgate serve`, by section. `Debug` shows no secret.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Settings {
    /// Source of the rules, and its options.
    #[command(flatten)]
    pub rules: RulesSettings,
    /// Store of the counters.
    #[command(flatten)]
    pub store: StoreSettings,
    /// Decisions while the store fails.
    #[command(flatten)]
    pub on_store_error: StoreErrorSettings,
    /// gRPC port and connections.
    #[command(flatten)]
    pub grpc: GrpcSettings,
    /// Content of responses.
    #[command(flatten)]
    pub response: ResponseOptions,
    /// Modes that apply to every rule.
    #[command(flatten)]
    pub modes: Modes,
    /// HTTP port and the port for metrics only.
    #[command(flatten)]
    pub http: HttpSettings,
    /// Threads, shutdown, log and metric names.
    #[command(flatten)]
    pub process: ProcessSettings,
    /// Admin port.
    #[command(flatten)]
    pub admin: AdminSettings,
    /// Own region and the region table, if limits are enforced together.
    #[cfg(feature = "regions")]
    #[command(flatten)]
    pub region: Option<RegionSettings>,
    // Not in `region`: a group that may be left out can have no group in it.
    #[cfg(feature = "regions")]
    #[command(flatten)]
    peers: Option<PeerSettings>,
    /// Receiver of events, if there is one.
    #[command(flatten)]
    pub webhook: Option<WebhookSettings>,
    /// Exporter of traces.
    #[command(flatten)]
    pub traces: TraceSettings,
    /// StatsD exporter.
    #[command(flatten)]
    pub statsd: StatsdSettings,
    /// Variables without effect, to be logged once the log is set up.
    #[arg(skip)]
    pub notices: Vec<String>,
}

/// Settings of the process, passed down whole: a new setting changes this file and its use.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Process")]
pub struct ProcessSettings {
    /// Connections of every port.
    #[command(flatten)]
    pub connections: ConnectionSettings,
    /// Threads that serve gRPC calls; auto: the number of processors.
    #[arg(long, value_name = "COUNT|auto", default_value = "auto", value_parser = workers)]
    pub workers: NonZeroUsize,
    /// Time after SIGTERM during which everything is still served while health checks fail, so that callers move to
    /// another instance.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub drain_delay: Duration,
    /// Time after the drain delay for calls in flight to finish.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Level and format of the log.
    #[command(flatten)]
    pub log: LogSettings,
    /// Metrics also under the names of envoyproxy/ratelimit.
    #[arg(long, value_name = "BOOL", default_value = "false", action = Set, value_parser = boolean)]
    pub reference_metrics: bool,
}

impl Settings {
    /// The settings, checked where they concern several flags.
    fn resolved(mut self, notices: Vec<String>) -> Result<Self, SettingsError> {
        let checked = self.rules.check(&self.store).and_then(|()| self.http.check());
        let checked = checked
            .and_then(|()| self.admin.check())
            .and_then(|()| self.statsd.check().map_err(|reason| Problem::new("--statsd-rewrite", reason)));
        checked.map_err(|problem| vec![problem])?;
        self.rules.options = self.rules.reading.options();
        #[cfg(feature = "regions")]
        if let Some(region) = &mut self.region {
            region.peers = self.peers.take();
        }
        self.notices = notices;
        Ok(self)
    }
}

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    match text {
        "auto" => Ok(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        text => count(text),
    }
}
