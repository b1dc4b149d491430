//! Parts that any long-running server needs and that know nothing of rate limits.
//!
//! - [`backoff`]: pauses between attempts, with jitter.
//! - [`bounded_file`]: reading of files with bounds.
//! - [`http_client`]: the HTTP client of commands, webhooks and exporters.
//! - [`log_budget`]: a bound on log lines that other servers cause.
//! - [`outage`]: one log line when an outage begins, and one when it ends.
//! - [`panics`]: containment of panics, and the alarm for those that escape.
//! - [`redact`]: showing errors, what other servers send, and values that may be secrets.
//! - [`slices`]: background work that delays other threads little.
//! - [`task_slot`]: one background task at a time.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub mod backoff;
pub mod bounded_file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
pub mod http_client;
pub mod log_budget;
pub mod outage;
pub mod panics;
pub mod redact;
pub mod slices;
pub mod task_slot;
