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
mod ban_list;
mod balance;
mod busy_time;
mod drain;
mod instance;
mod io;
mod listed_clients;
mod listener;
mod memory_gauge;
mod metrics;
mod ports;
mod regions;
mod removal;
mod reports;
mod rlimit;
mod routes;
mod rule_sources;
mod run;
mod services;
mod signals;
mod start;
mod stores;
mod tasks;
mod threshold_events;
mod workers;

pub use self::{
    drain::Running,
    metrics::catalogue,
    run::{RunError, run},
    start::{Server, StartError},
    workers::WorkerLost,
};

#[cfg(test)]
mod tests;
