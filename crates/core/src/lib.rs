//! The domain model without input or output: descriptors of requests, quotas, and the definition of each algorithm.
//!
//! Everything here is a value or a pure function; time is an argument. The stores run the [`algorithm`]s: the memory
//! store directly, Redis as Lua twins. The rules refer to them.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub mod algorithm;
pub mod ban;
pub mod calendar;
pub mod clock;
pub mod descriptor;
pub mod duration;
mod enforced_share;
pub mod lease;
pub mod quota;
mod record_id;
pub mod region;
pub mod shedding;
mod sync_mode;
mod unit;

pub use self::{
    enforced_share::{CountedKey, EnforcedShare, NotAShare},
    record_id::{PathStep, RecordId},
    sync_mode::SyncMode,
};
