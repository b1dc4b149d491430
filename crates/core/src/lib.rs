//! The domain of tollgate without input or output: what a request states, what a limit is, and how each algorithm
//! decides.
//!
//! Everything here is a value or a pure function; time is an argument. The stores run the [`algorithm`]s (the memory
//! store directly, Redis as Lua twins), the rules refer to them.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub mod algorithm;
pub mod clock;
pub mod descriptor;
pub mod duration;
pub mod lease;
pub mod quota;
mod record_id;
mod sync_mode;

pub use self::{
    record_id::{PathStep, RecordId},
    sync_mode::SyncMode,
};
