//! xDS client: takes the rules from a control plane instead of a directory. State of the world over an aggregated stream
//! (ADS).
//!
//! ```text
//! control plane ── DiscoveryResponse ──> stream ──> response (decode, compile) ──> active rules
//!       ^                                   │
//!       └── ACK, or NACK with the report ───┘          connect: when there is no stream
//! ```
//!
//! - [`Subscription`] is the interface to the rest of the process.
//! - `client` opens one stream after the other, with backoff, and has the state that outlives a stream.
//! - `stream` is one stream, which leaves messages encoded; `pacing` bounds how often responses are processed.
//! - `response` compiles rules from the resources of a response (`resource`), on a blocking thread.
//!
//! Accepted rules stay active until others are accepted, whether or not the control plane can be reached.

mod client;
mod connect;
mod pacing;
pub(crate) mod metrics;
mod resource;
mod response;
mod stream;

use std::{convert::Infallible, sync::Arc};

use http::Uri;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tollgate_control::RulesStatus;
use tollgate_rules::config::{Loaded, Options};

use self::client::Client;
pub(crate) use self::response::{HeldResources, Rejected};
use crate::settings::XdsSettings;

/// Activates rules, or reports why they were rejected. Called on a blocking thread.
pub(crate) type ApplyRules = Arc<dyn Fn(Result<Loaded, Rejected>) + Send + Sync>;

/// Options for compiling rules, and callbacks.
#[derive(Clone)]
pub(crate) struct RulesSink {
    /// Options for compiling.
    pub(crate) options: Options,
    /// Receives the state of the connection.
    pub(crate) status: RulesStatus,
    /// Receives compiled rules and rejections.
    pub(crate) apply: ApplyRules,
    /// Called if the control plane is connected and sends no rules.
    pub(crate) on_silence: Arc<dyn Fn() + Send + Sync>,
    /// Resources to compile again, if an overlay may change; locked during a compilation and its activation.
    pub(crate) held: Arc<Mutex<HeldResources>>,
}

/// A subscription to the rules of a control plane; ends on drop.
#[derive(Debug)]
pub(crate) struct Subscription {
    _task: AbortOnDropHandle<Infallible>,
    accepted: watch::Receiver<bool>,
}

impl Subscription {
    /// Subscribes to the rules of a server, on the current runtime.
    pub(crate) fn start(server: &Uri, settings: XdsSettings, rules: RulesSink) -> Self {
        let (accepted_sender, accepted) = watch::channel(false);
        let task = tokio::spawn(Client::new(server.clone(), settings, rules, accepted_sender).run());
        Self { _task: AbortOnDropHandle::new(task), accepted }
    }

    /// Waits for the first accepted rules.
    pub(crate) async fn first_accepted(&mut self) {
        // The sender lives as long as the process.
        let _ = self.accepted.wait_for(|is_accepted| *is_accepted).await;
    }
}
