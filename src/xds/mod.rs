//! The client of a control plane, which has the rules in place of a directory: xDS, the state of the world over an
//! aggregated stream.
//!
//! ```text
//! control plane ── DiscoveryResponse ──> stream ──> push (decode, compile) ──> rules in force
//!       ^                                   │
//!       └── ACK, or NACK with the report ───┘          connect, backoff, outage: when there is no stream
//! ```
//!
//! - [`Follower`] is what the rest of the process has of it.
//! - `client` goes from stream to stream, with a `backoff` in between; `outage` tells when there is none.
//! - `stream` is one conversation, `session` what is known from one to the next.
//! - `push` makes rules of a response, off the thread that the rest shares, which gets it `raw`.
//!
//! What was good once stays in force until something else is, whatever becomes of the control plane.

mod backoff;
mod client;
mod connect;
pub(crate) mod metrics;
mod outage;
mod push;
mod raw;
mod resource;
mod session;
mod stream;

use std::{convert::Infallible, sync::Arc};

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::client::Client;
pub(crate) use self::push::Refused;
use crate::{
    config::{Loaded, Options},
    control::RulesStatus,
    settings::XdsSettings,
};

/// Puts what was sent in force, or tells why it is not; called on a thread that may wait.
pub(crate) type Take = Arc<dyn Fn(Result<Loaded, Refused>) + Send + Sync>;

/// What rules are made of and where they go.
#[derive(Clone)]
pub(crate) struct Rules {
    /// How they are read.
    pub(crate) options: Options,
    /// Where it is told how the control plane is reached.
    pub(crate) status: RulesStatus,
    /// What takes them.
    pub(crate) take: Take,
    /// Called when the control plane is there and has nothing to say.
    pub(crate) has_none: Arc<dyn Fn() + Send + Sync>,
}

/// Follows a control plane until it is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    _task: AbortOnDropHandle<Infallible>,
    in_force: watch::Receiver<bool>,
}

impl Follower {
    /// Begins on the runtime that this is called on.
    pub(crate) fn begin(settings: XdsSettings, rules: Rules) -> Self {
        let (told, in_force) = watch::channel(false);
        let task = tokio::spawn(Client::new(settings, rules, told).run());
        Self { _task: AbortOnDropHandle::new(task), in_force }
    }

    /// Waits until something good was sent, for as long as that takes.
    pub(crate) async fn first(&mut self) {
        // What would tell it lives as long as the process.
        let _ = self.in_force.wait_for(|is_in_force| *is_in_force).await;
    }
}
