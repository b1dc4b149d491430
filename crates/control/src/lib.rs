//! What operators change while traffic flows, and who did: versions of the rules, lists, switches.
//!
//! ```text
//! admin API ──> Control ──> store (Redis | this process) ──> follow ──> rules in force, overrides in force
//! ```
//!
//! - A [`Version`] is a set of rule files that never changes. One of them is *current*; which one is moves by
//!   compare-and-set, so that two operators can't overwrite each other.
//! - The [`Runtime`] holds what is to take effect at once and mostly to end by itself: lists that allow or deny, and
//!   switches of single rules.
//! - Every change leaves an [`AuditEntry`].
//! - Every instance tells in an [`Instance`] what it enforces.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod audit;
pub mod bounds;
mod change;
mod error;
mod reconcile;
mod handle;
mod instance;
mod stored;
mod memory;
pub mod metrics;
mod overrides;
mod redis;
mod runtime;
mod status;
mod backend;
mod version;

pub use self::reconcile::{ActiveDomains, Follower, Rules};
pub use self::{
    audit::{Action, AuditEntry},
    error::ControlError,
    handle::Control,
    instance::Instance,
    memory::FileError,
    overrides::{SwitchError, check_entry, check_switch, compile as compile_overrides},
    runtime::{List, ListEntry, Pair, Runtime, Switch, SwitchMode},
    status::{ControlPlane, Link, RulesSource, RulesState, RulesStatus},
    version::{Draft, Files, Version},
};
