//! Requests that a list decided.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use tollgate_metrics::{Computed, Sink, Striped, series::OTHER};
use tollgate_rules::List;

use super::by_rule::SeriesByRule;

/// Maximum number of domains that have series of their own.
const MAX_DOMAINS: usize = 1_000;

pub(super) static LIST_REQUESTS: Computed<1> = Computed::counter(
    "tollgate_list_requests_total",
    &["domain", "list"],
    "Requests that a list decided.",
    |[declared], page| {
        SERIES.export_other();
        page.begin(declared);
        for (domain, _, counts) in SERIES.totals(|counts, ()| counts) {
            for (list, count) in List::ALL.into_iter().zip(counts) {
                page.sample(declared, &[&domain, list.name()], count);
            }
        }
    },
);

/// Series by domain, whose name stands in place of a rule's, in the order of [`List::ALL`].
static SERIES: SeriesByRule<2> = SeriesByRule::new(MAX_DOMAINS);

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
        let [first, second] = SERIES.of(domain, domain).counts;
        let [allow, deny] = &TOTALS;
        let totalled = |series, total| -> Arc<dyn Sink> { Arc::new(Totalled(series, total)) };
        Self(Striped::new([totalled(first, allow), totalled(second, deny)]))
    }

    pub(super) fn count(&self, list: List) {
        self.0.add(List::ALL.map(|each| u64::from(each == list)));
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
