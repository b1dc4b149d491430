//! The log, traces, and the export of metrics by StatsD. Metrics themselves are counted where they occur, by
//! `tollgate_metrics`.

// Times and sizes of messages in memory.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

pub mod log;
pub mod statsd;
pub mod traces;
