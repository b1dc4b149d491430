//! What an operator chooses: command line and environment, turned into [`Settings`].
//!
//! A flag wins over its `TOLLGATE_*` variable, that one over the reference's variable, that one over the
//! default. The `*Flags` types hold what was said; [`Settings`] holds what runs, so nothing past this module
//! knows where a value came from.

mod admin;
mod answers;
mod cli;
mod environment;
mod error;
mod failure;
mod grpc;
mod load;
mod metrics_port;
mod migrate;
mod operator;
mod outcome;
mod process;
mod reference;
mod rules;
mod statsd;
mod store;
mod tls;
mod traces;
mod translation;
mod value;
mod xds;

use std::{net::SocketAddr, num::NonZeroUsize, time::Duration};

pub use self::{
    admin::AdminSettings,
    cli::{CheckFlags, ExplainFlags, parse},
    error::SettingsError,
    failure::FailureSettings,
    grpc::{GrpcListen, GrpcSettings},
    load::{KEY, LoadSettings, Pace, Target},
    metrics_port::MetricsSettings,
    migrate::{EnvironmentSource, MigrateSettings, ReportFormat},
    operator::{
        AdminUrl, BasedOn, Compared, ConnectionSettings, CounterTask, CounterWords, Identity, ListTask,
        OperatorSettings, Output, Rollback, RulesTask, SwitchTask, Task, Which,
    },
    outcome::{Judged, Outcome},
    process::{LogFormat, LogSettings, MetricNames},
    reference::catalogue::{Fate, Form, Variable, all as reference_variables},
    rules::RulesSettings,
    statsd::{StatsdFormat, StatsdSettings},
    store::StoreSettings,
    tls::{ClientSettings, Port, TlsFile, TlsSettings},
    traces::TraceSettings,
    translation::{Chosen, MASK, Translation},
    value::DescriptorWords,
    xds::{BackoffSettings, XdsSettings, XdsTlsSettings},
};
use crate::{
    limiter::Modes,
    service::{Answers, Bounds},
};

/// What the process is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Answer requests until told to stop.
    Serve(Box<Settings>),
    /// Say whether a configuration is good.
    Check(CheckFlags),
    /// Say which rules a request would meet.
    Explain(ExplainFlags),
    /// Say how another server is replaced.
    Migrate(MigrateSettings),
    /// Put load on a server.
    Load(LoadSettings),
    /// Ask a running server what an operator may ask.
    Operate(OperatorSettings),
}

/// Everything that `tollgate serve` needs to know. `Debug` shows no secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where the rules are, and how to read them.
    pub rules: RulesSettings,
    /// Where counters live.
    pub store: StoreSettings,
    /// What happens while the store does not decide.
    pub failure: FailureSettings,
    /// The gRPC side.
    pub grpc: GrpcSettings,
    /// Where `/json`, `/healthcheck` and `/metrics` listen.
    pub http_address: SocketAddr,
    /// The TLS of that port.
    pub http_tls: Option<TlsSettings>,
    /// A port for metrics alone, if there is one.
    pub metrics: Option<MetricsSettings>,
    /// Where operators look, if anywhere.
    pub admin: Option<AdminSettings>,
    /// Whether the keys that ask the most are kept track of.
    pub top_talkers: bool,
    /// How long a client may take until it is of use: its TLS handshake; then the opening of HTTP/2 and the rest of each
    /// call that has begun, or the head of each request of HTTP/1.
    pub handshake_timeout: Duration,
    /// Threads that answer gRPC calls.
    pub workers: NonZeroUsize,
    /// How long everything is still served once the process was told to stop, while health checks fail already.
    pub drain_delay: Duration,
    /// How long calls in flight may take to finish after that.
    pub drain_timeout: Duration,
    /// How answers look.
    pub answers: Answers,
    /// The largest request that is looked at.
    pub bounds: Bounds,
    /// Modes of the whole process.
    pub modes: Modes,
    /// Where traces go, if anywhere.
    pub traces: Option<TraceSettings>,
    /// Where counts are sent, if anywhere.
    pub statsd: Option<StatsdSettings>,
    /// What is logged, and how.
    pub log: LogSettings,
    /// Which names `/metrics` has.
    pub metric_names: MetricNames,
    /// What was set for the reference and has no effect here, to be told once the log works.
    pub notices: Vec<String>,
}
