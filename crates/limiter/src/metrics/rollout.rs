//! Gradual changes of limits: hits by the side of their key, samples of the keys for which a limit is enforced, and
//! comparisons with candidates.
//!
//! Ramps are judged by keys, since a client chooses its number of hits.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_core::{CountedKey, algorithm::Verdict, clock::Clock};
use tollgate_metrics::{Computed, Declared, Striped, publish};
use tollgate_rules::{Domain, Rule, Rules};

use super::by_rule::SeriesByRule;
use crate::shadow_mode::Side;

/// Maximum number of rules that have series of their own, of either kind.
const MAX_RULES: usize = 1_000;

/// Counts of one rule.
const COUNTS: usize = 4;

pub(super) static ENFORCEMENT: Computed<2> = Computed::group(
    [
        Declared::counter(
            "tollgate_rule_enforcement_hits_total",
            &["domain", "rule", "side"],
            "Hits of a limit that is enforced for a share of its keys, by the side of the key.",
        ),
        Declared::counter(
            "tollgate_rule_enforcement_over_limit_total",
            &["domain", "rule", "side"],
            "Hits over such a limit, by the side of the key: denied, or counted as shadow.",
        ),
    ],
    |[hits, over], page| {
        publish();
        ENFORCED.write(page, hits, &[("enforced", 0), ("shadow", 2)]);
        ENFORCED.write(page, over, &[("enforced", 1), ("shadow", 3)]);
    },
);

pub(super) static CANDIDATES: Computed<1> = Computed::counter(
    "tollgate_rule_candidate_hits_total",
    &["domain", "rule", "outcome"],
    "Hits decided by a rule and its candidate, by which of them denied.",
    |[hits], page| {
        publish();
        COMPARED.write(page, hits, &Outcome::ALL.into_iter().map(Outcome::name).zip(0..));
    },
);

/// Hits and hits over the limit of the enforced keys, then those of the others; with a sample of the enforced keys.
static ENFORCED: SeriesByRule<COUNTS, Arc<Mutex<KeySample>>> = SeriesByRule::new(MAX_RULES);

/// Hits by outcome, in the order of [`Outcome::ALL`].
static COMPARED: SeriesByRule<COUNTS> = SeriesByRule::new(MAX_RULES);

/// Counters of the rules of one version, by their index; each is made when it is first used.
#[derive(Debug, Default)]
pub(crate) struct RolloutCounters(Vec<RuleRollout>);

#[derive(Debug, Default)]
struct RuleRollout {
    sides: OnceLock<SideCounters>,
    outcomes: OnceLock<Arc<Striped<COUNTS>>>,
}

/// Counters of a rule by the side of the key, with a sample of the enforced keys.
#[derive(Debug)]
struct SideCounters {
    counts: Arc<Striped<COUNTS>>,
    keys: Arc<Mutex<KeySample>>,
}

impl RolloutCounters {
    pub(super) fn for_rules(rules: &Rules) -> Self {
        Self((0..rules.rule_count()).map(|_| RuleRollout::default()).collect())
    }

    /// Counts a decision of a limit that is enforced for a share of its keys.
    pub(crate) fn side(
        &self,
        domain: &Domain,
        rule: &Rule,
        side: Side,
        entries: &[Entry<'_>],
        hits: Hits,
        verdict: &Verdict,
    ) {
        let (charged, over) = (hits.charged(), verdict.over.min(hits.charged()));
        let over = if verdict.admitted { 0 } else { over };
        let Some(of_rule) = self.0.get(rule.index().as_usize()) else { return };
        let SideCounters { counts, keys } = of_rule.sides.get_or_init(|| {
            let series = ENFORCED.of(&domain.name, &rule.path());
            SideCounters { keys: Arc::clone(&series.kept), counts: series.counters() }
        });
        // A sample, which does without those that two workers have at the same time.
        if side == Side::Enforced
            && charged > 0
            && let Some(mut keys) = keys.try_lock()
        {
            keys.record(rule.counted_key(&domain.name, entries), over > 0);
        }
        counts.add(match side {
            Side::Enforced => [charged, over, 0, 0],
            Side::Shadow => [0, 0, charged, over],
        });
    }

    /// Counts a decision of a rule and its candidate.
    pub(crate) fn compared(&self, domain: &Domain, rule: &Rule, outcome: Outcome, hits: u64) {
        let Some(of_rule) = self.0.get(rule.index().as_usize()) else { return };
        let counters = of_rule.outcomes.get_or_init(|| COMPARED.of(&domain.name, &rule.path()).counters());
        let mut counts = [0; COUNTS];
        if let Some(count) = counts.get_mut(outcome as usize) {
            *count = hits;
        }
        counters.add(counts);
    }
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
    publish();
    ENFORCED.totals(|[enforced, denied, shadow, shadow_over], keys| {
        let keys = keys.lock().keys();
        EnforcementTotal { enforced, denied, shadow, shadow_over, keys }
    })
}

/// Hits of every rule that had a candidate since the start of the process, by domain and path, in the order of
/// [`Outcome::ALL`].
pub fn candidate_totals() -> Vec<(Box<str>, Box<str>, [u64; COUNTS])> {
    publish();
    COMPARED.totals(|counts, ()| counts)
}

tollgate_core::named! {
    /// Decision of a rule and its candidate on the same hits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Outcome {
        /// Both admit.
        Admitted = "admitted",
        /// Only the rule denies.
        RuleOnly = "rule_only",
        /// Only the candidate denies.
        CandidateOnly = "candidate_only",
        /// Both deny.
        Denied = "denied",
    }
}

impl Outcome {
    pub(crate) const fn of(rule_admits: bool, candidate_admits: bool) -> Self {
        match (rule_admits, candidate_admits) {
            (true, true) => Self::Admitted,
            (false, true) => Self::RuleOnly,
            (true, false) => Self::CandidateOnly,
            (false, false) => Self::Denied,
        }
    }
}

/// Maximum number of keys of a rule in a sample: those with the lowest hashes, so that samples of several instances have
/// keys in common.
pub const MAX_SAMPLED_KEYS: usize = 256;

/// Time in seconds after which a key that has no requests leaves the sample.
const MAX_AGE_S: u32 = 600;

/// Enforced key of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledKey {
    /// Its hash.
    #[serde(rename = "k")]
    pub key: u32,
    /// Seconds since its last request.
    #[serde(rename = "s")]
    pub seen_s: u32,
    /// Seconds since it was last denied, if it was.
    #[serde(rename = "d")]
    pub denied_s: Option<u32>,
}

/// Times of the last request and of the last denial by the hash of the key, in seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct KeySample(BTreeMap<u32, (u32, Option<u32>)>);

impl KeySample {
    /// Records a request of a key.
    pub(super) fn record(&mut self, key: CountedKey, is_denied: bool) {
        // Other bits than those that select the side of the key.
        let key = u32::try_from(key.hash().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or_default();
        let is_full = self.0.len() >= MAX_SAMPLED_KEYS;
        if is_full && self.0.last_key_value().is_some_and(|(last, _)| key > *last) {
            return;
        }
        let now = Clock::System.now().seconds();
        let (seen, denied) = self.0.entry(key).or_default();
        (*seen, *denied) = (now, if is_denied { Some(now) } else { *denied });
        if self.0.len() > MAX_SAMPLED_KEYS {
            self.0.pop_last();
        }
    }

    /// The keys, by their hashes.
    pub(super) fn keys(&mut self) -> Vec<SampledKey> {
        let now = Clock::System.now().seconds();
        let age = |at: u32| now.saturating_sub(at);
        self.0.retain(|_, (seen, _)| age(*seen) <= MAX_AGE_S);
        let keys = self.0.iter().map(|(key, (seen, denied))| SampledKey {
            key: *key,
            seen_s: age(*seen),
            denied_s: denied.map(age),
        });
        keys.collect()
    }
}
