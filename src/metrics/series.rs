//! Every rule's series, and how many there may be.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use metrics::Counter;
use parking_lot::Mutex;

use super::{departed, striped::Striped};

/// Rules that have series of their own at the most.
pub(crate) const MOST_RULES: usize = 10_000;

/// Domains at the most whose other rules have series of their own, all of them together.
const MOST_OTHERS: usize = 1_000;

/// Paths with a request's values in them that metrics name at the most; what comes later is counted under the
/// rule's own path. Values are the caller's to choose.
const MOST_VALUES: usize = 1_000;

/// Bytes of all such paths with their domains: each is exported six times, and all of that is to stay below a megabyte.
const MOST_BYTES: usize = 64 << 10;

/// What stands for a rule, and for a domain, beyond that.
const OTHER: &str = "(other)";

/// What is counted of each rule, in this order.
pub(super) const KINDS: usize = 6;

/// What is counted under one path.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) domain: Box<str>,
    pub(super) path: Box<str>,
    /// The rule's own path, which may be another one than that with values.
    pub(super) rule: Box<str>,
    counts: [Arc<AtomicU64>; KINDS],
    /// What of that was told to who takes changes.
    told: [AtomicU64; KINDS],
}

/// What series are of; each has a bound of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// A rule.
    Rule,
    /// Rules beyond the most.
    Others,
    /// A rule's path with values in it.
    Values,
}

/// Domain, path and rule. Two rules may have one path, where it has values of one of them: each counts for itself, and
/// the page has the sum.
type Key = (Box<str>, Box<str>, Box<str>);

/// Where the series are found, and how many there are of each.
#[derive(Debug, Default)]
struct Registry {
    series: BTreeMap<Key, Arc<Series>>,
    rules: usize,
    others: usize,
    values: usize,
    /// Bytes of the domains and paths of those with values.
    bytes: usize,
}

static ALL: Mutex<Registry> =
    Mutex::new(Registry { series: BTreeMap::new(), rules: 0, others: 0, values: 0, bytes: 0 });

/// Whether a path with values found no room since it was last made.
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// Whether a rule has series of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It has.
    Own,
    /// It shares them with others of its domain, or of all, for want of room.
    Shared,
}

impl Series {
    fn new(domain: &str, path: &str, rule: &str) -> Self {
        let (counts, told) = Default::default();
        Self { domain: domain.into(), path: path.into(), rule: rule.into(), counts, told }
    }

    /// Something that counts there.
    pub(super) fn counters(&self) -> Arc<Striped<KINDS>> {
        Striped::new(self.counts.clone().map(Counter::from_arc))
    }

    /// What was counted there, as far as it was published.
    pub(super) fn counted(&self) -> [u64; KINDS] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// What was counted there and is not told yet to who takes changes.
    pub(super) fn untold(&self) -> [u64; KINDS] {
        let mut counted = self.counted();
        for (count, told) in counted.iter_mut().zip(&self.told) {
            *count = count.saturating_sub(told.load(Ordering::Relaxed));
        }
        counted
    }

    /// Notes that so much more of one kind was told.
    pub(super) fn tell(&self, at: usize, amount: u64) {
        if let Some(told) = self.told.get(at) {
            told.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Whether anything may still count there, or is about to.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.counts.iter().any(|count| Arc::strong_count(count) > 1)
    }

    fn of(&self) -> Of {
        match (&*self.path, &*self.rule) {
            (OTHER, OTHER) => Of::Others,
            (path, rule) if path == rule => Of::Rule,
            _ => Of::Values,
        }
    }

    fn bytes(&self) -> usize {
        self.domain.len().saturating_add(self.path.len())
    }
}

impl Registry {
    fn find(&self, domain: &str, path: &str, rule: &str) -> Option<Arc<Series>> {
        // One key of three parts can't be borrowed in parts; this is done once for a rule or a path.
        self.series.get(&(domain.into(), path.into(), rule.into())).map(Arc::clone)
    }

    fn add(&mut self, domain: &str, path: &str, rule: &str) -> Arc<Series> {
        let series = Arc::new(Series::new(domain, path, rule));
        self.note(&series);
        self.series.insert((domain.into(), path.into(), rule.into()), Arc::clone(&series));
        series
    }

    /// Counts one more.
    fn note(&mut self, series: &Series) {
        let count = match series.of() {
            Of::Rule => &mut self.rules,
            Of::Others => &mut self.others,
            Of::Values => {
                self.bytes = self.bytes.saturating_add(series.bytes());
                &mut self.values
            }
        };
        *count = count.saturating_add(1);
    }

    fn of_rule(&mut self, domain: &str, path: &str) -> (Arc<Series>, Room) {
        if let Some(known) = self.find(domain, path, path) {
            return (known, Room::Own);
        }
        if self.rules < MOST_RULES {
            return (self.add(domain, path, path), Room::Own);
        }
        if let Some(known) = self.find(domain, OTHER, OTHER) {
            return (known, Room::Shared);
        }
        let domain = if self.others < MOST_OTHERS { domain } else { OTHER };
        let found = self.find(domain, OTHER, OTHER);
        (found.unwrap_or_else(|| self.add(domain, OTHER, OTHER)), Room::Shared)
    }

    fn of_values(&mut self, domain: &str, path: &str, rule: &str) -> Option<Arc<Series>> {
        if let Some(known) = self.find(domain, path, rule) {
            return Some(known);
        }
        let bytes = self.bytes.saturating_add(domain.len()).saturating_add(path.len());
        (self.values < MOST_VALUES && bytes <= MOST_BYTES).then(|| self.add(domain, path, rule))
    }

    /// Makes room, where there is none left, by what those counted that have gone; and says which.
    fn tidy(&mut self, values_are_full: bool) -> Vec<Arc<Series>> {
        let (rules_are_full, others_are_full) = (self.rules >= MOST_RULES, self.others >= MOST_OTHERS);
        let mut gone = Vec::new();
        if !(rules_are_full || others_are_full || values_are_full) {
            return gone;
        }
        let mut series = std::mem::take(self).series;
        series.retain(|_, series| {
            let is_full = match series.of() {
                Of::Rule => rules_are_full,
                Of::Others => others_are_full,
                Of::Values => values_are_full,
            };
            let stays = !is_full || series.is_used();
            match stays {
                true => self.note(series),
                false => gone.push(Arc::clone(series)),
            }
            stays
        });
        self.series = series;
        gone
    }
}

/// The series of a rule, or those that it has to share.
pub(super) fn of_rule(domain: &str, path: &str) -> (Arc<Series>, Room) {
    ALL.lock().of_rule(domain, path)
}

/// The series of a rule's path with values, if there is room for it.
pub(super) fn of_values(domain: &str, path: &str, rule: &str) -> Option<Arc<Series>> {
    // Callers may send any number of values: those that find no room do not wait for each other.
    if IS_FULL.load(Ordering::Relaxed) {
        return None;
    }
    let found = ALL.lock().of_values(domain, path, rule);
    if found.is_none() {
        IS_FULL.store(true, Ordering::Relaxed);
    }
    found
}

/// Makes room for new rules and values if there is none left.
pub(super) fn tidy() {
    let gone = ALL.lock().tidy(IS_FULL.swap(false, Ordering::Relaxed));
    departed::note(gone);
}

/// All of them, by domain, path and rule.
pub(super) fn all() -> Vec<Arc<Series>> {
    ALL.lock().series.values().map(Arc::clone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is full, with what counts in each series.
    fn full() -> (Registry, Vec<Arc<Striped<KINDS>>>) {
        let mut registry = Registry::default();
        let used = (0..MOST_RULES).map(|number| {
            let (series, room) = registry.of_rule("edge", &number.to_string());
            assert_eq!(room, Room::Own);
            series.counters()
        });
        let used = used.collect();
        (registry, used)
    }

    /// Makes room until what has gone has left: who publishes all counts, as another test may, holds each for a moment.
    fn tidy_until(registry: &mut Registry, values_are_full: bool, has_left: impl Fn(&Registry) -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !has_left(registry) {
            assert!(std::time::Instant::now() < deadline, "it stays");
            registry.rules = MOST_RULES;
            registry.tidy(values_are_full);
            std::thread::yield_now();
        }
    }

    #[test]
    fn rules_beyond_the_most_share_the_series_of_their_domain() {
        let (mut registry, _used) = full();
        assert_eq!(registry.of_rule("edge", "7").1, Room::Own, "it has its place");
        for rule in ["new", "newer"] {
            let (series, room) = registry.of_rule("edge", rule);
            assert_eq!((&*series.domain, &*series.path, room), ("edge", OTHER, Room::Shared));
        }
        assert_eq!(&*registry.of_rule("mesh", "new").0.domain, "mesh");
        for number in 0..2 * MOST_OTHERS {
            let _ = registry.of_rule(&format!("domain {number}"), "new");
        }
        assert_eq!(&*registry.of_rule("one more", "new").0.domain, OTHER);
        assert_eq!(&*registry.of_rule("edge", "newest").0.domain, "edge");
        assert_eq!(registry.series.len(), MOST_RULES + MOST_OTHERS + 1);
    }

    #[test]
    fn rules_that_have_gone_make_room_when_there_is_none() {
        let (mut registry, mut used) = full();
        registry.tidy(false);
        assert_eq!(registry.of_rule("edge", "new").1, Room::Shared, "all are used");
        used.truncate(MOST_RULES - 2);
        tidy_until(&mut registry, false, |registry| registry.rules == MOST_RULES - 2);
        assert_eq!(registry.of_rule("edge", "new").1, Room::Own);
        assert_eq!(registry.of_rule("edge", "newer").1, Room::Own);
        assert_eq!(registry.of_rule("edge", "newest").1, Room::Shared);
        used.clear();
        let first = registry.find("edge", "7", "7").expect("known");
        registry.rules = 0;
        registry.tidy(false);
        assert!(registry.series.len() > MOST_RULES, "nothing goes while there is room");
        tidy_until(&mut registry, false, |registry| registry.series.len() == 2);
        let left: Vec<_> = registry.series.values().map(|series| &*series.path).collect();
        assert_eq!(left, [OTHER, "7"], "that which is about to count stays");
        assert_eq!((first.of(), registry.rules, registry.others), (Of::Rule, 1, 1));
    }

    #[test]
    fn domains_that_have_gone_make_room_for_the_others_of_new_ones() {
        let mut registry = Registry { rules: MOST_RULES, ..Registry::default() };
        for number in 0..=MOST_OTHERS {
            let _ = registry.of_rule(&format!("domain {number}"), "new");
        }
        assert_eq!(&*registry.of_rule("one more", "new").0.domain, OTHER);
        registry.tidy(false);
        registry.rules = MOST_RULES;
        assert_eq!(&*registry.of_rule("one more", "new").0.domain, "one more");
    }

    #[test]
    fn paths_with_values_are_bounded_in_number_and_in_bytes_and_go_with_their_rules() {
        let mut registry = Registry::default();
        let of = |registry: &mut Registry, path: &str| registry.of_values("d", path, "a");
        let used: Vec<_> = (0..MOST_VALUES)
            .map(|number| of(&mut registry, &format!("a_{number}")).expect("room").counters())
            .collect();
        assert!(of(&mut registry, "a_new").is_none());
        assert!(of(&mut registry, "a_7").is_some(), "it has its place");
        registry.tidy(true);
        assert!(of(&mut registry, "a_new").is_none(), "all are used");
        drop(used);
        registry.tidy(false);
        assert_eq!(registry.values, MOST_VALUES, "nobody asks for room");
        tidy_until(&mut registry, true, |registry| registry.series.is_empty());
        assert_eq!(registry.bytes, 0);
        assert!(of(&mut registry, &"a".repeat(MOST_BYTES)).is_none());
        assert!(of(&mut registry, "a_new").is_some());
    }
}
