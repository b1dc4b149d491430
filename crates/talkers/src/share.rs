//! Share of the traffic that entries of the deny list match.

use std::collections::HashMap;

use tollgate_core::descriptor::Entry;
use tollgate_rules::Lists;

use super::key::KeyEntries;

/// Share of a domain's requests of the last minute that entries of the deny list match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficShare {
    /// The domain.
    pub domain: String,
    matched: u64,
    requests: u64,
}

impl TrafficShare {
    /// The share of a domain with these keys and hits; `None` without hits.
    ///
    /// A request often has several descriptors, and one that matches suffices. Descriptors of one shape, which is the
    /// sequence of their keys, belong to different requests: the number of requests is that of the most frequent shape, and
    /// the shape with the most matches counts. Matches of several shapes are not added: they may be of the same requests.
    pub(super) fn of(domain: &str, traffic: &[(String, u64)], lists: &Lists) -> Option<Self> {
        let mut shapes: HashMap<Vec<String>, (u64, u64)> = HashMap::new();
        for (text, hits) in traffic {
            let read = KeyEntries::read(text).entries;
            let entries: Vec<Entry<'_>> =
                read.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect();
            // Whenever the entry ends.
            let is_matched = lists.denying(domain, &entries, 0).is_some();
            let (matched, all) = shapes.entry(read.into_iter().map(|entry| entry.key).collect()).or_default();
            *all = all.saturating_add(*hits);
            *matched = matched.saturating_add(if is_matched { *hits } else { 0 });
        }
        let requests = shapes.values().map(|(_, all)| *all).max().filter(|requests| *requests > 0)?;
        let matched = shapes.values().map(|(matched, _)| *matched).max()?;
        Some(Self { domain: domain.to_owned(), matched, requests })
    }

    /// The share in thousandths, rounded up.
    pub fn per_mille(&self) -> u64 {
        let matched = u128::from(self.matched).saturating_mul(1_000);
        let share = matched.div_ceil(u128::from(self.requests.max(1)));
        u64::try_from(share).unwrap_or(u64::MAX).min(1_000)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_rules::{List, Listing, ValueMatch};

    use super::*;
    use crate::{sampler::Sample, sketches::LastMinute, space_saving::Memory};

    fn per_mille(minute: &LastMinute, key: &str, value: &str, value_match: ValueMatch) -> Option<u64> {
        per_mille_of_all(minute, &[(key, value, value_match)])
    }

    /// Share that any of these entries matches.
    fn per_mille_of_all(minute: &LastMinute, entries: &[(&str, &str, ValueMatch)]) -> Option<u64> {
        let listing = |pair| Listing::new("1", List::Deny, "edge", [pair], Some(1)).expect("valid");
        let lists = Lists::new(0, entries.iter().copied().map(listing), []);
        TrafficShare::of("edge", &minute.traffic(), &lists).map(|share| share.per_mille())
    }

    fn minute(keys: &[(&str, u64)]) -> LastMinute {
        let mut minute = LastMinute::default();
        for (key, requested) in keys {
            minute.add(&Sample { domain: "edge", key, requested: *requested, denied: 0 }, 0, Memory::Ample);
        }
        minute
    }

    #[test]
    fn exact_values_match_only_themselves() {
        let traffic = minute(&[("k=*", 30), (r"k=a\,b=c", 20), ("k=x", 50)]);
        assert_eq!(per_mille(&traffic, "k", "*", ValueMatch::Exact), Some(300));
        assert_eq!(per_mille(&traffic, "k", "*", ValueMatch::Pattern), Some(1_000));
        assert_eq!(per_mille(&traffic, "k", "a,b=c", ValueMatch::Exact), Some(200));
        assert_eq!(per_mille(&traffic, "b", "c", ValueMatch::Exact), Some(0));
        assert_eq!(per_mille(&LastMinute::default(), "k", "*", ValueMatch::Pattern), None);
    }

    #[test]
    fn a_request_that_several_entries_match_counts_once() {
        let traffic = minute(&[("k=a", 4), ("k=ab", 4), ("k=b", 4), ("k=c", 88)]);
        let exact = |value| ("k", value, ValueMatch::Exact);
        assert_eq!(per_mille_of_all(&traffic, &["a", "b", "other"].map(exact)), Some(80));
        let overlapping = [exact("a"), ("k", "a*", ValueMatch::Pattern)];
        assert_eq!(per_mille_of_all(&traffic, &overlapping), Some(80));
    }

    #[test]
    fn a_descriptor_among_others_of_its_requests_counts_for_the_requests() {
        // Every request has the first two; few have the last one.
        let traffic = minute(&[("all=1", 100), ("tenant=a", 70), ("tenant=b", 30), ("admin=root", 2)]);
        assert_eq!(per_mille(&traffic, "all", "1", ValueMatch::Exact), Some(1_000));
        assert_eq!(per_mille(&traffic, "tenant", "b", ValueMatch::Exact), Some(300));
        assert_eq!(per_mille(&traffic, "admin", "*", ValueMatch::Pattern), Some(20));
    }

    #[test]
    fn keys_that_are_too_many_to_be_counted_are_part_of_the_traffic() {
        let mut minute = LastMinute::default();
        let add = |minute: &mut LastMinute, key: &str, window| {
            minute.add(&Sample { domain: "edge", key, requested: 1, denied: 0 }, window, Memory::Ample);
        };
        for at in 0..60_000_u64 {
            let prefix = if at % 4 == 0 { 'a' } else { 'b' };
            add(&mut minute, &format!("k={prefix}{at}"), at / 10_000);
            // 2 % of the hits.
            if at % 49 == 0 {
                add(&mut minute, "k=heavy", at / 10_000);
            }
        }
        let share = |value, value_match| per_mille(&minute, "k", value, value_match).expect("traffic");
        let heavy = share("heavy", ValueMatch::Exact);
        assert!((15..=25).contains(&heavy), "{heavy}");
        let quarter = share("a*", ValueMatch::Pattern);
        assert!((200..=290).contains(&quarter), "{quarter}");
        assert!(share("a17", ValueMatch::Exact) <= 2);
        assert!(share("*", ValueMatch::Pattern) >= 990);
    }
}
