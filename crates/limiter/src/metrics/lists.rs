//! Requests that a list decided.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tollgate_metrics::{Computed, Sink, Striped, series::OTHER};
use tollgate_rules::List;

/// Maximum number of domains that have series of their own.
const MAX_DOMAINS: usize = 1_000;

pub(super) static LIST_REQUESTS: Computed<1> = Computed::counter(
    "tollgate_list_requests_total",
    &["domain", "list"],
    "Requests that a list decided.",
    |[declared], page| {
        let mut all = ALL.lock();
        // At zero, as any series that may appear.
        all.entry(OTHER.into()).or_default();
        page.begin(declared);
        for (domain, series) in &*all {
            for (list, count) in List::ALL.into_iter().zip(series) {
                page.sample(declared, &[domain, list.name()], count.load(Ordering::Relaxed));
            }
        }
    },
);

/// The series of one domain, in the order of [`List::ALL`].
type Series = [Arc<AtomicU64>; 2];

/// Series by domain.
static ALL: Mutex<BTreeMap<Box<str>, Series>> = Mutex::new(BTreeMap::new());

/// Requests that each list decided in all domains, in the order of [`List::ALL`].
static TOTALS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A series, and the total that includes it.
#[derive(Debug)]
struct Totalled(Arc<AtomicU64>, &'static AtomicU64);

impl Sink for Totalled {
    fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
        self.1.fetch_add(amount, Ordering::Relaxed);
    }
}

/// Counters of one domain.
#[derive(Debug)]
pub(super) struct ListCounters(Arc<Striped<2>>);

impl ListCounters {
    pub(super) fn of(domain: &str) -> Self {
        let [first, second] = find(&mut ALL.lock(), domain);
        let [allow, deny] = &TOTALS;
        let totalled = |series, total| -> Arc<dyn Sink> { Arc::new(Totalled(series, total)) };
        Self(Striped::new([totalled(first, allow), totalled(second, deny)]))
    }

    pub(super) fn count(&self, list: List) {
        self.0.add(List::ALL.map(|each| u64::from(each == list)));
    }
}

fn find(all: &mut BTreeMap<Box<str>, Series>, domain: &str) -> Series {
    let has_room = all.len() < MAX_DOMAINS || all.contains_key(domain);
    all.entry(if has_room { domain } else { OTHER }.into()).or_default().clone()
}

/// Evicts the domains that are no longer active if there is no room for new ones. To be called from time to time.
pub fn evict_unused_domains() {
    evict_unused(&mut ALL.lock());
}

fn evict_unused(all: &mut BTreeMap<Box<str>, Series>) {
    if all.len() >= MAX_DOMAINS {
        all.retain(|_, series| series.iter().any(|count| Arc::strong_count(count) > 1));
    }
}

/// Requests that lists decided so far, in the order of [`List::ALL`].
pub fn listed_requests() -> [u64; 2] {
    TOTALS.each_ref().map(|total| total.load(Ordering::Relaxed))
}

/// Counts a request that a list decided, for a domain without rules: its name is the caller's, so it is no label.
pub fn listed_without_rules(list: List) {
    static OTHERS: LazyLock<ListCounters> = LazyLock::new(|| ListCounters::of(OTHER));
    OTHERS.count(list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_bounded_and_inactive_ones_are_evicted() {
        let mut all = BTreeMap::new();
        let mut used: Vec<_> = (0..MAX_DOMAINS).map(|number| find(&mut all, &number.to_string())).collect();
        let _ = find(&mut all, "new");
        assert!(all.contains_key(OTHER) && !all.contains_key("new"));
        let _ = find(&mut all, "7");
        evict_unused(&mut all);
        assert_eq!(all.len(), MAX_DOMAINS, "all are used");
        used.truncate(1);
        evict_unused(&mut all);
        let _ = find(&mut all, "new");
        assert_eq!(all.keys().map(|domain| &**domain).collect::<Vec<_>>(), ["0", "new"]);
    }
}
