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
    /// Versions before that may still be in use. They are dropped by whoever replaces the rules: a large tree takes too
    /// long to take apart for a request to do it.
    retired: Mutex<Vec<Arc<Rules>>>,
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
        self.retired.lock().extend(replaced);
        self.drop_unused();
    }

    /// Drops the versions before that no request uses any more, and says whether those were all.
    pub fn drop_unused(&self) -> bool {
        let mut retired = self.retired.lock();
        // Nobody can get hold of them any more, so what only this list holds is held by nobody.
        let (in_use, unused): (Vec<_>, Vec<_>) =
            retired.drain(..).partition(|rules| Arc::strong_count(rules) > 1);
        let was_all = in_use.is_empty();
        *retired = in_use;
        drop(retired);
        drop(unused);
        was_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_a_request_still_uses_is_not_left_to_it_to_drop() {
        let snapshot = Snapshot::default();
        let first = Arc::new(Rules::default());
        let count = Arc::downgrade(&first);
        snapshot.replace(first);
        let in_use = snapshot.in_force();
        for _ in 0..3 {
            snapshot.replace(Arc::default());
        }
        assert!(!snapshot.drop_unused());
        drop(in_use);
        assert_eq!(count.strong_count(), 1, "the request dropped it");
        assert!(snapshot.drop_unused());
        assert_eq!(count.strong_count(), 0, "it is kept for ever");
    }
}
