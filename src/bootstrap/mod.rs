//! Composition root: assembles the server from settings, starts it, and shuts it down in order. `start.rs` has the order.
//!
//! ```text
//! main runtime: acceptor ──> balancer ──┬──> worker 0: its own runtime, service and store
//!               HTTP port               └──> worker n
//! config thread: changed rules ──> snapshot, one swap
//! ```
//!
//! A worker is a thread with a single-threaded runtime that owns its connections until they close, so no request ever
//! crosses threads.

mod activation;
mod components;
mod metrics;
mod ports;
mod regions;
mod reports;
mod rule_sources;
mod run;
mod running;
mod start;
mod stores;
mod workers;

pub use self::components::ComponentFailure;
pub use self::metrics::catalogue;
pub use self::run::{RunError, run};

use std::{io, sync::Arc};

use tollgate_control::{Control, RulesStatus};
use tollgate_fleet::FleetView;
use tollgate_limiter::ActiveRules;
use tollgate_rules::config::LoadError;
use tollgate_serve::grpc::connection::ReflectionError;
use tollgate_serve::net::{Port, tls::TlsError};
use tollgate_serve::{http::DescriptorError, readiness::Readiness};
use tollgate_store::StoreError;

/// Reason that a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rules are invalid; contains the whole report.
    #[error("no valid rules to start with:\n{0}")]
    Rules(#[from] LoadError),
    /// The store's settings are invalid.
    #[error("cannot open the store: {0}")]
    Store(#[from] StoreError),
    /// A setting is unusable, which the message names: a file, a table, an address.
    #[error("{0}")]
    Setting(String),
    /// A port cannot be opened.
    #[error("cannot listen on {address} (--{port}-address): {error}")]
    Listen {
        port: Port,
        /// Its configured address.
        address: String,
        #[source]
        error: io::Error,
    },
    /// The TLS files of a port are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system refused a resource, such as a thread.
    #[error("operating system error: {0}")]
    System(#[from] io::Error),
    /// A component ended before it was ready.
    #[error(transparent)]
    Component(#[from] ComponentFailure),
    /// The embedded message descriptors are broken.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// The embedded service descriptors are broken.
    #[error(transparent)]
    Reflection(#[from] ReflectionError),
}

impl From<String> for StartError {
    fn from(problem: String) -> Self {
        Self::Setting(problem)
    }
}

/// Rules, control store and readiness of the instance, and the traffic of the fleet as it sees it.
#[derive(Debug)]
struct Instance {
    readiness: Readiness,
    rules: Arc<ActiveRules>,
    control: Control,
    status: RulesStatus,
    fleet: FleetView,
}

#[cfg(test)]
mod tests;
