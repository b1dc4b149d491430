//! Settings: flags and environment variables, resolved into [`Settings`].
//!
//! ```text
//! environment ─ reference (variables of envoyproxy/ratelimit) ─┐
//!             └ TOLLGATE_* ────────────────────────────────────┴─> flags ── resolve ──> Settings
//! ```
//!
//! A flag overrides its `TOLLGATE_*` variable, which overrides the variable of envoyproxy/ratelimit, which overrides the
//! default. The `*Flags` types hold the input; [`Settings`] holds the result, so that no other module depends on the
//! source of a value. Each section has one file with its flags, its values and their resolution.

mod admin;
mod environment;
mod error;
mod flags;
mod grpc;
mod metrics_port;
mod on_store_error;
mod otlp;
mod admin_client;
mod parsers;
mod process;
mod regions;
mod reference;
mod response;
mod rules;
mod statsd;
mod store;
mod tls;
mod webhook;
mod xds;

use tollgate_limiter::Modes;

pub use self::{
    admin::AdminSettings,
    admin_client::{
        AdminClientSettings, AdminCommand, AdminUrl, BanModeArgument, BaseVersion, ClientIdentity,
        ConnectionSettings, CounterCommand, CounterSelector, DiffSource, EventsQuery, LimitArgument,
        ListCommand, OutputFormat, OverrideCommand, RegionsCommand, RuleQuery, RuleSelector, RulesCommand,
        SwitchCommand, TopQuery, VersionSelector,
    },
    environment::{Environment, EnvironmentFlags, variable},
    error::{Problem, SettingsError},
    flags::{CheckFlags, DocsPage, ExplainFlags, collects, command, parse, served, serving},
    grpc::{GrpcListen, GrpcSettings},
    metrics_port::MetricsSettings,
    on_store_error::StoreErrorSettings,
    parsers::{DescriptorArgument, boolean},
    process::{HttpSettings, MetricNames, ProcessSettings},
    reference::catalogue::{Mapping, ValueType, Variable, all as reference_variables},
    regions::{PeerSettings, RegionSettings},
    rules::RulesSettings,
    store::StoreSettings,
    tls::{ClientSettings, Port, TlsFile, TlsSettings},
    xds::{BackoffSettings, XdsSettings, XdsTlsSettings},
};
use crate::{
    fleet::WebhookSettings,
    service::{RequestBounds, ResponseOptions},
    statsd::StatsdSettings,
    tracing::TraceSettings,
};

/// A parsed command line.
#[derive(Debug)]
pub enum Command {
    /// Serve requests until a signal.
    Serve(Box<Settings>),
    /// Validate a configuration.
    Check(CheckFlags),
    /// Explain the rules that a request matches.
    Explain(ExplainFlags),
    /// Call the admin API of a running server.
    AdminClient(AdminClientSettings),
    /// Print the JSON Schema of the rules.
    Schema,
    /// Print the completions of a shell.
    Completions(clap_complete::Shell),
    /// Print the manual page, or write all to a directory.
    Man(Option<std::path::PathBuf>),
    /// Print a generated page of the documentation.
    Docs(DocsPage),
}

/// Settings of `tollgate serve`, by section. `Debug` shows no secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Source of the rules, and its options.
    pub rules: RulesSettings,
    /// Store of the counters.
    pub store: StoreSettings,
    /// Own region and the region table, if limits are enforced together.
    pub region: Option<RegionSettings>,
    /// Decisions while the store fails.
    pub on_store_error: StoreErrorSettings,
    /// gRPC port and connections.
    pub grpc: GrpcSettings,
    /// HTTP port.
    pub http: HttpSettings,
    /// Port for metrics only.
    pub metrics: Option<MetricsSettings>,
    /// Admin port.
    pub admin: Option<AdminSettings>,
    /// Whether top talkers are sampled.
    pub top_talkers: bool,
    /// Receiver of events, if there is one.
    pub webhook: Option<WebhookSettings>,
    /// Threads, shutdown, log and metric names.
    pub process: ProcessSettings,
    /// Content of responses.
    pub response: ResponseOptions,
    /// Bounds of a request.
    pub bounds: RequestBounds,
    /// Global modes of the limiter.
    pub modes: Modes,
    /// Exporter of traces.
    pub traces: Option<TraceSettings>,
    /// StatsD exporter.
    pub statsd: Option<StatsdSettings>,
    /// Variables without effect, to be logged once the log is set up.
    pub notices: Vec<String>,
}
