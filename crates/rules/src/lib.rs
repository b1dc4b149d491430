//! The compiled rules: what runs, valid by construction.
//!
//! [`config`](crate::config) builds them from what the user wrote; nothing here knows files or YAML. A
//! [`Rules`] is immutable. [`Snapshot`] holds the one in force and swaps it whole.
//!
//! A descriptor walks the tree of its domain, one [`Level`] per entry, and what it matches last is its
//! [`Rule`]. There is no backtracking: the first branch that matches an entry is the only one followed, as in
//! the reference.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod cidr;
pub mod config;
mod level;
mod on_store_error;
mod overrides;
mod regex;
mod rule;
mod snapshot;
mod wildcard;

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;

pub use self::level::join;
pub use self::{
    cidr::CidrTable,
    level::{Branch, Duplicate, Level, Matcher, Node},
    on_store_error::OnStoreError,
    overrides::{List, Listing, ListingError, Overrides, SwitchMode, Switched},
    regex::{Regex, RegexError},
    rule::{Derived, Limit, Rule, RuleIndex, Segment, Value},
    snapshot::{ActiveSet, Companion, OverrideTarget, Snapshot, SnapshotGuard},
    wildcard::Wildcard,
};
use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Charging},
};

/// Every domain's rules, as one version of the configuration states them.
#[derive(Debug, Default)]
pub struct Rules {
    domains: HashMap<Box<str>, Domain, RandomState>,
    /// Counted when they are loaded: they may be many.
    rule_count: usize,
}

/// One domain's rules.
#[derive(Debug)]
pub struct Domain {
    /// The name that requests carry.
    pub name: Box<str>,
    /// The first level of its descriptors.
    pub root: Level,
    /// The algorithm of a limit that a request brings along and no rule matches.
    pub default_algorithm: Algorithm,
    /// How the counter of such a limit is decided when the store does not, where the domain says.
    pub default_on_store_error: Option<OnStoreError>,
    /// Whether the counters of a request are charged each for itself, or all or none.
    pub charging: Charging,
    /// The keys whose values make the hash tag of a request that has any of them; when there are none, it is made
    /// of the values that a rule leaves open.
    pub hash_tag: Box<[Box<str>]>,
    /// Index among all domains of one version, set by [`Rules::new`].
    pub index: DomainIndex,
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
    /// Whether the counter of one of the domain's rules may be decided from what an instance holds: not where all
    /// counters of a request are charged or none, since that takes all of them at once.
    pub fn sync_of(&self, rule: &Rule) -> SyncMode {
        match self.charging {
            Charging::Independent => rule.sync,
            Charging::AllOrNone => SyncMode::Strict,
        }
    }
}

impl Rules {
    /// The rules of `domains`, whose names are distinct (the last one of a name stays).
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Self {
        let mut domains: HashMap<_, Domain, _> =
            domains.into_iter().map(|domain| (domain.name.clone(), domain)).collect();
        for (domain, index) in domains.values_mut().zip(0..) {
            domain.index = DomainIndex(index);
        }
        let mut rule_count = 0_usize;
        for rule in domains.values().flat_map(|domain| domain.root.rules()) {
            rule.set_index(RuleIndex::new(rule_count));
            rule_count = rule_count.saturating_add(1);
        }
        Self { domains, rule_count }
    }

    /// The rules of the domain `name`.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Every domain, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    /// How many rules there are in all domains.
    pub const fn rule_count(&self) -> usize {
        self.rule_count
    }

    /// Every rule of every domain, in no order.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.domains.values().flat_map(|domain| domain.root.rules())
    }
}
