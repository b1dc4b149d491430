//! Composition root: assembles the server from settings, starts it, and shuts it down in order.
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

pub use self::{
    metrics::catalogue,
    run::{RunError, run},
    running::Running,
    start::StartError,
    workers::WorkerLost,
};

#[cfg(test)]
mod tests;
