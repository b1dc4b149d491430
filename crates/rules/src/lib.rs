//! Compiled rules, valid by construction, and the lists, switches and overrides that operators set at run time.
//!
//! [`config`] compiles them from YAML; the rest of the crate is independent of files and formats. [`Rules`] are
//! immutable; [`Snapshot`] holds the active ones and replaces them as a whole.
//!
//! A descriptor walks the tree of its domain, one [`Level`] per entry; its last match is its [`Rule`]. There is no
//! backtracking: only the first branch that matches an entry is followed, as in envoyproxy/ratelimit.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod addresses;
mod calendar;
pub mod config;
mod level;
mod limit_text;
mod lists;
mod path;
mod pattern;
mod rule;
mod rule_keys;
mod rule_overrides;
mod snapshot;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use foldhash::quality::RandomState;
use tollgate_core::algorithm::{Algorithm, Charging};
use tollgate_core::{SyncMode, clock::Timestamp};

pub use self::{
    addresses::{CanonicalAddresses, CidrTable, lacks_address},
    config::region_table::{RegionEntry, RegionTable},
    level::{Level, Matcher, Node},
    limit_text::{StatedOption, candidate_text, limit_options, limit_text, shedding_text},
    lists::{ALL_NAMES, List, Listing, ListingError, Lists, StatedPair, SwitchMode, Switched, ValueMatch},
    path::unescaped as unescaped_path,
    pattern::{Regex, RegexError, Wildcard},
    rule::{Derived, Limit, LimitPart, MAX_RETRY_AFTER_SPREAD, Rule, RuleIndex, Segment, Value},
    rule_keys::{
        Candidate, NotifyThresholds, OnShareExhausted, OnStoreError, Rollout, Scope, Shedding, StatedValue,
        TableSize, UTILIZATION_KEY, Weights,
    },
    rule_overrides::{
        Overridden, OverriddenCounts, OverrideId, OverrideKey, OverrideKeyError, RuleOverride, RuleOverrides,
        UnmatchedOverride,
    },
    snapshot::{ActiveSet, Companion, OverrideTarget, Snapshot, SnapshotGuard},
};

/// Rules of all domains in one version of the configuration.
#[derive(Debug, Default)]
pub struct Rules {
    domains: HashMap<Box<str>, Domain, RandomState>,
    /// Counted once, since there may be many rules.
    rule_count: usize,
}

/// Rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    /// The name that requests carry.
    pub name: Box<str>,
    /// The first level of the tree.
    pub root: Level,
    /// The algorithm of a limit override that matches no rule.
    pub default_algorithm: Algorithm,
    /// The policy of such a limit while the store fails, if the domain states one.
    pub default_on_store_error: Option<OnStoreError>,
    /// Whether the counters of a request are charged independently, or all or none.
    pub charging: Charging,
    /// Whether a limit that denies counts the hits, where it keeps the others from being charged.
    pub counts_denied: bool,
    /// The keys whose values form the hash tag of requests that have any of these keys. If empty, the values that a rule
    /// leaves open form it.
    pub hash_tag: Box<[Box<str>]>,
    /// Index among all domains of one version, set by [`Rules::new`].
    pub index: DomainIndex,
    /// Whether a rule sheds, set by [`Rules::new`].
    pub sheds: bool,
    /// Keys of the rules for address ranges, set by [`Rules::new`].
    pub address_keys: BTreeSet<Box<str>>,
}

/// Index of a domain among all domains of one version of the rules, dense from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainIndex(u32);

impl DomainIndex {
    /// The index into a table.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl Domain {
    /// The synchronization of a rule's counter. It is strict if all counters of a request are charged or none, since that
    /// needs all of them at once; so it is for one of several limits of a descriptor.
    pub fn sync_of(&self, rule: &Rule) -> SyncMode {
        match self.charging {
            Charging::Independent if rule.part.is_none() => rule.sync,
            Charging::Independent | Charging::AllOrNone => SyncMode::Strict,
        }
    }

    /// Hands the state of rules that shed to those of the same path.
    fn succeed_shedding(&self, former: &Self) {
        let former: HashMap<String, &Shedding> =
            former.shedding_rules().map(|(rule, shedding)| (rule.path(), shedding)).collect();
        for (rule, shedding) in self.shedding_rules() {
            former.get(&rule.path()).inspect(|former| shedding.succeed(former));
        }
    }

    /// The rules that shed, in no particular order.
    pub fn shedding_rules(&self) -> impl Iterator<Item = (&Arc<Rule>, &Shedding)> {
        let rules = self.sheds.then(|| self.root.rules()).into_iter().flatten();
        rules.filter_map(|rule| Some((rule, rule.shedding.as_deref()?)))
    }
}

impl Rules {
    /// Returns the rules of `domains`, whose names are distinct; of equal names the last one is kept.
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Self {
        let mut domains: HashMap<_, Domain, _> =
            domains.into_iter().map(|domain| (domain.name.clone(), domain)).collect();
        for (domain, index) in domains.values_mut().zip(0..) {
            domain.index = DomainIndex(index);
            domain.sheds = domain.root.rules().any(|rule| rule.shedding.is_some());
            domain.root.add_address_keys(&mut domain.address_keys);
            domain.root.add_canonical_addresses(&domain.address_keys);
        }
        let mut rule_count = 0_usize;
        for rule in domains.values().flat_map(|domain| domain.root.rules()) {
            rule.set_index(RuleIndex::new(rule_count));
            rule_count = rule_count.saturating_add(1);
        }
        Self { domains, rule_count }
    }

    /// Informs the rules, which are not active yet, that they replace `former` at `now`: a sliding window decides counters
    /// whose window was changed by the time of the change, and a rule that sheds goes on as before.
    pub fn succeed(&self, former: &Self, now: Timestamp) {
        for domain in self.domains.values() {
            let Some(former) = former.domain(&domain.name) else { continue };
            domain.succeed_shedding(former);
            let may_differ =
                |rule: &&Arc<Rule>| rule.policy().is_some_and(|policy| policy.depends_on_former());
            let mut succeeding = domain.root.rules().filter(may_differ).peekable();
            if succeeding.peek().is_none() {
                continue;
            }
            let by_path: HashMap<_, _, RandomState> =
                former.root.rules().map(|rule| (rule.record_id().path(), rule)).collect();
            for rule in succeeding {
                if let Some(former) = by_path.get(&rule.record_id().path()) {
                    rule.succeed(former, now);
                }
            }
        }
    }

    /// The rules of the domain `name`.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// All domains, in no particular order.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    /// All rules with their domains, in no particular order.
    pub fn rules_of_domains(&self) -> impl Iterator<Item = (&Domain, &Arc<Rule>)> {
        self.domains().flat_map(|domain| domain.root.rules().map(move |rule| (domain, rule)))
    }

    /// Number of rules in all domains.
    pub const fn rule_count(&self) -> usize {
        self.rule_count
    }

    /// Number of these rules that `other` lacks: it has no rule of their domain and path.
    pub fn missing_in(&self, other: &Self) -> usize {
        let missing = self.domains().map(|domain| {
            let paths: HashSet<String, RandomState> = other
                .domain(&domain.name)
                .into_iter()
                .flat_map(|domain| domain.root.rules())
                .map(|rule| rule.path())
                .collect();
            domain.root.rules().filter(|rule| !paths.contains(&rule.path())).count()
        });
        missing.sum()
    }

    /// All rules of all domains, in no particular order.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.domains.values().flat_map(|domain| domain.root.rules())
    }
}
