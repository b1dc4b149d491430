//! tollgate: a gRPC rate-limit service for Envoy and Istio.
//!
//! # The life of a request
//!
//! ```text
//! Envoy ── ShouldRateLimit ──> service ──> limiter ──> store ──> (Redis: EVALSHA | memory)
//!                                 │            │
//!                                 │            └─ rules: one immutable snapshot, loaded once per request
//!                                 └─ borrows the strings of the protobuf message
//! ```
//!
//! 1. [`service`] turns the message into [`descriptor`]s and refuses what is malformed.
//! 2. [`limiter`] asks the lists that operators set at run time ([`rules::Overrides`]), and matches every descriptor against the [`rules`]. Each match is a *counter*: the rule, and the
//!    values that the rule left open. Counters are grouped by their *hash tag* ([`store::key`]).
//! 3. [`store`] decides each group in one atomic step, all groups in flight together. The [`algorithm`]s are
//!    pure functions; the memory store runs them, and the scripts in `lua/decide/` are their twins. Calls to Redis that meet
//!    travel together, and what a worker knows for sure is not asked ([`store::redis`]).
//! 4. What the store does not decide in time, each limit decides as it says: mostly by this instance's share of it, in a
//!    memory store beside ([`limiter::Fallback`]).
//! 5. [`limiter`] folds what each counter said into a [`verdict`]; [`service`] encodes it. Being over the limit
//!    is a value, never an error.
//!
//! [`config`] turns the YAML that users write into rules, and watches it; `xds` has rules of a control plane instead. [`net`] keeps the ports. [`bootstrap`] puts the
//! parts together.
//!
//! # Modules in reading order

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub use tollgate_core::{PathStep, RecordId, SyncMode, algorithm, clock, descriptor, duration, lease, quota};
pub mod proto;
pub mod service;
mod xds;
pub use tollgate_control as control;
pub use tollgate_limiter::{self as limiter, talkers as top, verdict};
pub use tollgate_metrics as metrics;
pub use tollgate_rules::{self as rules, config};
pub use tollgate_runtime::{panics, redact};
pub use tollgate_store as store;
pub mod net;
pub mod readiness;
pub mod grpc;
pub mod http;
pub mod settings;
pub mod cli;
pub mod legacy_stats;
pub mod statsd;
pub mod tracing;
pub mod bootstrap;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
