//! Compatibility with envoyproxy/ratelimit: its environment variables, and metrics under its names.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

pub mod stats;
pub mod variables;
