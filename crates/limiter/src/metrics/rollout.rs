//! Gradual changes of limits: hits by the side of their key, and comparisons with candidates.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tollgate_core::{
    algorithm::Verdict,
    descriptor::{Descriptor, Hits},
};
use tollgate_metrics::{Computed, Declared, MetricKind, Page, Sink, Striped, publish, series::OTHER};
use tollgate_rules::{Domain, Rule, Rules};

use super::enforced_keys::{KeySample, SampledKey};
use crate::{candidate_check::Outcome, matched::Side};

/// Maximum number of rules that have series of their own, of either kind.
const MAX_RULES: usize = 1_000;

/// Counts of one rule.
const COUNTS: usize = 4;

/// Names of the sides of a key, with the position of the hits; behind them are those over the limit.
const SIDES: [(&str, usize); 2] = [("enforced", 0), ("shadow", 2)];

const fn declare(name: &'static str, label: &'static str, help: &'static str) -> Declared {
    Declared {
        name,
        kind: MetricKind::Counter,
        labels: match label.is_empty() {
            true => &["domain", "rule", "side"],
            false => &["domain", "rule", "outcome"],
        },
        help,
    }
}

pub(super) static ENFORCEMENT: Computed<2> = Computed::group(
    [
        declare(
            "tollgate_rule_enforcement_hits_total",
            "",
            "Hits of a limit that is enforced for a share of its keys, by the side of the key.",
        ),
        declare(
            "tollgate_rule_enforcement_over_limit_total",
            "",
            "Hits over such a limit, by the side of the key: denied, or counted as shadow.",
        ),
    ],
    |[hits, over], page| {
        publish();
        let all = ENFORCED.lock();
        write(hits, page, &all, &SIDES);
        write(over, page, &all, &SIDES.map(|(side, first)| (side, first.saturating_add(1))));
    },
);

pub(super) static CANDIDATES: Computed<1> = Computed::group(
    [declare(
        "tollgate_rule_candidate_hits_total",
        "outcome",
        "Hits decided by a rule and its candidate, by which of them denied.",
    )],
    |[hits], page| {
        publish();
        write(hits, page, &COMPARED.lock(), &Outcome::ALL.map(|outcome| (outcome.name(), outcome as usize)));
    },
);

/// Domain and path of a rule.
type RuleName = (Box<str>, Box<str>);

/// Counters of one rule, and its sample.
type CountersAndKeys = (Arc<Striped<COUNTS>>, Arc<Mutex<KeySample>>);

#[derive(Clone, Default)]
struct RolloutSeries {
    counts: [Arc<AtomicU64>; COUNTS],
    /// Of enforced keys.
    keys: Arc<Mutex<KeySample>>,
}

type AllSeries = BTreeMap<RuleName, RolloutSeries>;

/// Hits and hits over the limit of the enforced keys, then those of the others.
static ENFORCED: Mutex<AllSeries> = Mutex::new(BTreeMap::new());

/// Hits by outcome, in the order of [`Outcome::ALL`].
static COMPARED: Mutex<AllSeries> = Mutex::new(BTreeMap::new());

fn write(declared: &Declared, page: &mut Page, all: &AllSeries, labels: &[(&'static str, usize)]) {
    page.begin(declared);
    for ((domain, rule), series) in all {
        for (label, at) in labels.iter().copied() {
            let count = series.counts.get(at).map_or(0, |count| count.load(Ordering::Relaxed));
            page.sample(declared, &[domain, rule, label], count);
        }
    }
}

/// Counters of the rules of one version, by their index; each is made when it is first used.
#[derive(Default)]
pub(super) struct RolloutCounters(Vec<RuleRollout>);

#[derive(Default)]
struct RuleRollout {
    sides: OnceLock<CountersAndKeys>,
    outcomes: OnceLock<CountersAndKeys>,
}

impl fmt::Debug for RolloutCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RolloutCounters")
    }
}

impl RolloutCounters {
    pub(super) fn for_rules(rules: &Rules) -> Self {
        Self((0..rules.rule_count()).map(|_| RuleRollout::default()).collect())
    }

    /// Counts a decision of a limit that is enforced for a share of its keys.
    pub(super) fn side(
        &self,
        (domain, rule, side): (&Domain, &Rule, Side),
        descriptor: &Descriptor<'_>,
        hits: Hits,
        verdict: &Verdict,
    ) {
        let (charged, over) = (hits.charged(), verdict.over.min(hits.charged()));
        let over = if verdict.admitted { 0 } else { over };
        let Some(of_rule) = self.0.get(rule.index().as_usize()) else { return };
        let (counters, keys) = of_rule.sides.get_or_init(|| counters(&ENFORCED, domain, rule));
        // A sample, which does without those that two workers have at the same time.
        if side == Side::Enforced
            && charged > 0
            && let Some(mut keys) = keys.try_lock()
        {
            keys.record(rule.counted_key(&domain.name, &descriptor.entries), over > 0);
        }
        counters.add(match side {
            Side::Enforced => [charged, over, 0, 0],
            Side::Shadow => [0, 0, charged, over],
        });
    }

    /// Counts a decision of a rule and its candidate.
    pub(super) fn compared(&self, domain: &Domain, rule: &Rule, outcome: Outcome, hits: u64) {
        let Some(of_rule) = self.0.get(rule.index().as_usize()) else { return };
        let (counters, _) = of_rule.outcomes.get_or_init(|| counters(&COMPARED, domain, rule));
        let mut counts = [0; COUNTS];
        if let Some(count) = counts.get_mut(outcome as usize) {
            *count = hits;
        }
        counters.add(counts);
    }
}

fn counters(all: &Mutex<AllSeries>, domain: &Domain, rule: &Rule) -> CountersAndKeys {
    let mut all = all.lock();
    let name = ((*domain.name).into(), rule.path().into());
    if all.len() >= MAX_RULES && !all.contains_key(&name) {
        // RolloutSeries of rules of former versions, which count nothing more.
        all.retain(|_, series| series.counts.iter().any(|count| Arc::strong_count(count) > 1));
    }
    let has_room = all.len() < MAX_RULES || all.contains_key(&name);
    let name = if has_room { name } else { (OTHER.into(), OTHER.into()) };
    let RolloutSeries { counts, keys } = all.entry(name).or_default().clone();
    (Striped::new(counts.map(|count| -> Arc<dyn Sink> { count })), keys)
}

/// Hits of a limit that is enforced for a share of its keys, since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnforcementTotal {
    /// Hits of the keys for which it is enforced.
    pub enforced: u64,
    /// Hits of these keys that it denied.
    pub denied: u64,
    /// Hits of the other keys.
    pub shadow: u64,
    /// Hits of these that it would have denied.
    pub shadow_over: u64,
    /// Sample of the keys for which it is enforced, by hash.
    pub keys: Vec<SampledKey>,
}

/// The totals of every rule that was enforced for a share of its keys, by domain and path.
pub fn enforcement_totals() -> Vec<(Box<str>, Box<str>, EnforcementTotal)> {
    totals(&ENFORCED, |[enforced, denied, shadow, shadow_over], keys| {
        let keys = keys.lock().keys();
        EnforcementTotal { enforced, denied, shadow, shadow_over, keys }
    })
}

/// Hits of every rule that had a candidate since the start of the process, by domain and path, in the order of
/// [`Outcome::ALL`].
pub fn candidate_totals() -> Vec<(Box<str>, Box<str>, [u64; COUNTS])> {
    totals(&COMPARED, |counts, _| counts)
}

fn totals<T>(
    all: &Mutex<AllSeries>,
    total: impl Fn([u64; COUNTS], &Mutex<KeySample>) -> T,
) -> Vec<(Box<str>, Box<str>, T)> {
    publish();
    let all = all.lock();
    let read = |RolloutSeries { counts, keys }: &RolloutSeries| {
        total(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), keys)
    };
    all.iter().map(|((domain, rule), series)| (domain.clone(), rule.clone(), read(series))).collect()
}
