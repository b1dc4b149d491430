//! tollgate: a gRPC rate-limit service for Envoy and Istio. This crate composes the crates in `crates/`, and is the
//! program.
//!
//! # Life of a request
//!
//! ```text
//! Envoy ── ShouldRateLimit ──> grpc ──> service ──> limiter ──> store ──> (Redis: EVALSHA | memory)
//!                                          │           │
//!                                          │           └─ rules: one immutable snapshot, loaded once per request
//!                                          └─ borrows the strings of the protobuf message
//! ```
//!
//! 1. [`serve::grpc`] reads the call, sheds it if it would miss its deadline, and measures it.
//! 2. [`serve::service`] decodes the message into [`descriptor`]s and rejects a malformed one.
//! 3. [`limiter`] applies the allow and deny lists ([`rules::Lists`]) and matches every descriptor against the
//!    [`rules`]. Each match is a *counter*: the rule, and the values that the rule leaves open. Counters are grouped by
//!    their *hash tag* ([`store::key`]).
//! 4. [`store`] decides each group in one atomic step, all groups concurrently. The [`algorithm`]s are pure functions;
//!    the memory store runs them, and the scripts in `lua/decide/` are their twins. Concurrent calls to Redis share a
//!    pipelined write, and cached verdicts need no call ([`store::redis`]).
//! 5. A counter that the store does not decide in time is decided by the limit's `on_store_error` policy, by default
//!    within this instance's share of the limit ([`limiter::Fallback`]).
//! 6. [`limiter`] folds the verdicts of the counters into one [`decision`], which is encoded as a response. Being over the limit is
//!    a value, never an error.
//!
//! [`directory`] reads and watches files of YAML, and [`config`] compiles them into rules; `xds` receives rules from a control
//! plane; [`control`] keeps versions of rules, lists and switches. [`bootstrap`] composes the parts. ARCHITECTURE.md has the
//! map of the crates.

// Numbers that a user or the wire states are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

// The crates below, under the names that tests, benchmarks and documentation use.
pub use tollgate_control as control;
pub use tollgate_core::{
    PathStep, RecordId, SyncMode, algorithm, ban, calendar, clock, descriptor, duration, lease, quota,
};
pub use tollgate_directory as directory;
pub use tollgate_fleet as fleet;
pub use tollgate_limiter::{self as limiter, decision, talkers};
pub use tollgate_metrics as metrics;
pub use tollgate_proto as proto;
pub use tollgate_rules::{self as rules, config};
pub use tollgate_runtime::{bounded_file, panics, redact};
pub use tollgate_serve as serve;
pub use tollgate_store as store;

pub mod settings;
pub mod bootstrap;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
