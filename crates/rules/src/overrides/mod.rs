//! What operators set at run time over the rules: lists that allow or deny, and switches of single rules.

mod index;
mod listing;
mod pattern;
mod switched;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};

use self::index::Index;
pub use self::{
    listing::{Listing, ListingError},
    switched::Switched,
};
use tollgate_core::descriptor::Entry;

/// What an entry does with the requests that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum List {
    /// They pass, and nothing is charged.
    Allow,
    /// They are over the limit, and nothing is charged. What is allowed as well passes.
    Deny,
}

impl List {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Allow, Self::Deny];

    /// The name that operators, metrics and metadata use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// What a switch makes of its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchMode {
    /// It limits nothing and charges nothing.
    Off,
    /// It is only watched: what is over it is counted, and passes.
    Shadow,
}

impl SwitchMode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Off, Self::Shadow];

    /// The name that operators use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Shadow => "shadow",
        }
    }
}

/// Modes by the path of a rule, in one domain.
type Modes = HashMap<Box<str>, SwitchMode, RandomState>;

/// Lists and switches as they are enforced; those that ended are not in it. Immutable, like the rules.
#[derive(Debug, Default)]
pub struct Overrides {
    generation: u64,
    allow: Index,
    deny: Index,
    switches: HashMap<Box<str>, Modes, RandomState>,
}

impl Overrides {
    /// The lists and switches of that generation: entries, and the mode of a rule by its domain and path, of which the
    /// last one stays.
    pub fn new(
        generation: u64,
        listings: impl IntoIterator<Item = Listing>,
        switches: impl IntoIterator<Item = (Box<str>, Box<str>, SwitchMode)>,
    ) -> Self {
        let (allow, deny) = listings.into_iter().partition(|listing| listing.list() == List::Allow);
        let mut overrides =
            Self { generation, allow: Index::new(allow), deny: Index::new(deny), ..Self::default() };
        for (domain, path, mode) in switches {
            overrides.switches.entry(domain).or_default().insert(path, mode);
        }
        overrides
    }

    /// The generation of the lists and switches that it was made of.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a list has any entry.
    pub const fn has_lists(&self) -> bool {
        !(self.allow.is_empty() && self.deny.is_empty())
    }

    /// The entry that lets a request pass one of whose descriptors has these `entries`, at `now_ms`, in milliseconds
    /// since 1970.
    pub fn allowing(&self, domain: &str, entries: &[Entry<'_>], now_ms: u64) -> Option<&Listing> {
        self.allow.matching(domain, entries).find(|listing| listing.holds_at(now_ms))
    }

    /// The entry that denies such a request unless another one allows it: of several the one that lasts longest.
    pub fn denying(&self, domain: &str, entries: &[Entry<'_>], now_ms: u64) -> Option<&Listing> {
        let holding = self.deny.matching(domain, entries).filter(|listing| listing.holds_at(now_ms));
        holding.max_by_key(|listing| listing.expires_at_ms().unwrap_or(u64::MAX))
    }

    /// The mode of the rule at `path`, if an operator set one.
    pub fn mode_of(&self, domain: &str, path: &str) -> Option<SwitchMode> {
        self.switches.get(domain)?.get(path).copied()
    }
}
