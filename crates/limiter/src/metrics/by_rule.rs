//! Series by rule or by domain, bounded in number: counters of bans and of global limits are here, counters of rollouts and
//! lists in the files beside.

use std::array;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate_core::ban::{Ban, BanMode};
use tollgate_metrics::{Computed, Declared, MetricKind, Page, Sink, Striped, publish, series::OTHER};
use tollgate_rules::{Rule, Rules};

/// Maximum number of rules that have series of their own, of either metric.
const MAX_RULES: usize = 2_000;

/// Counts for each mode: bans, then hits.
const BAN_COUNTS: usize = 2 * BanMode::ALL.len();

static BAN_SERIES: SeriesByRule<BAN_COUNTS> = SeriesByRule::new(MAX_RULES);

pub(super) static SHARE_SERIES: SeriesByRule<1> = SeriesByRule::new(MAX_RULES);

const fn declare(name: &'static str, help: &'static str) -> Declared {
    Declared { name, kind: MetricKind::Counter, labels: &["domain", "rule", "mode"], help }
}

pub(super) static BANS: Computed<2> = Computed::group(
    [
        declare("tollgate_rule_bans_total", "Bans that began, by whether they deny."),
        declare(
            "tollgate_rule_banned_hits_total",
            "Hits of banned counters, by whether the ban denies them.",
        ),
    ],
    |[bans, hits], page| {
        publish();
        BAN_SERIES.export_other();
        let modes = || BanMode::ALL.into_iter().map(BanMode::name);
        BAN_SERIES.write(page, bans, &modes().zip(0..));
        BAN_SERIES.write(page, hits, &modes().zip(BanMode::ALL.len()..));
    },
);

pub(super) static SHARE_DENIALS: Computed<1> = Computed::counter(
    "tollgate_rule_share_denials_total",
    &["domain", "rule"],
    "Hits that the own region's share of a limit denied, while other regions have shares of it.",
    |[declared], page| {
        publish();
        SHARE_SERIES.export_other();
        page.begin(declared);
        for (domain, rule, [count]) in SHARE_SERIES.totals(|counts, ()| counts) {
            page.sample(declared, &[&domain, &rule], count);
        }
    },
);

/// Hits of all rules that the own region's share of a limit denied, since the start of the process.
pub fn share_denials() -> u64 {
    publish();
    SHARE_SERIES
        .totals(|[count], ()| count)
        .into_iter()
        .fold(0, |sum, (_, _, count)| sum.saturating_add(count))
}

/// Counters of the rules with a `ban`.
pub(super) fn ban_counters(rules: &Rules) -> CountersByRule<BAN_COUNTS> {
    CountersByRule::for_rules(rules, &BAN_SERIES, |rule| rule.ban.is_some())
}

/// Counts the hits of a banned counter, and the ban if it is new.
pub(crate) fn count_ban(counters: &CountersByRule<BAN_COUNTS>, rule: &Rule, ban: &Ban, hits: u64) {
    let new = u64::from(ban.is_new);
    counters.add(rule, if ban.is_enforced { [0, new, 0, hits] } else { [new, 0, hits, 0] });
}

/// Counters of some rules of one version, by their index. They exist from the activation on, so that a first count is seen as
/// a change.
#[derive(Debug, Default)]
pub(crate) struct CountersByRule<const N: usize>(HashMap<usize, Arc<Striped<N>>>);

impl<const N: usize> CountersByRule<N> {
    pub(super) fn for_rules(
        rules: &Rules,
        all: &SeriesByRule<N>,
        has_counters: impl Fn(&Rule) -> bool,
    ) -> Self {
        let mut counters = HashMap::new();
        for domain in rules.domains() {
            for rule in domain.root.rules().filter(|rule| has_counters(rule)) {
                counters.insert(rule.index().as_usize(), all.of(&domain.name, &rule.path()).counters());
            }
        }
        Self(counters)
    }

    /// Adds to the counts of a rule, if it has counters.
    pub(crate) fn add(&self, rule: &Rule, counts: [u64; N]) {
        if let Some(counters) = self.0.get(&rule.index().as_usize()) {
            counters.add(counts);
        }
    }
}

/// Domain and path of a rule.
type RuleName = (Box<str>, Box<str>);

/// Series of rules, by domain and path. They outlive the versions of the rules.
#[derive(Debug)]
pub(super) struct SeriesByRule<const N: usize, T = ()> {
    all: Mutex<BTreeMap<RuleName, RuleSeries<N, T>>>,
    max_rules: usize,
}

/// Series of one rule, with what else is kept of it.
#[derive(Clone, Debug)]
pub(super) struct RuleSeries<const N: usize, T> {
    pub(super) counts: [Arc<AtomicU64>; N],
    pub(super) kept: T,
}

impl<const N: usize, T: Clone + Default> SeriesByRule<N, T> {
    pub(super) const fn new(max_rules: usize) -> Self {
        Self { all: Mutex::new(BTreeMap::new()), max_rules }
    }

    /// The series of a rule; without room for it, the one that such rules share.
    pub(super) fn of(&self, domain: &str, rule: &str) -> RuleSeries<N, T> {
        let mut all = self.all.lock();
        let mut name = (domain.into(), rule.into());
        if all.len() >= self.max_rules && !all.contains_key(&name) {
            // Series of rules of former versions, which count nothing more.
            all.retain(|_, series| series.counts.iter().any(|count| Arc::strong_count(count) > 1));
            if all.len() >= self.max_rules {
                name = (OTHER.into(), OTHER.into());
            }
        }
        all.entry(name).or_default().clone()
    }

    /// Exports the series of rules without one of their own at zero, as any series that may appear.
    pub(super) fn export_other(&self) {
        self.all.lock().entry((OTHER.into(), OTHER.into())).or_default();
    }

    /// Writes a metric with a third label, whose values have counts at these positions.
    pub(super) fn write<L>(&self, page: &mut Page, declared: &Declared, labels: &L)
    where
        L: IntoIterator<Item = (&'static str, usize)> + Clone,
    {
        page.begin(declared);
        for ((domain, rule), series) in &*self.all.lock() {
            for (label, at) in labels.clone() {
                let count = series.counts.get(at).map_or(0, |count| count.load(Ordering::Relaxed));
                page.sample(declared, &[domain, rule, label], count);
            }
        }
    }

    /// The totals of every rule that has series, by domain and path.
    pub(super) fn totals<R>(&self, total: impl Fn([u64; N], &T) -> R) -> Vec<(Box<str>, Box<str>, R)> {
        let all = self.all.lock();
        let read = |series: &RuleSeries<N, T>| {
            total(series.counts.each_ref().map(|count| count.load(Ordering::Relaxed)), &series.kept)
        };
        all.iter().map(|((domain, rule), series)| (domain.clone(), rule.clone(), read(series))).collect()
    }
}

impl<const N: usize, T: Default> Default for RuleSeries<N, T> {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| Arc::default()), kept: T::default() }
    }
}

impl<const N: usize, T> RuleSeries<N, T> {
    /// Counters that are published to the series.
    pub(super) fn counters(self) -> Arc<Striped<N>> {
        Striped::new(self.counts.map(|count| -> Arc<dyn Sink> { count }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_prelude::*;

    #[test]
    fn bans_and_their_hits_are_counted_by_mode_from_zero_on() {
        let text = "domain: bans\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 9, ban: {}}}\n\
                    - {key: other, rate_limit: {unit: day, requests_per_unit: 9}}\n";
        let rules = rules_of(text, Options::default());
        let counters = ban_counters(&rules);
        let samples = || {
            let mut page = Page::default();
            tollgate_metrics::Metric::write(&BANS, &mut page);
            let text = page.into_text();
            let of_rule = text.lines().filter(|line| line.contains("domain=\"bans\"")).map(str::to_owned);
            of_rule.collect::<Vec<_>>()
        };
        assert_eq!(samples().len(), 4);
        assert!(samples().iter().all(|line| line.ends_with(" 0") && line.contains("rule=\"k\"")));
        let domain = rules.domain("bans").expect("stated");
        let rule = domain.root.rules().find(|rule| rule.ban.is_some()).expect("stated");
        let level = NonZeroU8::MIN;
        count_ban(&counters, rule, &Ban { until: 9, level, is_new: true, is_enforced: true }, 2);
        count_ban(&counters, rule, &Ban { until: 9, level, is_new: false, is_enforced: true }, 3);
        count_ban(&counters, rule, &Ban { until: 9, level, is_new: true, is_enforced: false }, 1);
        let labels = |mode| format!("{{domain=\"bans\",rule=\"k\",mode=\"{mode}\"}}");
        assert_eq!(
            samples(),
            [
                format!("tollgate_rule_bans_total{} 1", labels("watch")),
                format!("tollgate_rule_bans_total{} 1", labels("enforce")),
                format!("tollgate_rule_banned_hits_total{} 1", labels("watch")),
                format!("tollgate_rule_banned_hits_total{} 5", labels("enforce")),
            ]
        );
    }

    #[test]
    fn series_are_bounded_and_unused_ones_make_room() {
        let all = SeriesByRule::<1>::new(3);
        let names = || all.totals(|_, ()| ()).into_iter().map(|(_, rule, ())| rule).collect::<Vec<_>>();
        let mut used: Vec<_> = ["0", "1", "2"].map(|rule| all.of("d", rule)).into_iter().collect();
        drop(all.of("d", "new"));
        assert_eq!(names(), [OTHER, "0", "1", "2"].map(Box::from), "all are used");
        drop(all.of("d", "1"));
        used.truncate(1);
        drop(all.of("d", "new"));
        assert_eq!(names(), ["0", "new"].map(Box::from));
    }
}
