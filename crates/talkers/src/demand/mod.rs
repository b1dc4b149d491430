//! Demand of keys in windows, and the limits that it recommends.
//!
//! ```text
//! samples of top talkers ──> demand of each key since the last round ──> windows of each rule ──> distributions
//! ```
//!
//! Nothing is added to the path of a request: the samples are those of top talkers, which are complete up to
//! 5,000 hits a second of a worker, and random above that. The counted key of a sample is hashed; of too many keys, those
//! with the lowest hashes stay, each on behalf of others, so that memory is bounded and the rest is a fair sample.

mod sketch;
mod taken;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use tollgate_core::{descriptor::Entry, quota::Quota};
use tollgate_rules::{Domain, Limit, Overridden, Rule, Rules};

use self::sketch::DemandSketch;
pub(crate) use self::taken::DemandSince;
pub use self::taken::{KeyDemand, TakenDemand};
use crate::OwnedEntry;

/// Maximum number of rules that are observed.
const MAX_RULES: usize = 256;

/// Maximum number of keys of all rules in a window: 6 MiB.
const MAX_KEYS: usize = 262_144;

/// Range of the number of keys of one rule in a window; of more, a sample stays.
const KEYS_OF_RULE: (usize, usize) = (1_024, 16_384);

/// Groups of keys whose recommendations differ by chance, which shows the error.
const GROUPS: usize = 8;

/// Low bits of a hash, which choose its group.
const GROUP_MASK: u64 = GROUPS as u64 - 1;

/// Value of Student's distribution with 7 degrees of freedom for 95 % on both sides.
const STUDENT: f64 = 2.365;

/// Time of one generation of distributions; the last two are evaluated.
const GENERATION_S: u64 = 3_600;

/// Parts of requests or keys for which limits are recommended.
pub const PARTS: [f64; 3] = [0.001, 0.01, 0.05];

/// Domain and path of a rule.
type RuleName = (Box<str>, Box<str>);

fn name_of(domain: &Domain, rule: &Rule) -> RuleName {
    ((*domain.name).into(), rule.path().into())
}

/// Demand of all rules on this instance.
#[derive(Debug, Default)]
pub struct Demand {
    rules: HashMap<RuleName, RuleDemand, RandomState>,
}

/// Demand of one rule.
#[derive(Debug)]
struct RuleDemand {
    window_s: u64,
    /// Number of the open window since 1970.
    window: u64,
    /// Whether the open window was observed from its beginning.
    is_whole: bool,
    /// Hits of keys in the open window, by hash.
    keys: HashMap<u64, u64, RandomState>,
    /// Highest hash of a sampled key.
    threshold: u64,
    generations: [Generation; 2],
}

#[derive(Clone, Debug, Default)]
struct Generation {
    /// Begin, in seconds since 1970.
    since_s: u64,
    windows: u64,
    groups: [DemandSketch; GROUPS],
    /// Sum of the keys of each window that were counted.
    counted: u64,
}

/// Distributions of a rule over all generations.
struct Merged {
    all: DemandSketch,
    groups: [DemandSketch; GROUPS],
    windows: u64,
    /// Begin of the first, in seconds since 1970.
    since_s: u64,
}

/// Recommended limits of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The domain.
    pub domain: String,
    /// The rule's path.
    pub rule: String,
    /// The active limit, in hits per window.
    pub limit: u64,
    /// The window in seconds.
    pub window_s: u64,
    /// Number of windows that were observed.
    pub windows: u64,
    /// Begin of the observation, in seconds since 1970.
    pub since_s: u64,
    /// Mean number of keys in a window.
    pub keys: f64,
    /// Mean number of hits in a window.
    pub hits: f64,
    /// Part of the hits that the active limit would deny, 0 to 1.
    pub denied_hits: f64,
    /// Part of the keys of a window of which it would deny a hit, 0 to 1.
    pub denied_keys: f64,
    /// Limits that deny a part of the hits.
    pub by_hits: Vec<RecommendedLimit>,
    /// Limits that deny a hit of a part of the keys.
    pub by_keys: Vec<RecommendedLimit>,
}

/// A limit that denies a part, with the interval that contains it with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecommendedLimit {
    /// The part, 0 to 1.
    pub part: f64,
    /// The limit in hits per window.
    pub limit: u64,
    /// Lower end of the interval.
    pub low: u64,
    /// Upper end of the interval; too few keys for an error have none.
    pub high: Option<u64>,
}

impl Demand {
    /// Adds the requested hits of keys since the last call, at `now_s` in seconds since 1970, by the active rules.
    pub fn add(&mut self, rules: &Rules, overridden: &Overridden, demand: &[KeyDemand], now_s: u64) {
        for KeyDemand { domain, entries, hits } in demand {
            let Some(domain) = rules.domain(domain) else { continue };
            let entries: Vec<Entry<'_>> =
                entries.iter().map(|OwnedEntry { key, value }| Entry { key, value }).collect();
            for found in domain.root.limits(&entries) {
                let rule = overridden.rule_of(found, &entries, || now_s.saturating_mul(1_000));
                self.add_to(domain, rule, &entries, *hits, now_s);
            }
        }
        self.rules.values_mut().for_each(|of_rule| of_rule.advance(now_s));
    }

    fn add_to(&mut self, domain: &Domain, rule: &Rule, entries: &[Entry<'_>], hits: u64, now_s: u64) {
        let Some(quota) = quota_of(rule) else { return };
        let window_s = u64::from(quota.window.seconds());
        let name = name_of(domain, rule);
        if self.rules.len() >= MAX_RULES && !self.rules.contains_key(&name) {
            return;
        }
        let (least, most) = KEYS_OF_RULE;
        let room = MAX_KEYS.checked_div(self.rules.len()).unwrap_or(most).clamp(least, most);
        let of_rule = self.rules.entry(name).or_insert_with(|| RuleDemand::new(window_s, now_s));
        if of_rule.window_s != window_s {
            *of_rule = RuleDemand::new(window_s, now_s);
        }
        of_rule.advance(now_s);
        of_rule.add(rule.counted_key(&domain.name, entries).hash(), hits, room);
    }

    /// Forgets rules that are not active.
    pub fn retain(&mut self, rules: &Rules) {
        if self.rules.is_empty() {
            return;
        }
        let active: HashSet<RuleName> =
            rules.rules_of_domains().map(|(domain, rule)| name_of(domain, rule)).collect();
        self.rules.retain(|name, _| active.contains(name));
    }

    /// Recommends limits for the rules with at least one whole window, for each of `instances` that share the traffic
    /// evenly, by domain and rule.
    pub fn recommendations(&self, rules: &Rules, instances: u32) -> Vec<Recommendation> {
        let found = rules.rules_of_domains().filter_map(|(domain, rule)| {
            let of_rule = self.rules.get(&name_of(domain, rule))?;
            of_rule.recommend(&domain.name, rule, quota_of(rule)?, instances.max(1))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by(|a, b| (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule)));
        found
    }
}

/// The quota of a rule with a window.
fn quota_of(rule: &Rule) -> Option<Quota> {
    match rule.limit {
        Limit::Quota { quota, policy } if !policy.algorithm().holds_permits() => Some(quota),
        Limit::Quota { .. } | Limit::Unlimited => None,
    }
}

#[allow(clippy::float_arithmetic)] // Estimates.
impl RuleDemand {
    fn new(window_s: u64, now_s: u64) -> Self {
        let generation = Generation { since_s: now_s, ..Generation::default() };
        Self {
            window_s,
            window: now_s.checked_div(window_s).unwrap_or_default(),
            is_whole: false,
            keys: HashMap::default(),
            threshold: u64::MAX,
            generations: [generation, Generation::default()],
        }
    }

    /// Closes windows that have ended.
    fn advance(&mut self, now_s: u64) {
        let window = now_s.checked_div(self.window_s).unwrap_or_default();
        if window == self.window {
            return;
        }
        let [active, before] = &mut self.generations;
        if self.is_whole {
            let sampled = (self.threshold as f64 + 1.0) / (u64::MAX as f64 + 1.0);
            for (hash, hits) in &self.keys {
                // The low bits choose the group, the high ones the sample.
                if let Some(group) = active.groups.get_mut((*hash & GROUP_MASK) as usize) {
                    group.add(*hits, 1.0 / sampled);
                }
            }
            active.counted = active.counted.saturating_add(self.keys.len() as u64);
            active.windows = active.windows.saturating_add(1);
        }
        self.keys.clear();
        self.threshold = u64::MAX;
        // An absence of some windows has no demand to count.
        self.is_whole = true;
        self.window = window;
        // At least some windows of a long one.
        let length = GENERATION_S.max(self.window_s.saturating_mul(4));
        if now_s.saturating_sub(active.since_s) >= length {
            *before = std::mem::take(active);
            active.since_s = now_s;
        }
    }

    fn add(&mut self, hash: u64, hits: u64, room: usize) {
        if hash > self.threshold {
            return;
        }
        let known = self.keys.entry(hash).or_default();
        *known = known.saturating_add(hits);
        while self.keys.len() > room {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.keys.retain(|hash, _| *hash <= threshold);
        }
    }

    /// Both generations; `None` without demand in a whole window.
    fn merged(&self) -> Option<Merged> {
        let [active, before] = &self.generations;
        let windows = active.windows.saturating_add(before.windows);
        let groups: [DemandSketch; GROUPS] = std::array::from_fn(|at| {
            let mut group = active.groups.get(at).cloned().unwrap_or_default();
            before.groups.get(at).iter().for_each(|other| group.merge(other));
            group
        });
        let mut all = DemandSketch::default();
        groups.iter().for_each(|group| all.merge(group));
        let since_s = if before.windows > 0 { before.since_s } else { active.since_s };
        (windows > 0 && all.keys() > 0.0).then_some(Merged { all, groups, windows, since_s })
    }

    fn recommend(&self, domain: &str, rule: &Rule, quota: Quota, instances: u32) -> Option<Recommendation> {
        let Merged { all, groups, windows, since_s } = self.merged()?;
        let scale = f64::from(instances);
        let own_limit = quota.limit as f64 / scale;
        type Estimate = fn(&DemandSketch, f64) -> Option<f64>;
        let limits = |estimate: Estimate| {
            PARTS.into_iter().filter_map(|part| limit(&all, &groups, estimate, part, scale)).collect()
        };
        Some(Recommendation {
            domain: domain.to_owned(),
            rule: rule.path(),
            limit: quota.limit,
            window_s: self.window_s,
            windows,
            since_s,
            keys: all.keys() / windows as f64,
            hits: scale * all.hits() / windows as f64,
            denied_hits: all.denied_hits(own_limit),
            denied_keys: all.denied_keys(own_limit),
            by_hits: limits(DemandSketch::limit_for_hits),
            by_keys: limits(DemandSketch::limit_for_keys),
        })
    }
}

/// The limit for a part, with its interval from the differences between groups of keys.
#[allow(clippy::float_arithmetic)] // Estimates.
fn limit(
    all: &DemandSketch,
    groups: &[DemandSketch; GROUPS],
    estimate: fn(&DemandSketch, f64) -> Option<f64>,
    part: f64,
    scale: f64,
) -> Option<RecommendedLimit> {
    let limit = scale * estimate(all, part)?;
    // A group must have some keys beyond the limit for its error to be known.
    let values: Vec<f64> = groups
        .iter()
        .filter(|group| group.keys() * part >= 1.0)
        .filter_map(|group| Some(scale * estimate(group, part)?))
        .collect();
    let error = (values.len() == GROUPS).then(|| {
        let count = GROUPS as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        STUDENT * (variance / count).sqrt()
    });
    let whole = |value: f64| value.max(0.0).ceil() as u64;
    Some(RecommendedLimit {
        part,
        limit: whole(limit),
        low: error.map_or(0, |error| whole(limit - error)),
        high: error.map(|error| whole(limit + error)),
    })
}
