//! Overrides of rules: what operators set over one rule or one key of a rule, with or without an end.
//!
//! Instances share them in Redis, and each holds all of them. A change has a *revision*, which grows with time; an instance
//! fetches what has a later one than its own. What the store lost, the instances write back: the first one with a revision
//! above that of the store. A *lineage* distinguishes the states of two stores, and an *epoch* the restorations of one, after
//! each of which all instances fetch all again. With a file, an instance has its overrides also after a restart.

mod book;
mod entry;
mod journal;
mod replica;

pub(crate) use self::{
    book::{BookHead, OverrideBook, OverrideChange},
    replica::OverrideReplica,
};
pub use self::{
    entry::{OverrideEntry, OverrideError},
    journal::JournalError,
};
