//! From descriptors to a verdict: match, decide, fold.

use std::sync::Arc;

use crate::{rules::Snapshot, store::Store};

/// Modes that hold for every rule of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Nothing is denied; what would have been is counted.
    pub shadow: bool,
    /// Every descriptor counts as a quota.
    pub quota: bool,
}

/// Decides requests by the rules in force.
#[derive(Debug)]
pub struct Limiter {
    rules: Arc<Snapshot>,
    store: Store,
    modes: Modes,
}

impl Limiter {
    /// A limiter that enforces whatever `rules` holds at the time, counting in `store`.
    pub const fn new(rules: Arc<Snapshot>, store: Store, modes: Modes) -> Self {
        Self { rules, store, modes }
    }
}
