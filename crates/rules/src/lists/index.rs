//! Index of the entries of one list by the key and value of a descriptor's entry.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use ipnet::IpNet;
use tollgate_core::descriptor::Entry;

use super::listing::{Listing, Pattern};
use crate::{CidrTable, Wildcard};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Index of the entries of one list. An entry is found by one of its pairs, and then compared in full: a request is compared
/// only with entries that share a key with it, and among entries with exact values only with those of its own values.
#[derive(Debug, Default)]
pub(super) struct Index {
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
    pub(super) fn new(listings: Vec<Listing>) -> Self {
        let mut index = Self { listings, ..Self::default() };
        let mut ranges: Map<(Option<&str>, &str, IpNet), Vec<usize>> = Map::default();
        let counts = counts(&index.listings);
        for (at, listing) in index.listings.iter().enumerate() {
            let count = |(key, pattern): &Pair| match pattern {
                Pattern::Exact(text) => counts.get(&(listing.domain(), &**key, &**text)).copied(),
                Pattern::Range(_) | Pattern::Wildcard(_) => None,
            };
            // The rarest pair, so that a request of a tenant is not compared with all entries of the tenant. Among patterns,
            // ranges are found faster.
            let Some((key, pattern)) = listing.pairs().iter().min_by_key(|pair| rank(&pair.1, count(pair)))
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
                Pattern::Range(range) => {
                    ranges.entry((listing.domain(), &**key, *range)).or_default().push(at);
                }
            }
        }
        for ((domain, key, range), found) in ranges {
            let keys = match domain {
                Some(domain) => index.by_domain.get_mut(domain),
                None => Some(&mut index.everywhere),
            };
            if let Some(values) = keys.and_then(|keys| keys.get_mut(key)) {
                // Each range occurs once.
                let _ = values.ranges.insert(range, found);
            }
        }
        index
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.listings.is_empty()
    }

    /// The entries that match a descriptor with these `entries`; an entry may occur more than once.
    pub(super) fn matching<'a, 'e, 'v>(
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
        for (key, pattern) in listing.pairs() {
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
