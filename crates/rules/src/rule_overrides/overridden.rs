//! Overrides of the rules of one version.

use std::{collections::HashMap, hash::BuildHasher as _, sync::Arc};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use tollgate_core::{algorithm::Charging, descriptor::Entry};

use super::{OverrideId, OverrideKey, RuleOverride, RuleOverrides, in_domain, of_request};
use crate::{Domain, Rule, Rules, config};

/// Maximum number of overrides without effect that are listed with their reasons.
const MAX_UNMATCHED: usize = 1_000;

/// Length of the keys that lie in the table.
const INLINE_KEY_BYTES: usize = 40;

/// Reason against a candidate in a domain whose requests are charged all or none.
const ATOMIC_CANDIDATE: &str = "a candidate cannot be compared beside `atomic: true`, where all limits of a request decide \
                                what is charged; expected a domain without it";

/// Reason against a candidate of one of several limits.
const CANDIDATE_OF_SEVERAL: &str = "a candidate cannot be compared with one of several limits, which is charged only if the \
                                    others pass; expected a rule with one";

/// Overrides of the rules of one version, by the index of the rule.
#[derive(Debug, Default)]
pub struct Overridden {
    /// Empty if no rule is overridden.
    rules: Vec<Option<Box<OverriddenRule>>>,
    hasher: RandomState,
    /// Numbers of overrides that were active when they were resolved.
    pub counts: OverriddenCounts,
    /// Overrides without effect, at most 1,000.
    pub unmatched: Vec<UnmatchedOverride>,
}

/// Numbers of overrides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverriddenCounts {
    /// Overrides of a whole rule.
    pub rules: usize,
    /// Overrides of a key.
    pub keys: usize,
    /// Overrides without effect: no rule, no such key of the rule, or an invalid limit for the rule.
    pub unmatched: usize,
}

/// Override without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedOverride {
    /// The override.
    pub id: OverrideId,
    /// Reason why it has no effect.
    pub reason: String,
}

/// Overrides of one rule.
#[derive(Debug, Default)]
struct OverriddenRule {
    whole: Option<Decider>,
    keys: HashTable<KeyOverride>,
    /// Rules in the place of this one; equal limits share one.
    limits: Vec<Arc<Rule>>,
}

/// Rule that decides in the place of another one.
#[derive(Debug)]
struct Decider {
    stated: Arc<RuleOverride>,
    rule: Arc<Rule>,
}

/// Override of a key. What a decision reads lies in the table, where it takes one access of memory: of 100,000 overrides,
/// few are in a processor's cache.
#[derive(Debug)]
struct KeyOverride {
    key: SmallVec<[u8; INLINE_KEY_BYTES]>,
    /// End in milliseconds since 1970; `u64::MAX` if it has none.
    ends_at_ms: u64,
    /// Index of the rule in `limits`.
    limit: u32,
    stated: Arc<RuleOverride>,
}

impl Overridden {
    /// Resolves the overrides that are active at `now_ms`, in milliseconds since 1970, for `rules`.
    pub fn new(rules: &Rules, overrides: &RuleOverrides, now_ms: u64) -> Self {
        let active: Vec<_> = overrides.all.iter().filter(|stated| stated.is_active_at(now_ms)).collect();
        let mut overridden = Self::default();
        if active.is_empty() {
            return overridden;
        }
        overridden.rules.resize_with(rules.rule_count(), || None);
        let by_path = by_path(rules, &active);
        // Compiled limits by rule and text.
        let mut compiled: HashMap<(usize, &str), Result<u32, String>, RandomState> = HashMap::default();
        for stated in active {
            let rule = by_path.get(&(&*stated.domain, &*stated.rule));
            let resolved = match rules.domain(&stated.domain).zip(rule) {
                None => Err("no active rule of this domain has this path".to_owned()),
                Some((domain, rule)) => check_key(domain, rule, &stated.key)
                    .and_then(|()| overridden.add(domain, rule, stated, &mut compiled)),
            };
            overridden.count(stated, resolved);
        }
        overridden
    }

    /// Adds an override of this rule.
    fn add<'a>(
        &mut self,
        domain: &Domain,
        rule: &Rule,
        stated: &'a Arc<RuleOverride>,
        compiled: &mut HashMap<(usize, &'a str), Result<u32, String>, RandomState>,
    ) -> Result<(), String> {
        let index = rule.index().as_usize();
        let place = self.rules.get_mut(index).ok_or("the rule is part of another version")?;
        let at = compiled.entry((index, &*stated.rate_limit)).or_insert_with(|| {
            let limit = config::override_rule(&stated.domain, rule, &stated.rate_limit)?;
            if domain.charging == Charging::AllOrNone && limit.rollout.candidate.is_some() {
                return Err(ATOMIC_CANDIDATE.to_owned());
            }
            if rule.part.is_some() && limit.rollout.candidate.is_some() {
                return Err(CANDIDATE_OF_SEVERAL.to_owned());
            }
            let limits = &mut place.get_or_insert_default().limits;
            limits.push(Arc::new(limit));
            u32::try_from(limits.len().saturating_sub(1)).map_err(|_| "too many overrides".to_owned())
        });
        let limit = at.clone()?;
        let place = place.get_or_insert_default();
        if stated.key.is_empty() {
            let rule = place.limits.get(limit as usize).cloned();
            place.whole = rule.map(|rule| Decider { stated: Arc::clone(stated), rule });
            return Ok(());
        }
        let hasher = |known: &KeyOverride| self.hasher.hash_one(known.key.as_slice());
        let key = in_domain(&stated.key, domain);
        let hash = self.hasher.hash_one(key.as_slice());
        let of_key = KeyOverride {
            key: SmallVec::from_slice(&key),
            ends_at_ms: stated.ends_at_ms.unwrap_or(u64::MAX),
            limit,
            stated: Arc::clone(stated),
        };
        place.keys.insert_unique(hash, of_key, hasher);
        Ok(())
    }

    fn count(&mut self, stated: &RuleOverride, resolved: Result<(), String>) {
        let OverriddenCounts { rules, keys, unmatched } = &mut self.counts;
        let count = match &resolved {
            Err(_) => unmatched,
            Ok(()) if stated.key.is_empty() => rules,
            Ok(()) => keys,
        };
        *count = count.saturating_add(1);
        if let (Err(reason), true) = (resolved, self.unmatched.len() < MAX_UNMATCHED) {
            self.unmatched.push(UnmatchedOverride { id: stated.id, reason });
        }
    }

    /// The override that decides a request with these entries in the place of `rule`, if one is active, and the rule that it
    /// makes; `now_ms` returns the time in milliseconds since 1970. An override of the key precedes one of the rule.
    pub fn deciding(
        &self,
        rule: &Rule,
        entries: &[Entry<'_>],
        now_ms: impl FnOnce() -> u64,
    ) -> Option<(&Arc<RuleOverride>, &Arc<Rule>)> {
        let OverriddenRule { whole, keys, limits } = self.of_rule(rule)?;
        let key = (!keys.is_empty()).then(|| of_request(rule, entries));
        let of_key = key.and_then(|key| {
            let hash = self.hasher.hash_one(key.as_slice());
            keys.find(hash, |known| known.key.as_slice() == key.as_slice())
        });
        if of_key.is_none() && whole.is_none() {
            return None;
        }
        let now_ms = now_ms();
        if let Some(found) = of_key.filter(|found| now_ms < found.ends_at_ms) {
            return Some((&found.stated, limits.get(found.limit as usize)?));
        }
        let whole = whole.as_ref().filter(|whole| whole.stated.is_active_at(now_ms))?;
        Some((&whole.stated, &whole.rule))
    }

    /// The rule that decides such a request: `rule`, unless an override is active.
    pub fn rule_of<'r>(
        &'r self,
        rule: &'r Arc<Rule>,
        entries: &[Entry<'_>],
        now_ms: impl FnOnce() -> u64,
    ) -> &'r Arc<Rule> {
        self.deciding(rule, entries, now_ms).map_or(rule, |(_, rule)| rule)
    }

    /// The override of a whole rule, and the rule that it makes.
    pub fn whole(&self, rule: &Rule, now_ms: u64) -> Option<(&Arc<RuleOverride>, &Arc<Rule>)> {
        let whole = self.of_rule(rule)?.whole.as_ref()?;
        whole.stated.is_active_at(now_ms).then_some((&whole.stated, &whole.rule))
    }

    /// Number of overrides of keys of this rule.
    pub fn keys_of(&self, rule: &Rule) -> usize {
        self.of_rule(rule).map_or(0, |overridden| overridden.keys.len())
    }

    fn of_rule(&self, rule: &Rule) -> Option<&OverriddenRule> {
        self.rules.get(rule.index().as_usize())?.as_deref()
    }
}

/// The rules that `overrides` name, by domain and path.
fn by_path<'r, 'o>(
    rules: &'r Rules,
    overrides: &[&'o Arc<RuleOverride>],
) -> HashMap<(&'o str, &'o str), &'r Arc<Rule>, RandomState> {
    let mut named: HashMap<&str, HashMap<&str, (), RandomState>, RandomState> = HashMap::default();
    for stated in overrides {
        named.entry(&stated.domain).or_default().insert(&stated.rule, ());
    }
    let mut found = HashMap::default();
    for (domain, paths) in named {
        for rule in rules.domain(domain).into_iter().flat_map(|domain| domain.root.rules()) {
            if let Some((path, ())) = paths.get_key_value(&*rule.path()) {
                found.insert((domain, *path), rule);
            }
        }
    }
    found
}

/// Checks that a request can count under a key of the rule.
fn check_key(domain: &Domain, rule: &Rule, key: &OverrideKey) -> Result<(), String> {
    if key.is_empty() {
        return Ok(());
    }
    let entries = key.request(rule).ok_or_else(|| expected_key(rule))?;
    if !domain.root.leads_to(rule, &rule.segments, &entries) {
        return Err(format!(
            "no request with `{key}` is decided by this rule; expected values that it matches, and no rule before it"
        ));
    }
    let counted = OverrideKey::of_counter(rule, &entries);
    match counted == *key {
        true => Ok(()),
        false => Err(format!("requests with `{key}` count as `{counted}`; expected that key")),
    }
}

fn expected_key(rule: &Rule) -> String {
    let open = rule.segments.iter().filter(|segment| segment.is_open());
    let keys: Vec<&str> = open.map(|segment| &*segment.key).collect();
    match keys.is_empty() {
        true => "the rule has one counter for all requests; expected no key".to_owned(),
        false => {
            format!("the key has not the entries that the rule leaves open; expected {}", keys.join(", "))
        }
    }
}
