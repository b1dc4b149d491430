//! The rules in force, and what operators set over them.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::{Overrides, Rules, Switched};

/// Holds what is in force: a version of the rules, or none before the first one is loaded, and the lists and switches
/// over it.
///
/// A request loads it once and sees that version to its end.
#[derive(Debug, Default)]
pub struct Snapshot {
    current: ArcSwap<Version>,
    /// Held by who puts something in force, so that nobody puts back what another one replaced.
    retired: Mutex<Retired>,
}

/// Rules and overrides that are in force together.
#[derive(Debug, Default)]
struct Version {
    rules: Option<Arc<Rules>>,
    overrides: Arc<Overrides>,
    /// What the overrides make of these rules.
    switched: Switched,
}

/// What was in force before and may still be in use. It is dropped by whoever replaces it: a large tree takes too long
/// to take apart for a request to do it.
#[derive(Debug, Default)]
struct Retired {
    versions: Vec<Arc<Version>>,
    /// Rules that no current version has.
    rules: Vec<Arc<Rules>>,
}

/// What was in force when a request came, kept for as long as it needs it.
///
/// Unlike a clone of the [`Arc`], it is made without writing to memory that all workers share, but for the ninth and
/// further ones of a thread.
#[derive(Debug)]
pub struct InForce(Guard<Arc<Version>>);

/// What a request is decided by.
#[derive(Clone, Copy, Debug)]
pub struct Enforced<'r> {
    /// The rules.
    pub rules: &'r Rules,
    /// The lists over them.
    pub overrides: &'r Overrides,
    /// The switches of these rules.
    pub switched: &'r Switched,
}

impl InForce {
    /// What a request is decided by, if any rules were loaded.
    pub fn get(&self) -> Option<Enforced<'_>> {
        let Version { rules, overrides, switched } = &**self.0;
        rules.as_deref().map(|rules| Enforced { rules, overrides, switched })
    }
}

impl Snapshot {
    /// What is in force now, to be held for the time of a request.
    pub fn in_force(&self) -> InForce {
        InForce(self.current.load())
    }

    /// The rules in force now.
    pub fn load(&self) -> Option<Arc<Rules>> {
        self.current.load().rules.clone()
    }

    /// The lists and switches in force now.
    pub fn overrides(&self) -> Arc<Overrides> {
        Arc::clone(&self.current.load().overrides)
    }

    /// Puts `rules` in force for every request from now on, under the lists and switches that are.
    pub fn replace(&self, rules: Arc<Rules>) {
        let mut retired = self.retired.lock();
        let before = self.put_in_force(Some(rules), self.overrides());
        retired.rules.extend(before.rules.clone());
        retired.versions.push(before);
        drop(retired);
        self.drop_unused();
    }

    /// Puts lists and switches in force for every request from now on, over the rules that are.
    pub fn override_with(&self, overrides: Arc<Overrides>) {
        let mut retired = self.retired.lock();
        retired.versions.push(self.put_in_force(self.load(), overrides));
        drop(retired);
        self.drop_unused();
    }

    /// Gives back what was in force before.
    fn put_in_force(&self, rules: Option<Arc<Rules>>, overrides: Arc<Overrides>) -> Arc<Version> {
        let switched = rules.as_deref().map(|rules| Switched::new(rules, &overrides)).unwrap_or_default();
        self.current.swap(Arc::new(Version { rules, overrides, switched }))
    }

    /// Drops what was in force before and no request uses any more, and says whether that was all.
    pub fn drop_unused(&self) -> bool {
        let mut retired = self.retired.lock();
        let versions = take_unused(&mut retired.versions);
        // What these hold is held by the list too, where it is not in force still.
        drop(versions);
        let rules = take_unused(&mut retired.rules);
        let was_all = retired.versions.is_empty() && retired.rules.is_empty();
        drop(retired);
        drop(rules);
        was_all
    }
}

/// Takes out what only this list holds: nobody can get hold of it any more, so it is held by nobody.
fn take_unused<T>(retired: &mut Vec<Arc<T>>) -> Vec<Arc<T>> {
    let (in_use, unused) = retired.drain(..).partition(|version| Arc::strong_count(version) > 1);
    *retired = in_use;
    unused
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn generation(generation: u64) -> Arc<Overrides> {
        Arc::new(Overrides::new(generation, [], []))
    }

    #[test]
    fn a_version_that_a_request_still_uses_is_not_left_to_it_to_drop() {
        let snapshot = Snapshot::default();
        let first = Arc::new(Rules::default());
        let count = Arc::downgrade(&first);
        snapshot.replace(first);
        let in_use = snapshot.in_force();
        for _ in 0..3 {
            snapshot.override_with(Arc::default());
            snapshot.replace(Arc::default());
        }
        assert!(!snapshot.drop_unused());
        drop(in_use);
        assert!(count.strong_count() > 0, "the request dropped it");
        assert!(snapshot.drop_unused());
        assert_eq!(count.strong_count(), 0, "it is kept for ever");
    }

    #[test]
    fn rules_and_overrides_are_replaced_each_without_the_other() {
        let snapshot = Snapshot::default();
        snapshot.override_with(generation(1));
        assert!(snapshot.in_force().get().is_none(), "there are no rules yet");
        let rules = Arc::new(Rules::default());
        snapshot.replace(Arc::clone(&rules));
        assert_eq!(snapshot.in_force().get().map(|enforced| enforced.overrides.generation()), Some(1));
        snapshot.override_with(generation(2));
        assert!(Arc::ptr_eq(&snapshot.load().expect("in force"), &rules));
        assert_eq!(snapshot.overrides().generation(), 2);
        drop(rules);
        assert!(snapshot.drop_unused(), "rules in force are not kept as if they were not");
    }

    #[test]
    fn who_replaces_rules_does_not_put_back_the_overrides_before() {
        let snapshot = Snapshot::default();
        let last = 500;
        thread::scope(|scope| {
            scope.spawn(|| (1..=last).for_each(|number| snapshot.override_with(generation(number))));
            scope.spawn(|| (1..=last).for_each(|_| snapshot.replace(Arc::default())));
        });
        assert_eq!(snapshot.overrides().generation(), last);
        assert!(snapshot.load().is_some());
    }
}
