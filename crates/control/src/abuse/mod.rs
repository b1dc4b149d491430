//! Entries of the adaptive deny list, which no operator made.
//!
//! They are stored apart from those of operators, within a bound of their own, so that they never take an operator's room
//! nor replace or shorten an operator's entry. An entry is added by a step that is atomic in the store: of instances that add
//! the same key, one succeeds. Its time to live doubles with each remembered offence of the key.

pub(crate) mod book;
pub(crate) mod handle;
mod model;

pub use self::model::{Added, AutomaticEntry, AutomaticMode, Exchange, NewEntry};
