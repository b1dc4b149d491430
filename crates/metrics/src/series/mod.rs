//! Counters by domain and path, with a bound on their number.
//!
//! Paths are those of rules, and those of rules with a request's values in them. Values are the caller's to choose, so
//! that each kind of series has a bound, beyond which decisions are counted under a path that they share.

pub(super) mod evicted;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::striped_counter::{Sink, Striped};

/// Maximum number of rules that have series of their own.
pub const MAX_RULES: usize = 10_000;

/// Maximum number of domains whose further rules share a series of the domain.
const MAX_OTHERS: usize = 1_000;

/// Maximum number of paths with a request's values in them; later ones are counted under the rule's own path.
const MAX_VALUES: usize = 1_000;

/// Bytes of all such paths with their domains: each is exported six times, and all of that is to stay below a megabyte.
const MAX_BYTES: usize = 64 << 10;

/// Label value of the rules, and of the domains, beyond the bounds.
pub const OTHER: &str = "(other)";

/// Number of counters in each series.
pub const KINDS: usize = 6;

/// Counters of one path.
#[derive(Debug)]
pub struct Series {
    /// The domain.
    pub domain: Box<str>,
    /// The path.
    pub path: Box<str>,
    /// The rule's own path, which differs from a path with values.
    pub rule: Box<str>,
    counts: [Arc<AtomicU64>; KINDS],
    /// The part of the counts that was exported as deltas.
    exported: [AtomicU64; KINDS],
}

/// Count of one series that is part of a sum.
struct Summed {
    count: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
}

impl Sink for Summed {
    fn add(&self, amount: u64) {
        self.count.fetch_add(amount, Ordering::Relaxed);
        self.sum.fetch_add(amount, Ordering::Relaxed);
    }
}

/// Kinds of series; each has a bound of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesKind {
    /// A rule.
    Rule,
    /// The rules beyond the bound.
    Others,
    /// A rule's path with values in it.
    Values,
}

/// Domain, path and rule. Two rules may have one path, one after the other, as when a rule is stated for what was a value:
/// each has a series, and the page has the sum.
type Key = (Box<str>, Box<str>, Box<str>);

/// All series, and their number by kind.
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

/// Whether a path with values found no room since room was last made.
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// Whether a rule has a series of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The series is its own.
    Own,
    /// The series is shared with other rules of its domain, or of all domains, because there was no room.
    Shared,
}

/// Reason that a path with values has no series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSeries {
    /// There is no room.
    Full,
    /// The path is that of another rule in use, or has values of one.
    Taken,
}

impl Series {
    fn new(domain: &str, path: &str, rule: &str) -> Self {
        let (counts, exported) = Default::default();
        Self { domain: domain.into(), path: path.into(), rule: rule.into(), counts, exported }
    }

    /// Counters that are published to this series.
    pub fn counters(&self) -> Arc<Striped<KINDS>> {
        Striped::new(self.counts.clone().map(|count| -> Arc<dyn Sink> { count }))
    }

    /// Counters that are published to this series, and to these sums over several series.
    pub fn counters_in(&self, sums: &[Arc<AtomicU64>; KINDS]) -> Arc<Striped<KINDS>> {
        let mut sums = sums.iter();
        Striped::new(self.counts.clone().map(|count| -> Arc<dyn Sink> {
            match sums.next() {
                Some(sum) => Arc::new(Summed { count, sum: Arc::clone(sum) }),
                None => count,
            }
        }))
    }

    /// The counts, as of the last time that they were published.
    pub fn counted(&self) -> [u64; KINDS] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The part of the counts that was not yet exported as deltas.
    pub(super) fn not_exported(&self) -> [u64; KINDS] {
        let mut counted = self.counted();
        for (count, exported) in counted.iter_mut().zip(&self.exported) {
            *count = count.saturating_sub(exported.load(Ordering::Relaxed));
        }
        counted
    }

    /// Records that so much more of one counter was exported as a delta.
    pub(super) fn confirm(&self, at: usize, amount: u64) {
        if let Some(exported) = self.exported.get(at) {
            exported.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Whether the series is still counted in, or about to be.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.counts.iter().any(|count| Arc::strong_count(count) > 1)
    }

    fn kind(&self) -> SeriesKind {
        match (&*self.path, &*self.rule) {
            (OTHER, OTHER) => SeriesKind::Others,
            (path, rule) if path == rule => SeriesKind::Rule,
            _ => SeriesKind::Values,
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

    /// Adds to the number of series of its kind.
    fn note(&mut self, series: &Series) {
        let count = match series.kind() {
            SeriesKind::Rule => &mut self.rules,
            SeriesKind::Others => &mut self.others,
            SeriesKind::Values => {
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
        if self.rules < MAX_RULES {
            return (self.add(domain, path, path), Room::Own);
        }
        if let Some(known) = self.find(domain, OTHER, OTHER) {
            return (known, Room::Shared);
        }
        let domain = if self.others < MAX_OTHERS { domain } else { OTHER };
        let found = self.find(domain, OTHER, OTHER);
        (found.unwrap_or_else(|| self.add(domain, OTHER, OTHER)), Room::Shared)
    }

    fn of_values(&mut self, domain: &str, path: &str, rule: &str) -> Result<Arc<Series>, NoSeries> {
        if let Some(known) = self.find(domain, path, rule) {
            return Ok(known);
        }
        let first: Key = (domain.into(), path.into(), Box::default());
        let alike = self.series.range(first..).map(|(_, series)| series);
        let mut alike = alike.take_while(|series| (&*series.domain, &*series.path) == (domain, path));
        if alike.any(Series::is_used) {
            return Err(NoSeries::Taken);
        }
        let bytes = self.bytes.saturating_add(domain.len()).saturating_add(path.len());
        match self.values < MAX_VALUES && bytes <= MAX_BYTES {
            true => Ok(self.add(domain, path, rule)),
            false => Err(NoSeries::Full),
        }
    }

    /// Evicts series that are no longer in use, of each kind that has no room left. Returns the evicted ones.
    fn evict_unused(&mut self, values_are_full: bool) -> Vec<Arc<Series>> {
        let (rules_are_full, others_are_full) = (self.rules >= MAX_RULES, self.others >= MAX_OTHERS);
        let mut evicted = Vec::new();
        if !(rules_are_full || others_are_full || values_are_full) {
            return evicted;
        }
        let mut series = std::mem::take(self).series;
        series.retain(|_, series| {
            let is_full = match series.kind() {
                SeriesKind::Rule => rules_are_full,
                SeriesKind::Others => others_are_full,
                SeriesKind::Values => values_are_full,
            };
            let stays = !is_full || series.is_used();
            match stays {
                true => self.note(series),
                false => evicted.push(Arc::clone(series)),
            }
            stays
        });
        self.series = series;
        evicted
    }
}

/// The series of a rule, or the one that it has to share.
pub fn of_rule(domain: &str, path: &str) -> (Arc<Series>, Room) {
    ALL.lock().of_rule(domain, path)
}

/// The series of a rule's path with values.
///
/// # Errors
/// When there is no room for one, or the path is another rule's.
pub fn of_values(domain: &str, path: &str, rule: &str) -> Result<Arc<Series>, NoSeries> {
    // Callers may send any number of values: those that find no room do not contend for the lock.
    if IS_FULL.load(Ordering::Relaxed) {
        return Err(NoSeries::Full);
    }
    let found = ALL.lock().of_values(domain, path, rule);
    if matches!(found, Err(NoSeries::Full)) {
        IS_FULL.store(true, Ordering::Relaxed);
    }
    found
}

/// Evicts series that are no longer in use if there is no room for new ones. To be called from time to time.
pub fn evict_unused() {
    let evicted = ALL.lock().evict_unused(IS_FULL.swap(false, Ordering::Relaxed));
    evicted::keep(evicted);
}

/// All series, by domain, path and rule.
pub fn all() -> Vec<Arc<Series>> {
    ALL.lock().series.values().map(Arc::clone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full registry, with the counters of each series.
    fn full() -> (Registry, Vec<Arc<Striped<KINDS>>>) {
        let mut registry = Registry::default();
        let used = (0..MAX_RULES).map(|number| {
            let (series, room) = registry.of_rule("edge", &number.to_string());
            assert_eq!(room, Room::Own);
            series.counters()
        });
        let used = used.collect();
        (registry, used)
    }

    /// Evicts until `has_left`: a test that publishes all counts holds each series for a moment.
    fn evict_until(registry: &mut Registry, values_are_full: bool, has_left: impl Fn(&Registry) -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !has_left(registry) {
            assert!(std::time::Instant::now() < deadline, "it stays");
            registry.rules = MAX_RULES;
            registry.evict_unused(values_are_full);
            std::thread::yield_now();
        }
    }

    #[test]
    fn rules_beyond_the_bound_share_the_series_of_their_domain() {
        let (mut registry, _used) = full();
        assert_eq!(registry.of_rule("edge", "7").1, Room::Own, "it has a series");
        for rule in ["new", "newer"] {
            let (series, room) = registry.of_rule("edge", rule);
            assert_eq!((&*series.domain, &*series.path, room), ("edge", OTHER, Room::Shared));
        }
        assert_eq!(&*registry.of_rule("mesh", "new").0.domain, "mesh");
        for number in 0..2 * MAX_OTHERS {
            let _ = registry.of_rule(&format!("domain {number}"), "new");
        }
        assert_eq!(&*registry.of_rule("one more", "new").0.domain, OTHER);
        assert_eq!(&*registry.of_rule("edge", "newest").0.domain, "edge");
        assert_eq!(registry.series.len(), MAX_RULES + MAX_OTHERS + 1);
    }

    #[test]
    fn unused_rules_are_evicted_when_there_is_no_room() {
        let (mut registry, mut used) = full();
        registry.evict_unused(false);
        assert_eq!(registry.of_rule("edge", "new").1, Room::Shared, "all are used");
        used.truncate(MAX_RULES - 2);
        evict_until(&mut registry, false, |registry| registry.rules == MAX_RULES - 2);
        assert_eq!(registry.of_rule("edge", "new").1, Room::Own);
        assert_eq!(registry.of_rule("edge", "newer").1, Room::Own);
        assert_eq!(registry.of_rule("edge", "newest").1, Room::Shared);
        used.clear();
        let first = registry.find("edge", "7", "7").expect("known");
        registry.rules = 0;
        registry.evict_unused(false);
        assert!(registry.series.len() > MAX_RULES, "nothing is evicted while there is room");
        evict_until(&mut registry, false, |registry| registry.series.len() == 2);
        let left: Vec<_> = registry.series.values().map(|series| &*series.path).collect();
        assert_eq!(left, [OTHER, "7"], "a series in use stays");
        assert_eq!((first.kind(), registry.rules, registry.others), (SeriesKind::Rule, 1, 1));
    }

    #[test]
    fn unused_domains_are_evicted_for_new_ones() {
        let mut registry = Registry { rules: MAX_RULES, ..Registry::default() };
        for number in 0..=MAX_OTHERS {
            let _ = registry.of_rule(&format!("domain {number}"), "new");
        }
        assert_eq!(&*registry.of_rule("one more", "new").0.domain, OTHER);
        registry.evict_unused(false);
        registry.rules = MAX_RULES;
        assert_eq!(&*registry.of_rule("one more", "new").0.domain, "one more");
    }

    #[test]
    fn paths_with_values_are_bounded_in_number_and_in_bytes_and_evicted_with_their_rules() {
        let mut registry = Registry::default();
        let of = |registry: &mut Registry, path: &str| registry.of_values("d", path, "a");
        let used: Vec<_> = (0..MAX_VALUES)
            .map(|number| of(&mut registry, &format!("a_{number}")).expect("room").counters())
            .collect();
        assert!(of(&mut registry, "a_new").is_err());
        assert!(of(&mut registry, "a_7").is_ok(), "it has a series");
        registry.evict_unused(true);
        assert!(of(&mut registry, "a_new").is_err(), "all are used");
        drop(used);
        registry.evict_unused(false);
        assert_eq!(registry.values, MAX_VALUES, "no room is needed");
        evict_until(&mut registry, true, |registry| registry.series.is_empty());
        assert_eq!(registry.bytes, 0);
        assert!(of(&mut registry, &"a".repeat(MAX_BYTES)).is_err());
        assert!(of(&mut registry, "a_new").is_ok());
    }

    #[test]
    fn counts_of_several_series_are_part_of_their_sums() {
        let mut registry = Registry::default();
        let sums: [Arc<AtomicU64>; KINDS] = Default::default();
        let series = ["a", "b"].map(|path| registry.of_rule("d", path).0);
        series[0].counters_in(&sums).add([1, 0, 0, 2, 0, 0]);
        series[1].counters_in(&sums).add([10, 0, 0, 0, 0, 5]);
        // Of neither sum.
        series[1].counters().add([100, 0, 0, 0, 0, 0]);
        assert_eq!(sums.each_ref().map(|sum| sum.load(Ordering::Relaxed)), [11, 0, 0, 2, 0, 5]);
        assert_eq!(series.each_ref().map(|series| series.counted()[0]), [1, 110]);
    }

    #[test]
    fn a_path_with_values_belongs_to_one_rule() {
        let mut registry = Registry::default();
        let used = registry.of_values("d", "api_key_abc", "api").expect("room").counters();
        let mut of = |domain: &str, path: &str, rule: &str| registry.of_values(domain, path, rule).map(drop);
        assert_eq!(of("d", "api_key_abc", "api_key"), Err(NoSeries::Taken));
        assert_eq!(of("d", "api_key_abc", "api"), Ok(()));
        assert_eq!((of("e", "api_key_abc", "api_key"), of("d", "api_key_ab", "api_key")), (Ok(()), Ok(())));
        let of_rule = registry.of_rule("d", "api_key_x").0.counters();
        assert_eq!(registry.of_values("d", "api_key_x", "api_key").map(drop), Err(NoSeries::Taken));
        drop((used, of_rule));
    }
}
