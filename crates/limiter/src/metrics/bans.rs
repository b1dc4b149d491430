//! Bans of each rule with a `ban`, and hits of banned counters.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tollgate_core::ban::{Ban, BanMode};
use tollgate_metrics::{Computed, Declared, MetricKind, Page, Sink, Striped, publish, series::OTHER};
use tollgate_rules::{Rule, Rules};

/// Maximum number of rules that have series of their own.
const MAX_RULES: usize = 2_000;

/// Counts for each mode: bans, then hits.
const COUNTS: usize = 2 * BanMode::ALL.len();

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
        let mut all = ALL.lock();
        // At zero, as any series that may appear.
        all.entry((OTHER.into(), OTHER.into())).or_default();
        write(bans, page, &all, 0);
        write(hits, page, &all, BanMode::ALL.len());
    },
);

/// Domain and path of a rule.
type Name = (Box<str>, Box<str>);

/// The series of one rule.
type Series = [Arc<AtomicU64>; COUNTS];

static ALL: Mutex<BTreeMap<Name, Series>> = Mutex::new(BTreeMap::new());

fn write(declared: &Declared, page: &mut Page, all: &BTreeMap<Name, Series>, first: usize) {
    page.begin(declared);
    for ((domain, rule), series) in all {
        for (mode, count) in BanMode::ALL.into_iter().zip(series.iter().skip(first)) {
            page.sample(declared, &[domain, rule, mode.name()], count.load(Ordering::Relaxed));
        }
    }
}

/// Counters of the rules with a `ban` of one version of the rules, by their index. They exist from the activation on, so
/// that a first ban is seen as a change.
#[derive(Default)]
pub(super) struct BanCounters(HashMap<usize, Arc<Striped<COUNTS>>>);

impl fmt::Debug for BanCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BanCounters")
    }
}

impl BanCounters {
    pub(super) fn for_rules(rules: &Rules) -> Self {
        let mut all = ALL.lock();
        let banning = rules.domains().flat_map(|domain| {
            let rules = domain.root.rules().filter(|rule| rule.ban.is_some());
            rules.map(move |rule| (&*domain.name, rule))
        });
        let counters = banning.map(|(domain, rule)| {
            let series = find(&mut all, domain, &rule.path());
            let sinks = series.map(|series| -> Arc<dyn Sink> { series });
            (rule.index().as_usize(), Striped::new(sinks))
        });
        Self(counters.collect())
    }

    /// Counts the hits of a banned counter, and the ban if it is new.
    pub(super) fn count(&self, rule: &Rule, ban: &Ban, hits: u64) {
        let Some(counters) = self.0.get(&rule.index().as_usize()) else { return };
        let (new, enforced) = (u64::from(ban.is_new), ban.is_enforced);
        counters.add(match enforced {
            false => [new, 0, hits, 0],
            true => [0, new, 0, hits],
        });
    }
}

fn find(all: &mut BTreeMap<Name, Series>, domain: &str, rule: &str) -> Series {
    let name = (domain.into(), rule.into());
    if all.len() >= MAX_RULES && !all.contains_key(&name) {
        // Series of rules of former versions, which count nothing more.
        all.retain(|_, series| series.iter().any(|count| Arc::strong_count(count) > 1));
    }
    let has_room = all.len() < MAX_RULES || all.contains_key(&name);
    let name = if has_room { name } else { (OTHER.into(), OTHER.into()) };
    all.entry(name).or_default().clone()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use super::*;
    use tollgate_rules::config::{Options, load_files};

    #[test]
    fn bans_and_their_hits_are_counted_by_mode_from_zero_on() {
        let text = "domain: bans\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 9, ban: {}}}\n\
                    - {key: other, rate_limit: {unit: day, requests_per_unit: 9}}\n";
        let files = [("rules.yaml".to_owned(), text.as_bytes().to_vec())];
        let rules = load_files(files, Options::default()).expect("valid").rules;
        let counters = BanCounters::for_rules(&rules);
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
        counters.count(rule, &Ban { until: 9, level, is_new: true, is_enforced: true }, 2);
        counters.count(rule, &Ban { until: 9, level, is_new: false, is_enforced: true }, 3);
        counters.count(rule, &Ban { until: 9, level, is_new: true, is_enforced: false }, 1);
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
}
