//! Allow and deny lists, and switches of single rules, which operators set at run time.

mod listing;

use std::collections::HashMap;

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use tollgate_core::{EnforcedShare, descriptor::Entry};

use self::listing::Pattern;
use crate::{CidrTable, Rule, Rules, Wildcard};

pub use self::listing::{Listing, ListingError, StatedPair};

tollgate_core::named! {
    /// List of an entry, and so its effect on the requests that it matches.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum List {
        /// The requests pass, and no limit is charged.
        Allow = "allow",
        /// The requests are denied as over the limit, and no limit is charged. The allow list has precedence.
        Deny = "deny",
    }
}

/// Meaning of a value in an entry of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueMatch {
    /// A pattern with `*` for any characters, a range of addresses, or a text that is neither.
    #[default]
    Pattern,
    /// The text, character by character.
    Exact,
}

tollgate_core::named! {
    /// Mode of a switched rule.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum SwitchMode {
        /// The rule is disabled: it limits and charges nothing.
        Off = "off",
        /// The rule is in shadow mode: hits over its limit are counted, and pass.
        Shadow = "shadow",
        /// Each instance decides all rules of a domain, or of every domain, by itself, as while the store fails.
        Emergency = "emergency",
    }
}

type Map<K, V> = HashMap<K, V, RandomState>;

/// Settings of rules by domain and path.
type ByRule<T> = Map<Box<str>, Map<Box<str>, T>>;

/// Active lists and switches without those that have ended. Immutable, like the rules.
#[derive(Debug, Default)]
pub struct Lists {
    /// Revision of the last change.
    pub generation: u64,
    allow: Index,
    deny: Index,
    switches: ByRule<SwitchMode>,
    /// Shares of the keys for which rules are enforced.
    shares: ByRule<EnforcedShare>,
    /// Domains in an emergency; [`ALL_NAMES`] for all.
    pub emergencies: Vec<Box<str>>,
}

/// Name that stands for every domain, or for every rule of a domain.
pub const ALL_NAMES: &str = "*";

impl Lists {
    /// Returns the lists and switches of a revision: entries, and modes of rules by domain and path. Of several modes of
    /// a rule the last one is kept; an emergency is one of all rules, whatever the path.
    pub fn new(
        generation: u64,
        listings: impl IntoIterator<Item = Listing>,
        switches: impl IntoIterator<Item = (Box<str>, Box<str>, SwitchMode)>,
    ) -> Self {
        let (allow, deny) = listings.into_iter().partition(|listing| listing.list == List::Allow);
        let mut lists =
            Self { generation, allow: Index::new(allow), deny: Index::new(deny), ..Self::default() };
        for (domain, path, mode) in switches {
            if mode == SwitchMode::Emergency {
                lists.emergencies.push(domain);
                continue;
            }
            lists.switches.entry(domain).or_default().insert(path, mode);
        }
        lists
    }

    /// Enforces rules for shares of their keys only, whatever the rules state: by domain and path.
    #[must_use]
    pub fn with_shares(
        mut self,
        shares: impl IntoIterator<Item = (Box<str>, Box<str>, EnforcedShare)>,
    ) -> Self {
        for (domain, path, share) in shares {
            self.shares.entry(domain).or_default().insert(path, share);
        }
        self
    }

    /// Whether an emergency switch applies to the domain.
    pub fn is_emergency(&self, domain: &str) -> bool {
        !self.emergencies.is_empty()
            && self.emergencies.iter().any(|known| matches!(&**known, ALL_NAMES) || **known == *domain)
    }

    /// Whether any list has an entry.
    pub const fn has_lists(&self) -> bool {
        !(self.allow.is_empty() && self.deny.is_empty())
    }

    /// The entry that allows a request with a descriptor of these `entries` at `now_ms`, in milliseconds since 1970.
    pub fn allowing(&self, domain: &str, entries: &[Entry<'_>], now_ms: u64) -> Option<&Listing> {
        self.allow.matching(domain, entries).find(|listing| listing.is_active_at(now_ms))
    }

    /// The entry that denies such a request, unless one allows it; of several entries the one that ends last.
    pub fn denying(&self, domain: &str, entries: &[Entry<'_>], now_ms: u64) -> Option<&Listing> {
        let active = self.deny.matching(domain, entries).filter(|listing| listing.is_active_at(now_ms));
        active.max_by_key(|listing| listing.expires_at_ms.unwrap_or(u64::MAX))
    }

    /// Mode of the rule at `path`, if an operator set one: never an emergency.
    pub fn mode_of(&self, domain: &str, path: &str) -> Option<SwitchMode> {
        self.switches.get(domain)?.get(path).copied()
    }

    /// Whether an operator enforces any rule for a share of its keys.
    pub fn has_shares(&self) -> bool {
        !self.shares.is_empty()
    }

    /// Share of the keys for which an operator enforces the rule at `path`, if one is set.
    pub fn share_of(&self, domain: &str, path: &str) -> Option<EnforcedShare> {
        self.shares.get(domain)?.get(path).copied()
    }
}

/// Switched modes of the rules of one version, by the index of the rule.
#[derive(Clone, Debug, Default)]
pub struct Switched {
    /// Empty if there are no switches.
    modes: Vec<Option<SwitchMode>>,
    /// Empty if no share is set.
    shares: Vec<Option<EnforcedShare>>,
}

impl Switched {
    /// Resolves the switches of `lists` for `rules`. A switch of a rule that does not exist has no effect.
    pub(crate) fn new(rules: &Rules, lists: &Lists) -> Self {
        Self { modes: by_index(rules, &lists.switches), shares: by_index(rules, &lists.shares) }
    }

    /// Mode of a rule, if an operator set one.
    pub fn mode_of(&self, rule: &Rule) -> Option<SwitchMode> {
        self.modes.get(rule.index().as_usize()).copied().flatten()
    }

    /// Share of the keys for which a rule is enforced: the one that an operator set, else the rule's own. `None` if neither
    /// is set, so that it is enforced for all keys unless it is in shadow mode.
    pub fn share_of(&self, rule: &Rule) -> Option<EnforcedShare> {
        self.shares.get(rule.index().as_usize()).copied().flatten().or(rule.rollout.enforced)
    }
}

/// Settings as a table by the index of the rule; empty if there are none.
fn by_index<T: Copy>(rules: &Rules, settings: &ByRule<T>) -> Vec<Option<T>> {
    if settings.is_empty() {
        return Vec::new();
    }
    let mut table = vec![None; rules.rule_count()];
    for (name, of_domain) in settings {
        for rule in rules.domain(name).into_iter().flat_map(|domain| domain.root.rules()) {
            if let Some(set) = table.get_mut(rule.index().as_usize()) {
                // One of several limits has the setting of its descriptor, if it has none of its own.
                let of_descriptor =
                    || of_domain.get(&*rule.descriptor_path()).filter(|_| rule.part.is_some());
                *set = of_domain.get(&*rule.path()).or_else(of_descriptor).copied();
            }
        }
    }
    table
}

/// Index of the entries of one list. An entry is found by one of its pairs, and then compared in full: a request is compared
/// only with entries that share a key with it, and among entries with exact values only with those of its own values.
#[derive(Debug, Default)]
struct Index {
    listings: Vec<Listing>,
    by_domain: Map<Box<str>, Keys>,
    /// Entries for all domains.
    everywhere: Keys,
}

/// Positions of entries by key and value.
type Keys = Map<Box<str>, Values>;

#[derive(Debug, Default)]
struct Values {
    exact: Map<Box<str>, Vec<usize>>,
    ranges: CidrTable<Vec<usize>>,
    wildcards: Vec<(Wildcard, usize)>,
}

/// Key and condition on the value by which an entry is found.
type Pair = (Box<str>, Pattern);

impl Index {
    fn new(listings: Vec<Listing>) -> Self {
        let mut index = Self { listings, ..Self::default() };
        let counts = counts(&index.listings);
        for (at, listing) in index.listings.iter().enumerate() {
            let count = |(key, pattern): &Pair| match pattern {
                Pattern::Exact(text) => counts.get(&(listing.domain(), &**key, &**text)).copied(),
                Pattern::Range(_) | Pattern::Wildcard(_) => None,
            };
            // The rarest pair, so that a request of a tenant is not compared with all entries of the tenant. Among patterns,
            // ranges are found faster.
            let Some((key, pattern)) = listing.pairs.iter().min_by_key(|pair| rank(&pair.1, count(pair)))
            else {
                continue;
            };
            let keys = match listing.domain() {
                Some(domain) => index.by_domain.entry(domain.into()).or_default(),
                None => &mut index.everywhere,
            };
            let values = keys.entry(key.clone()).or_default();
            match pattern {
                Pattern::Exact(text) => values.exact.entry(text.clone()).or_default().push(at),
                Pattern::Wildcard(wildcard) => values.wildcards.push((wildcard.clone(), at)),
                Pattern::Range(range) => values.ranges.change(*range, |found| found.push(at)),
            }
        }
        index
    }

    const fn is_empty(&self) -> bool {
        self.listings.is_empty()
    }

    /// The entries that match a descriptor with these `entries`; an entry may occur more than once.
    fn matching<'a, 'e, 'v>(
        &'a self,
        domain: &str,
        entries: &'e [Entry<'v>],
    ) -> impl Iterator<Item = &'a Listing> + use<'a, 'e, 'v> {
        let keys = self.by_domain.get(domain).into_iter().chain([&self.everywhere]);
        let values = keys.filter(|keys| !keys.is_empty()).flat_map(move |keys| {
            entries.iter().filter_map(|entry| Some((keys.get(entry.key)?, entry.value)))
        });
        values
            .flat_map(|(values, value)| values.found_by(value))
            .filter_map(|at| self.listings.get(at))
            .filter(move |listing| listing.matches(entries))
    }
}

impl Values {
    /// Positions of the entries that are found by `value`.
    fn found_by<'a, 'v>(&'a self, value: &'v str) -> impl Iterator<Item = usize> + use<'a, 'v> {
        let exact = self.exact.get(value).into_iter().flatten();
        let ranges = (!self.ranges.is_empty()).then(|| self.ranges.matching(value));
        let ranges = ranges.into_iter().flatten().flat_map(|(_, found)| found);
        let wildcards = self.wildcards.iter().filter(move |(wildcard, _)| wildcard.matches(value));
        exact.chain(ranges).copied().chain(wildcards.map(|(_, at)| *at))
    }
}

/// Number of entries by domain, key and exact value.
fn counts(listings: &[Listing]) -> Map<(Option<&str>, &str, &str), usize> {
    let mut counts = Map::default();
    for listing in listings {
        for (key, pattern) in &listing.pairs {
            if let Pattern::Exact(text) = pattern {
                let count: &mut usize = counts.entry((listing.domain(), &**key, &**text)).or_default();
                *count = count.saturating_add(1);
            }
        }
    }
    counts
}

/// Rank of a pair for finding its entry, best first.
fn rank(pattern: &Pattern, count: Option<usize>) -> (u8, usize) {
    match pattern {
        Pattern::Exact(_) => (0, count.unwrap_or(usize::MAX)),
        Pattern::Range(_) => (1, 0),
        Pattern::Wildcard(_) => (2, 0),
    }
}

#[cfg(test)]
mod tests;
