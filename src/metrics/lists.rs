//! Requests that a list decided.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Counter, CounterFn};
use parking_lot::Mutex;

use super::{
    page::{Kind, Page},
    striped::Striped,
};
use crate::rules::List;

/// The domain under which requests are counted whose domain has no rules: its name is the caller's, so it is no label.
/// So are those of the domains beyond the most.
const OTHER: &str = "(other)";

/// Domains at the most that have series of their own.
const MOST: usize = 1_000;

/// The series of one domain, in the order of [`List::ALL`].
type Series = [Arc<AtomicU64>; 2];

/// Those of each domain.
static ALL: Mutex<BTreeMap<Box<str>, Series>> = Mutex::new(BTreeMap::new());

/// Requests that each list decided, whatever the domain, in the order of [`List::ALL`].
static TOTALS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A series, and the total that it adds to.
struct Totalled(Arc<AtomicU64>, &'static AtomicU64);

impl CounterFn for Totalled {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
        self.1.fetch_add(value, Ordering::Relaxed);
    }

    /// Nobody knows by how much it grows.
    fn absolute(&self, _value: u64) {}
}

/// Something that counts requests of one domain.
pub(super) struct ListCounters(Arc<Striped<2>>);

impl ListCounters {
    pub(super) fn of(domain: &str) -> Self {
        let [first, second] = find(&mut ALL.lock(), domain);
        let [allow, deny] = &TOTALS;
        let totalled = |series, total| Counter::from_arc(Arc::new(Totalled(series, total)));
        Self(Striped::new([totalled(first, allow), totalled(second, deny)]))
    }

    pub(super) fn count(&self, list: List) {
        self.0.add(List::ALL.map(|each| u64::from(each == list)));
    }
}

fn find(all: &mut BTreeMap<Box<str>, Series>, domain: &str) -> Series {
    let has_room = all.len() < MOST || all.contains_key(domain);
    all.entry(if has_room { domain } else { OTHER }.into()).or_default().clone()
}

/// Makes room, where there is none left, by the domains that have gone.
fn make_room(all: &mut BTreeMap<Box<str>, Series>) {
    if all.len() >= MOST {
        all.retain(|_, series| series.iter().any(|count| Arc::strong_count(count) > 1));
    }
}

/// Makes room for new domains if there is none left.
pub(super) fn tidy() {
    make_room(&mut ALL.lock());
}

/// Requests that lists decided so far, in the order of [`List::ALL`].
pub(super) fn so_far() -> [u64; 2] {
    TOTALS.each_ref().map(|total| total.load(Ordering::Relaxed))
}

/// Counts a request that a list decided, for a domain without rules.
pub fn listed_elsewhere(list: List) {
    static ELSEWHERE: LazyLock<ListCounters> = LazyLock::new(|| ListCounters::of(OTHER));
    ELSEWHERE.count(list);
}

/// Adds all of them to a page.
pub(super) fn write(page: &mut Page) {
    let mut all = ALL.lock();
    // It begins at zero, as any series that may come should.
    all.entry(OTHER.into()).or_default();
    let name = "tollgate_list_requests_total";
    page.begin(name, Kind::Counter, "Requests that a list decided.");
    for (domain, series) in &*all {
        for (list, count) in List::ALL.into_iter().zip(series) {
            page.sample(name, &[("domain", domain), ("list", list.name())], count.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_bounded_and_those_that_have_gone_make_room() {
        let mut all = BTreeMap::new();
        let mut used: Vec<_> = (0..MOST).map(|number| find(&mut all, &number.to_string())).collect();
        let _ = find(&mut all, "new");
        assert!(all.contains_key(OTHER) && !all.contains_key("new"));
        let _ = find(&mut all, "7");
        make_room(&mut all);
        assert_eq!(all.len(), MOST, "all are used");
        used.truncate(1);
        make_room(&mut all);
        let _ = find(&mut all, "new");
        assert_eq!(all.keys().map(|domain| &**domain).collect::<Vec<_>>(), ["0", "new"]);
    }
}
