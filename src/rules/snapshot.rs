//! The rules in force.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};

use super::Rules;

/// Holds the version of the rules that is in force, or none before the first one is loaded.
///
/// A request loads it once and sees that version to its end.
#[derive(Debug, Default)]
pub struct Snapshot {
    current: ArcSwapOption<Rules>,
}

impl Snapshot {
    /// The rules in force now.
    pub fn load(&self) -> Guard<Option<Arc<Rules>>> {
        self.current.load()
    }

    /// The rules in force now, to keep for longer than a request.
    pub fn load_full(&self) -> Option<Arc<Rules>> {
        self.current.load_full()
    }

    /// Puts `rules` in force for every request from now on.
    pub fn replace(&self, rules: Arc<Rules>) {
        self.current.store(Some(rules));
    }
}
