//! The composition root: puts the parts together, starts them, and ends them in order.
//!
//! ```text
//! main runtime: acceptor ──> balancer ──┬──> worker 0: its own runtime, service and store
//!               HTTP port               └──> worker n
//! config thread: a changed version ──> snapshot, one swap
//! ```
//!
//! A worker is a thread with a single-threaded runtime that keeps its connections for their whole life, so no
//! request ever crosses threads.

mod activation;
mod balance;
mod drain;
mod io;
mod listener;
mod memory_gauge;
mod ports;
mod rlimit;
mod rule_sources;
mod run;
mod signals;
mod start;
mod stores;
mod workers;

pub use self::{
    drain::Running,
    run::{RunError, run},
    start::{Server, StartError},
    workers::WorkerLost,
};

#[cfg(test)]
mod tests;
