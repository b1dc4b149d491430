//! xDS client: takes the rules from a control plane instead of a directory. State of the world over an aggregated stream
//! (ADS).
//!
//! ```text
//! control plane ── DiscoveryResponse ──> stream ──> response (decode, compile) ──> active rules
//!       ^                                   │
//!       └── ACK, or NACK with the report ───┘          connect: when there is no stream
//! ```
//!
//! - [`Subscription`] is the interface to the rest of the process, and opens one stream after the other, with backoff.
//! - `session` is the state that outlives a stream.
//! - `stream` is one stream, which leaves messages encoded; `pacing` bounds how often responses are processed.
//! - `response` compiles rules from the resources of a response (`resource`), on a blocking thread.
//!
//! Accepted rules stay active until others are accepted, whether or not the control plane can be reached.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]
// Connections, futures and closures have none that would help.
#![allow(missing_debug_implementations)]

mod connect;
mod pacing;
pub mod metrics;
mod resource;
mod response;
mod session;
mod settings;
mod stream;
mod subscription;

use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_control::RulesStatus;
use tollgate_rules::config::{Loaded, Options};

pub use self::response::{HeldResources, Rejected};
pub use self::settings::{BACKOFF, BackoffSettings, XdsSettings};
pub use self::subscription::Subscription;

/// Activates rules, or reports why they were rejected. Called on a blocking thread.
pub type ApplyRules = Arc<dyn Fn(Result<Loaded, Rejected>) + Send + Sync>;

/// Options for compiling rules, and callbacks.
#[derive(Clone)]
pub struct RulesSink {
    /// Options for compiling.
    pub options: Options,
    /// Receives the state of the connection.
    pub status: RulesStatus,
    /// Receives compiled rules and rejections.
    pub apply: ApplyRules,
    /// Called if the control plane is connected and sends no rules.
    pub on_silence: Arc<dyn Fn() + Send + Sync>,
    /// Resources to compile again, if an overlay may change; locked during a compilation and its activation.
    pub held: Arc<Mutex<HeldResources>>,
}
