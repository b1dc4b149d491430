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

mod arrival;
mod backing;
mod balance;
mod connection;
mod delivery;
mod descriptors;
mod dispatch;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod health;
mod io;
mod listen;
mod occupancy;
mod patience;
mod ports;
mod reload;
mod rls;
mod rules;
mod run;
mod running;
mod signals;
mod start;
mod stores;
mod turns;
mod unary;
mod uptake;
mod worker;
mod workers;

pub use self::{
    health::{Phase, Readiness},
    run::{RunError, run},
    running::Running,
    start::{Server, StartError},
    worker::WorkerLost,
};

#[cfg(test)]
mod tests;
