//! Hits of each rule, with the meanings of envoyproxy/ratelimit.
//!
//! The counters of the active rules stand beside the rules, by their index: [`RuleCounters`] is made for one version of
//! the rules and activated and dropped with it. The series outlive it, so that a rule of the next version continues
//! them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use serde::Serialize;
use tollgate_core::algorithm::{Algorithm, Verdict};
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_metrics::series::{self, KINDS, NoSeries, Room, Series};
use tollgate_metrics::{Computed, Declared, MetricKind, Striped, StripedCounter, publish};
use tollgate_rules::{Companion, Domain, List, Rule, Rules, Scope};

use super::by_rule::{self, CountersByRule, SHARE_SERIES};
use super::{ALGORITHMS, SUMS, algorithm_index, lists::ListCounters, rollout::RolloutCounters};
use crate::decision::{Limited, Shed};

/// Path of the limit overrides of requests.
const LIMIT_OVERRIDE: &str = "(request)";

/// Maximum length in bytes of a path with a request's values: values are the caller's to choose.
const MAX_PATH_BYTES: usize = 256;

/// Kinds of hits, in the order of the counters of a series.
pub const RULE_KINDS: [&str; KINDS] =
    ["total_hits", "within_limit", "near_limit", "over_limit", "shadow_mode", "degraded"];

const fn declare(name: &'static str, help: &'static str) -> Declared {
    Declared { name, kind: MetricKind::Counter, labels: &["domain", "rule"], help }
}

/// The metrics of a rule, in the order of [`RULE_KINDS`].
pub(super) static RULE_METRICS: Computed<KINDS> = Computed::group(
    [
        declare("tollgate_rule_hits_total", "Hits decided by the rule."),
        declare("tollgate_rule_within_limit_total", "Hits that the rule let pass."),
        declare("tollgate_rule_near_limit_total", "Hits within the limit and above its near-limit ratio."),
        declare("tollgate_rule_over_limit_total", "Hits over the limit."),
        declare(
            "tollgate_rule_shadow_mode_total",
            "Hits over the limit that the rule's shadow mode let pass.",
        ),
        declare("tollgate_rule_degraded_total", "Hits decided without the store (degraded mode)."),
    ],
    |declared, page| write(declared, page, &series::all()),
);

pub(super) static SERIES_DROPPED: StripedCounter = StripedCounter::new(
    "tollgate_series_dropped_total",
    "Decisions not counted under a path of their own: there was no room for its series, or it was the path of another rule.",
)
.at_zero();

fn write(declared: &[Declared; KINDS], page: &mut tollgate_metrics::Page, all: &[Arc<Series>]) {
    for (at, declared) in declared.iter().enumerate() {
        page.begin(declared);
        // In order, so that series with the same labels are next to each other.
        for alike in all.chunk_by(|one, next| (&one.domain, &one.path) == (&next.domain, &next.path)) {
            let Some(first) = alike.first() else { continue };
            let counts = alike.iter().map(|series| series.counted().get(at).copied().unwrap_or_default());
            let sum = counts.fold(0, u64::saturating_add);
            page.sample(declared, &[&first.domain, &first.path], sum);
        }
    }
}

/// Counters of one version of the rules, by the indexes of its rules and domains. Each is made when it is first used.
#[derive(Debug, Default)]
pub struct RuleCounters {
    rules: Vec<OfRule>,
    /// Number of rules that have paths with a request's values.
    with_values: usize,
    domains: Vec<OfDomain>,
    pub(crate) bans: CountersByRule<4>,
    pub(crate) rollouts: RolloutCounters,
    pub(crate) shares: CountersByRule<1>,
}

#[derive(Debug, Default)]
struct OfRule {
    stated: OfAlgorithm,
    /// Of the overrides that decide in the rule's place, by algorithm: these may have others, also side by side.
    overriding: OnceLock<Box<[OfAlgorithm; ALGORITHMS]>>,
}

/// Counters of a rule's hits by one algorithm.
#[derive(Debug, Default)]
struct OfAlgorithm {
    own: OnceLock<PathCounters>,
    /// By path with a request's values; the number of paths of all rules is bounded where their series are.
    values: RwLock<HashMap<Box<str>, PathCounters>>,
    /// The [`series::round`] in which a path found no room.
    full_in: AtomicU64,
}

#[derive(Debug, Default)]
struct OfDomain {
    lists: OnceLock<ListCounters>,
    limit_overrides: OnceLock<PathCounters>,
}

impl Companion for RuleCounters {
    fn for_rules(rules: &Rules) -> Self {
        let domains = rules.domains().count();
        Self {
            rules: (0..rules.rule_count()).map(|_| OfRule::default()).collect(),
            with_values: rules.rules().filter(|rule| rule.has_metric_of_values()).count(),
            domains: (0..domains).map(|_| OfDomain::default()).collect(),
            bans: by_rule::ban_counters(rules),
            rollouts: RolloutCounters::for_rules(rules),
            shares: CountersByRule::for_rules(rules, &SHARE_SERIES, |rule| rule.scope == Scope::Global),
        }
    }
}

impl RuleCounters {
    /// Counts a request that a list decided.
    pub(crate) fn listed(&self, domain: &Domain, list: List) {
        if let Some(counters) = self.domains.get(domain.index.as_usize()) {
            counters.lists.get_or_init(|| ListCounters::of(&domain.name)).count(list);
        }
    }

    /// Counts the decision of one descriptor, by the own region's share of the limit if there is one.
    pub(crate) fn hits(
        &self,
        domain: &Domain,
        entries: &[Entry<'_>],
        limited: &Limited<'_>,
        share: Option<u32>,
        hits: Hits,
        near_limit_ratio: f64,
    ) {
        let limit = share.map_or(limited.quota.limit, u64::from);
        let near = near_limit(limit, near_limit_ratio);
        let record = |counters: &PathCounters| {
            counters.record(limit, near, limited.is_shadow, hits, &limited.verdict);
        };
        match limited.rule {
            None => {
                self.limit_overrides(domain).inspect(|counters| record(counters));
            }
            Some(rule) => {
                let Some(counters) = self.of(rule) else { return };
                let with_values =
                    || counters.of_values(domain, rule, &rule.metric_path(entries), self.with_values);
                let of_values = rule.has_metric_of_values().then(with_values).flatten();
                record(of_values.as_ref().unwrap_or_else(|| counters.own(domain, rule)));
            }
        }
    }

    /// Counts the decision of a rule that sheds.
    pub(crate) fn shedding(&self, domain: &Domain, shed: &Shed<'_>, hits: u64) {
        let Some(counters) = self.of(shed.rule) else { return };
        let over = if shed.is_shed { hits } else { 0 };
        let (within, shadow) = if shed.denies() { (0, 0) } else { (hits, over) };
        counters.own(domain, shed.rule).add([hits, within, 0, over, shadow, 0]);
    }

    /// Counts the hits of a descriptor that the store did not decide, under the path of its rule, if it has one.
    pub(crate) fn degraded(&self, domain: &Domain, rule: Option<&Rule>, hits: Hits) {
        let counters = match rule {
            None => self.limit_overrides(domain),
            Some(rule) => self.of(rule).map(|counters| counters.own(domain, rule)),
        };
        counters.inspect(|counters| counters.add([0, 0, 0, 0, 0, hits.charged()]));
    }

    fn of(&self, rule: &Rule) -> Option<&OfAlgorithm> {
        self.rules.get(rule.index().as_usize()).map(|counters| counters.of(rule))
    }

    fn limit_overrides(&self, domain: &Domain) -> Option<&PathCounters> {
        let counters = self.domains.get(domain.index.as_usize())?;
        Some(
            counters
                .limit_overrides
                .get_or_init(|| PathCounters::of_rule(&domain.name, LIMIT_OVERRIDE, None)),
        )
    }
}

impl OfRule {
    fn of(&self, rule: &Rule) -> &OfAlgorithm {
        let algorithm = rule.algorithm().filter(|_| rule.is_override());
        let overriding = || self.overriding.get_or_init(Box::default);
        algorithm.and_then(|algorithm| overriding().get(algorithm_index(algorithm))).unwrap_or(&self.stated)
    }
}

impl OfAlgorithm {
    fn own(&self, domain: &Domain, rule: &Rule) -> &PathCounters {
        self.own.get_or_init(|| PathCounters::of_rule(&domain.name, &rule.path(), rule.algorithm()))
    }

    /// The counters of a path with values, unless there are too many such paths, or it is too long. For a path that belongs
    /// to another rule, they are the rule's own.
    fn of_values(&self, domain: &Domain, rule: &Rule, path: &str, rules: usize) -> Option<PathCounters> {
        if path.len() > MAX_PATH_BYTES {
            SERIES_DROPPED.increment(0);
            return None;
        }
        if let Some(known) = self.values.read().get(path) {
            return Some(known.clone());
        }
        // Callers may send any number of values: those that find no room do not contend for a lock.
        let round = series::round();
        if self.full_in.load(Ordering::Relaxed) == round {
            SERIES_DROPPED.increment(0);
            return None;
        }
        let made = match PathCounters::of_values(&domain.name, path, rule, rules) {
            Ok(made) => made,
            Err(NoSeries::Taken) => PathCounters { room: Room::Shared, ..self.own(domain, rule).clone() },
            Err(NoSeries::Full) => {
                self.full_in.store(round, Ordering::Relaxed);
                SERIES_DROPPED.increment(0);
                return None;
            }
        };
        // Another worker may have made them meanwhile; both count in the same place.
        Some(self.values.write().entry(path.into()).or_insert(made).clone())
    }
}

/// Counters of one path.
#[derive(Clone, Debug)]
struct PathCounters {
    /// In the order of [`RULE_KINDS`].
    series: Arc<Striped<KINDS>>,
    room: Room,
}

impl PathCounters {
    fn of_rule(domain: &str, path: &str, algorithm: Option<Algorithm>) -> Self {
        let (series, room) = series::of_rule(domain, path);
        Self { series: counters(&series, algorithm), room }
    }

    /// The counters of a path with a request's values in it, if it can have its own.
    fn of_values(domain: &str, path: &str, rule: &Rule, rules: usize) -> Result<Self, NoSeries> {
        let (own, algorithm) = (rule.path(), rule.algorithm());
        if path == own {
            return Ok(Self::of_rule(domain, path, algorithm));
        }
        series::of_values(domain, path, &own, rules)
            .map(|series| Self { series: counters(&series, algorithm), room: Room::Own })
    }

    fn add(&self, amounts: [u64; KINDS]) {
        if self.room == Room::Shared {
            SERIES_DROPPED.increment(0);
        }
        self.series.add(amounts);
    }

    /// Counts a decision. Hits that straddle a threshold are counted in parts on either side.
    fn record(&self, limit: u64, near: u64, is_shadow: bool, hits: Hits, verdict: &Verdict) {
        let charged = hits.charged();
        if charged == 0 {
            return;
        }
        // A request for too many permits is decided as one for even more.
        let over = verdict.over.min(charged);
        // Those of the hits that had room, and the part of them that lies above the threshold.
        let fitting = charged.saturating_sub(over);
        let near_hits = if verdict.admitted {
            verdict.used.saturating_add(verdict.held).saturating_sub(near).min(fitting)
        } else {
            limit.saturating_sub(near).min(fitting)
        };
        let (within, denied) = if verdict.admitted { (charged, 0) } else { (0, over) };
        let shadow = if is_shadow { over } else { 0 };
        self.add([charged, within, near_hits, denied, shadow, 0]);
    }
}

/// Counters that are published to a series, and to the sums of its algorithm if the rule has one.
fn counters(series: &Series, algorithm: Option<Algorithm>) -> Arc<Striped<KINDS>> {
    match algorithm.and_then(|algorithm| SUMS.get(algorithm_index(algorithm))) {
        Some(sums) => series.counters_in(sums),
        None => series.counters(),
    }
}

/// The hits above which a limit is near, rounded down.
#[allow(clippy::float_arithmetic)] // The ratio is the operator's; one hit more or less does not matter in a metric.
fn near_limit(limit: u64, ratio: f64) -> u64 {
    if limit > u32::MAX.into() {
        return (limit as f64 * ratio) as u64;
    }
    // In the precision of envoyproxy/ratelimit, so that both round alike.
    (limit as f32 * ratio as f32) as u64
}

/// Hits of a rule since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleTotal {
    /// Decided.
    pub hits: u64,
    /// Passed.
    pub within: u64,
    /// Within the limit and near it.
    pub near: u64,
    /// Over the limit.
    pub over: u64,
    /// Over the limit, and passed because of shadow mode.
    pub shadow: u64,
    /// Not decided by the store.
    pub degraded: u64,
}

/// Hits of every rule, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct RuleTotals(HashMap<Box<str>, HashMap<Box<str>, [u64; KINDS]>>);

impl RuleTotals {
    /// Hits of the rule with that path ([`Rule::path`]), under all values that metrics name for it; zero for a rule
    /// that has no series of its own.
    pub fn of(&self, domain: &str, path: &str) -> RuleTotal {
        let counted = self.0.get(domain).and_then(|rules| rules.get(path)).copied().unwrap_or_default();
        let [hits, within, near, over, shadow, degraded] = counted;
        RuleTotal { hits, within, near, over, shadow, degraded }
    }
}

/// Hits of every rule since the start of the process. Reads thousands of series: to be called once for a whole table.
pub fn rule_totals() -> RuleTotals {
    publish();
    let mut totals = RuleTotals::default();
    for series in series::all() {
        let rules = totals.0.entry(series.domain.clone()).or_default();
        let total = rules.entry(series.rule.clone()).or_default();
        for (sum, counted) in total.iter_mut().zip(series.counted()) {
            *sum = sum.saturating_add(counted);
        }
    }
    totals
}

#[cfg(test)]
mod tests;
