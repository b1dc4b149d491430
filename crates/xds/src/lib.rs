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

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::Uri;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tollgate_control::RulesStatus;
use tollgate_rules::config::{Loaded, Options};
use tollgate_runtime::backoff::{Backoff, Jitter};

use self::{connect::connect, session::Client, stream::StreamError};

pub use self::response::{HeldResources, Rejected};
pub use self::settings::{BACKOFF, BackoffSettings, XdsSettings};

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

/// A subscription to the rules of a control plane; ends on drop.
#[derive(Debug)]
pub struct Subscription {
    _task: AbortOnDropHandle<Infallible>,
    accepted: watch::Receiver<bool>,
}

impl Subscription {
    /// Subscribes to the rules of a server, on the current runtime.
    pub fn start(server: &Uri, settings: XdsSettings, rules: RulesSink) -> Self {
        let (accepted_sender, accepted) = watch::channel(false);
        let task = tokio::spawn(run(Client::new(server.clone(), settings, rules, accepted_sender)));
        Self { _task: AbortOnDropHandle::new(task), accepted }
    }

    /// Waits for the first accepted rules.
    pub async fn first_accepted(&mut self) {
        // The sender lives as long as the process.
        let _ = self.accepted.wait_for(|is_accepted| *is_accepted).await;
    }
}

/// Lifetime of a stream that resets the backoff: a control plane that closes streams sooner may be overloaded.
const STABLE_STREAM_TIME: Duration = Duration::from_secs(10);

/// Follows a control plane, and connects again when a stream ends.
async fn run(mut client: Client) -> Infallible {
    let settings = client.settings.backoff;
    let mut backoff = Backoff::with_jitter(settings.initial, settings.max, Jitter::Shorten(settings.jitter));
    loop {
        let reason = match connect(&client.server, &client.settings).await {
            Ok(connection) => {
                let opened = Instant::now();
                let error = stream::run(&mut client, connection).await;
                if opened.elapsed() >= STABLE_STREAM_TIME && !matches!(error, StreamError::NoResponse(_)) {
                    backoff.reset();
                }
                error.to_string()
            }
            Err(reason) => reason,
        };
        client.status.disconnected(reason);
        sleep(backoff.pause()).await;
    }
}
