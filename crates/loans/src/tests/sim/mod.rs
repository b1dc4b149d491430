//! Deterministic simulation of one limit in several regions: traffic, messages, clocks and mishaps in one queue of events,
//! all from one seed.

mod cell;
mod oracle;
mod plan;
mod region;
mod tables;
mod world;

pub(crate) use self::plan::{Borrowing, Mishap, Plan, Traffic};
pub(crate) use self::world::{Report, run};
