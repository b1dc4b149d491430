//! Counters by domain and path, with a bound on their number.
//!
//! Paths are those of rules, and those of rules with a request's values in them. Values are the caller's to choose, so
//! that each kind of series has a bound, beyond which decisions are counted under a path that they share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::striped_counter::{Sink, Striped};

/// Maximum number of rules that have series of their own.
pub const MAX_RULES: usize = 10_000;

/// Maximum number of domains whose further rules share a series of the domain.
const MAX_OTHERS: usize = 1_000;

/// Bytes of all paths with a request's values in them, with their domains: each is exported six times, and all of that is to
/// stay below a megabyte. The rules that have such paths share them evenly; later ones are counted under the rule's own path.
const MAX_BYTES: usize = 64 << 10;

/// Bytes that such a path counts as at least, so that there are a thousand at most.
const MIN_PATH_BYTES: usize = 65;

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
#[derive(Debug)]
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
    /// Bytes of those with values, of all and by domain and rule.
    bytes: usize,
    bytes_by_rule: BTreeMap<(Box<str>, Box<str>), usize>,
}

static ALL: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// Whether a path with values found no room since room was last made.
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// Times that room was made, from 1 on.
static ROUND: AtomicU64 = AtomicU64::new(1);

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
}

/// Bytes that a path with values counts as.
fn bytes_of(domain: &str, path: &str) -> usize {
    domain.len().saturating_add(path.len()).max(MIN_PATH_BYTES)
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
        match series.kind() {
            SeriesKind::Rule => self.rules = self.rules.saturating_add(1),
            SeriesKind::Others => self.others = self.others.saturating_add(1),
            SeriesKind::Values => {
                let bytes = bytes_of(&series.domain, &series.path);
                let rule = (series.domain.clone(), series.rule.clone());
                let of_rule = self.bytes_by_rule.entry(rule).or_default();
                *of_rule = of_rule.saturating_add(bytes);
                self.bytes = self.bytes.saturating_add(bytes);
            }
        }
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

    fn of_values(
        &mut self,
        domain: &str,
        path: &str,
        rule: &str,
        rules: usize,
    ) -> Result<Arc<Series>, NoSeries> {
        if let Some(known) = self.find(domain, path, rule) {
            return Ok(known);
        }
        let first: Key = (domain.into(), path.into(), Box::default());
        let alike = self.series.range(first..).map(|(_, series)| series);
        let mut alike = alike.take_while(|series| (&*series.domain, &*series.path) == (domain, path));
        if alike.any(Series::is_used) {
            return Err(NoSeries::Taken);
        }
        let bytes = bytes_of(domain, path);
        let fits = |used: usize, bound: usize| used.saturating_add(bytes) <= bound;
        let own = self.bytes_by_rule.get(&(domain.into(), rule.into()));
        let part = MAX_BYTES.checked_div(rules).unwrap_or(MAX_BYTES);
        match fits(self.bytes, MAX_BYTES) && own.is_none_or(|own| fits(*own, part)) {
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

/// The series of a rule's path with values, where this many rules have such paths.
///
/// # Errors
/// When there is no room for one, or the path is another rule's.
pub fn of_values(domain: &str, path: &str, rule: &str, rules: usize) -> Result<Arc<Series>, NoSeries> {
    let found = ALL.lock().of_values(domain, path, rule, rules);
    if matches!(found, Err(NoSeries::Full)) {
        IS_FULL.store(true, Ordering::Relaxed);
    }
    found
}

/// Number that changes when a rule without room may have some again.
pub fn round() -> u64 {
    ROUND.load(Ordering::Relaxed)
}

/// Evicts series that are no longer in use if there is no room for new ones. To be called from time to time.
pub fn evict_unused() {
    ROUND.fetch_add(1, Ordering::Relaxed);
    let evicted = ALL.lock().evict_unused(IS_FULL.swap(false, Ordering::Relaxed));
    keep(evicted);
}

/// All series, by domain, path and rule.
pub fn all() -> Vec<Arc<Series>> {
    ALL.lock().series.values().map(Arc::clone).collect()
}

/// Maximum number of series that are kept: as many as find room at a time. Further ones are lost.
const MAX_EVICTED: usize = 12_000;

/// The series; `None` while deltas are not read.
static KEPT: Mutex<Option<Vec<Arc<Series>>>> = Mutex::new(None);

/// Keeps evicted series from now on.
pub(crate) fn keep_evicted() {
    KEPT.lock().get_or_insert_default();
}

/// Keeps those of the series whose counts were not all exported.
pub(crate) fn keep(evicted: Vec<Arc<Series>>) {
    if let Some(kept) = &mut *KEPT.lock() {
        let room = MAX_EVICTED.saturating_sub(kept.len());
        kept.extend(evicted.into_iter().filter(has_more).take(room));
    }
}

/// The series whose counts are still not all exported.
pub(crate) fn evicted() -> Vec<Arc<Series>> {
    let mut kept = KEPT.lock();
    let Some(kept) = &mut *kept else { return Vec::new() };
    kept.retain(has_more);
    kept.clone()
}

fn has_more(series: &Arc<Series>) -> bool {
    series.not_exported() != [0; KINDS]
}

#[cfg(test)]
mod tests;
