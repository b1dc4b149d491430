//! Snapshot of the active rules, the lists and switches over them, and a companion such as their counters.

use std::{fmt, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use tollgate_core::clock::now_ms;

use super::{Lists, Overridden, OverriddenCounts, RuleOverrides, Rules, Switched};

/// Companion of one version of the rules, such as its counters: created, activated and dropped with it.
pub trait Companion: Default + fmt::Debug + Send + Sync + 'static {
    /// Creates the companion of `rules`.
    fn for_rules(rules: &Rules) -> Self;
}

impl Companion for () {
    fn for_rules(_: &Rules) -> Self {}
}

/// Receiver of changed lists, switches and overrides.
pub trait OverrideTarget: fmt::Debug + Send + Sync {
    /// Activates lists and switches for all later requests, over the active rules.
    fn set_lists(&self, lists: Arc<Lists>);

    /// Activates overrides of rules for all later requests, over the active rules, and returns what they do to these.
    fn override_rules(&self, overrides: Arc<RuleOverrides>) -> Arc<Overridden>;

    /// Counts of the active overrides over the active rules.
    fn overridden_counts(&self) -> OverriddenCounts;
}

/// The active version of the rules, if one was loaded, with its companion and the lists and switches over it.
///
/// A request loads it once and uses that version until its end.
#[derive(Debug, Default)]
pub struct Snapshot<C = ()> {
    current: ArcSwap<Version<C>>,
    /// Locked during an activation, so that no activation reverts another one.
    retired: Mutex<Retired<C>>,
}

/// Rules, lists, switches and overrides that are active together.
#[derive(Debug, Default)]
struct Version<C> {
    rules: Option<Arc<Rules>>,
    companion: Arc<C>,
    lists: Arc<Lists>,
    /// The switches of these rules.
    switched: Switched,
    rule_overrides: Arc<RuleOverrides>,
    /// The overrides of these rules.
    overridden: Arc<Overridden>,
}

/// Former versions that may still be in use. They are dropped by the task that replaces them, since dropping a large tree
/// takes too long for a request.
#[derive(Debug, Default)]
struct Retired<C> {
    versions: Vec<Arc<Version<C>>>,
    /// Rules that the current version does not hold.
    rules: Vec<Arc<Rules>>,
}

/// Guard of the version that was active when a request arrived.
///
/// Unlike a clone of the [`Arc`], it does not write to memory that all workers share, except from the ninth concurrent
/// guard of a thread on.
#[derive(Debug)]
pub struct SnapshotGuard<C = ()>(Guard<Arc<Version<C>>>);

/// Rules, lists and switches that decide a request.
#[derive(Clone, Copy, Debug)]
pub struct ActiveSet<'r, C = ()> {
    /// The rules.
    pub rules: &'r Rules,
    /// The lists over them.
    pub lists: &'r Lists,
    /// The switches of these rules.
    pub switched: &'r Switched,
    /// The overrides of these rules.
    pub overridden: &'r Overridden,
    /// The companion of these rules.
    pub companion: &'r C,
}

impl<C> SnapshotGuard<C> {
    /// The active set, if rules were loaded.
    pub fn get(&self) -> Option<ActiveSet<'_, C>> {
        let Version { rules, companion, lists, switched, rule_overrides: _, overridden } = &**self.0;
        rules.as_deref().map(|rules| ActiveSet {
            rules,
            lists,
            switched,
            overridden,
            companion: &**companion,
        })
    }
}

impl<C: Companion> OverrideTarget for Snapshot<C> {
    fn set_lists(&self, lists: Arc<Lists>) {
        Self::set_lists(self, lists);
    }

    fn override_rules(&self, overrides: Arc<RuleOverrides>) -> Arc<Overridden> {
        Self::override_rules(self, overrides)
    }

    fn overridden_counts(&self) -> OverriddenCounts {
        self.current.load().overridden.counts
    }
}

impl<C: Companion> Snapshot<C> {
    /// Guards the active version for the duration of a request.
    pub fn active(&self) -> SnapshotGuard<C> {
        SnapshotGuard(self.current.load())
    }

    /// The active rules.
    pub fn load(&self) -> Option<Arc<Rules>> {
        self.current.load().rules.clone()
    }

    /// The active lists and switches.
    pub fn lists(&self) -> Arc<Lists> {
        Arc::clone(&self.current.load().lists)
    }

    /// The active rules, and what the active overrides do to them.
    pub fn load_overridden(&self) -> Option<(Arc<Rules>, Arc<Overridden>)> {
        let active = self.current.load();
        active.rules.clone().map(|rules| (rules, Arc::clone(&active.overridden)))
    }

    /// The active overrides of rules.
    pub fn rule_overrides(&self) -> Arc<RuleOverrides> {
        Arc::clone(&self.current.load().rule_overrides)
    }

    /// Activates `rules` for all later requests, under the active lists, switches and overrides.
    pub fn replace(&self, rules: Arc<Rules>) {
        let companion = Arc::new(C::for_rules(&rules));
        self.change(|current| {
            let switched = Switched::new(&rules, &current.lists);
            let overridden = Arc::new(Overridden::new(&rules, &current.rule_overrides, now_ms()));
            Version { rules: Some(rules), companion, switched, overridden, ..current }
        });
    }

    /// Activates lists and switches for all later requests, over the active rules.
    pub fn set_lists(&self, lists: Arc<Lists>) {
        self.change(|current| {
            let switched =
                current.rules.as_deref().map(|rules| Switched::new(rules, &lists)).unwrap_or_default();
            Version { lists, switched, ..current }
        });
    }

    /// Activates overrides of rules for all later requests, over the active rules, and returns what they do to these.
    pub fn override_rules(&self, rule_overrides: Arc<RuleOverrides>) -> Arc<Overridden> {
        let mut resolved = Arc::default();
        self.change(|current| {
            let rules = current.rules.as_deref();
            let overridden = rules.map(|rules| Overridden::new(rules, &rule_overrides, now_ms()));
            let overridden = Arc::new(overridden.unwrap_or_default());
            resolved = Arc::clone(&overridden);
            Version { rule_overrides, overridden, ..current }
        });
        resolved
    }

    /// Replaces the active version.
    fn change(&self, next: impl FnOnce(Version<C>) -> Version<C>) {
        let mut retired = self.retired.lock();
        let current = self.current.load_full();
        let Version { rules, companion, lists, switched, rule_overrides, overridden } = &*current;
        let copy = Version {
            rules: rules.clone(),
            companion: Arc::clone(companion),
            lists: Arc::clone(lists),
            switched: switched.clone(),
            rule_overrides: Arc::clone(rule_overrides),
            overridden: Arc::clone(overridden),
        };
        drop(current);
        let next = Arc::new(next(copy));
        let before = self.current.swap(Arc::clone(&next));
        let is_active = |rules: &Arc<Rules>| next.rules.as_ref().is_some_and(|next| Arc::ptr_eq(rules, next));
        retired.rules.extend(before.rules.clone().filter(|rules| !is_active(rules)));
        retired.versions.push(before);
        drop((retired, next));
        self.drop_unused();
    }

    /// Drops former versions that are no longer in use. Returns whether none is left.
    pub fn drop_unused(&self) -> bool {
        let mut retired = self.retired.lock();
        let versions = take_unused(&mut retired.versions);
        // The rules that these hold are active, or held by the list as well.
        drop(versions);
        let rules = take_unused(&mut retired.rules);
        let is_empty = retired.versions.is_empty() && retired.rules.is_empty();
        drop(retired);
        drop(rules);
        is_empty
    }
}

/// Removes the elements that only this list holds: no request can obtain them any more.
fn take_unused<T>(retired: &mut Vec<Arc<T>>) -> Vec<Arc<T>> {
    let (in_use, unused) = retired.drain(..).partition(|version| Arc::strong_count(version) > 1);
    *retired = in_use;
    unused
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn generation(generation: u64) -> Arc<Lists> {
        Arc::new(Lists::new(generation, [], []))
    }

    #[test]
    fn a_version_in_use_is_not_dropped_by_the_request() {
        let snapshot = Snapshot::<()>::default();
        let first = Arc::new(Rules::default());
        let count = Arc::downgrade(&first);
        snapshot.replace(first);
        let in_use = snapshot.active();
        for _ in 0..3 {
            snapshot.set_lists(Arc::default());
            snapshot.replace(Arc::default());
        }
        assert!(!snapshot.drop_unused());
        drop(in_use);
        assert!(count.strong_count() > 0, "the request dropped it");
        assert!(snapshot.drop_unused());
        assert_eq!(count.strong_count(), 0, "it leaks");
    }

    #[test]
    fn rules_and_lists_are_replaced_independently() {
        let snapshot = Snapshot::<()>::default();
        snapshot.set_lists(generation(1));
        assert!(snapshot.active().get().is_none(), "there are no rules yet");
        let rules = Arc::new(Rules::default());
        snapshot.replace(Arc::clone(&rules));
        assert_eq!(snapshot.active().get().map(|active| active.lists.generation), Some(1));
        snapshot.set_lists(generation(2));
        assert!(Arc::ptr_eq(&snapshot.load().expect("active"), &rules));
        assert_eq!(snapshot.lists().generation, 2);
        drop(rules);
        assert!(snapshot.drop_unused(), "active rules are not kept as retired ones");
    }

    #[test]
    fn replacing_rules_does_not_revert_lists() {
        let snapshot = Snapshot::<()>::default();
        let last = 500;
        thread::scope(|scope| {
            scope.spawn(|| (1..=last).for_each(|number| snapshot.set_lists(generation(number))));
            scope.spawn(|| (1..=last).for_each(|_| snapshot.replace(Arc::default())));
        });
        assert_eq!(snapshot.lists().generation, last);
        assert!(snapshot.load().is_some());
    }
}
