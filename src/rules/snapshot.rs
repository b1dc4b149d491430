//! The rules in force.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::Rules;

/// Holds the version of the rules that is in force, or none before the first one is loaded.
///
/// A request loads it once and sees that version to its end.
#[derive(Debug, Default)]
pub struct Snapshot {
    current: ArcSwapOption<Rules>,
    /// The version before. It is kept until the next one comes, so that a large tree is not taken apart by the
    /// last request that used it.
    previous: Mutex<Option<Arc<Rules>>>,
}

/// The rules that were in force when a request came, kept for as long as it needs them.
///
/// Unlike a clone of the [`Arc`], it is made without writing to memory that all workers share, but for the ninth and
/// further ones of a thread.
#[derive(Debug)]
pub struct InForce(Guard<Option<Arc<Rules>>>);

impl InForce {
    /// The rules, if any were loaded.
    pub fn get(&self) -> Option<&Rules> {
        self.0.as_deref()
    }
}

impl Snapshot {
    /// The rules in force now, to be held for the time of a request.
    pub fn in_force(&self) -> InForce {
        InForce(self.current.load())
    }

    /// The rules in force now.
    pub fn load(&self) -> Option<Arc<Rules>> {
        self.current.load_full()
    }

    /// Puts `rules` in force for every request from now on.
    pub fn replace(&self, rules: Arc<Rules>) {
        let replaced = self.current.swap(Some(rules));
        let before = std::mem::replace(&mut *self.previous.lock(), replaced);
        drop(before);
    }
}
