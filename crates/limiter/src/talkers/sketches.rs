//! Sketches of all domains, within one memory bound.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::{
    DomainCounts, DomainTop,
    samples::Sample,
    summary::Memory,
    window::{LastMinute, Ranking},
};

/// Maximum number of domains with a sketch.
pub(super) const MAX_DOMAINS: usize = 64;

/// Memory of all sketches above which each summary grows only to [`MIN_KEYS`](super::summary::MIN_KEYS) keys, which for
/// all of them is at most another 7 MiB.
pub(super) const MAX_BYTES: usize = 20 << 20;

/// The last minute of every domain. A new domain among too many has no sketch until another one becomes inactive.
#[derive(Debug, Default)]
pub(super) struct Sketches {
    domains: HashMap<Box<str>, LastMinute, RandomState>,
    /// Memory of the sketches, in bytes.
    bytes: usize,
    /// Number of the current window.
    now: u64,
}

impl Sketches {
    /// Drops windows that have expired at window number `now`.
    pub(super) fn advance(&mut self, now: u64) {
        if self.now != now {
            self.now = now;
            self.domains.retain(|_, minute| minute.expire(now));
            self.bytes = self.domains.values().map(LastMinute::bytes).sum();
        }
    }

    /// Adds a sample; whether its domain has a sketch.
    pub(super) fn add(&mut self, sample: &Sample<'_>) -> bool {
        let memory = if self.bytes < MAX_BYTES { Memory::Ample } else { Memory::Short };
        let is_full = self.domains.len() >= MAX_DOMAINS;
        let minute = match self.domains.get_mut(sample.domain) {
            Some(minute) => minute,
            None if is_full => return false,
            None => self.domains.entry(sample.domain.into()).or_default(),
        };
        let (after, before) = minute.add(sample, self.now, memory);
        self.bytes = self.bytes.saturating_add(after).saturating_sub(before);
        true
    }

    /// Returns the heaviest keys of a domain, if it has a sketch.
    pub(super) fn top(&self, domain: &str, limit: usize) -> Option<DomainTop> {
        let minute = self.domains.get(domain)?;
        let top = |ranking| minute.top(ranking, limit);
        let domain = domain.to_owned();
        Some(DomainTop { domain, heaviest: top(Ranking::Heaviest), denied: top(Ranking::Denied) })
    }

    /// Returns counts of the heaviest keys of a domain, if it has a sketch.
    pub(super) fn counts(&self, domain: &str) -> Option<DomainCounts> {
        let [minute, recent] = self.domains.get(domain)?.span_counts(self.now);
        Some(DomainCounts { domain: domain.to_owned(), minute, recent })
    }

    /// Returns the keys of a domain with estimates of their hits, if it has a sketch.
    pub(super) fn traffic(&self, domain: &str) -> Option<Vec<(String, u64)>> {
        self.domains.get(domain).map(LastMinute::traffic)
    }

    /// Returns the domains that have a sketch, sorted.
    pub(super) fn domains(&self) -> Vec<String> {
        let mut domains: Vec<_> = self.domains.keys().map(|domain| domain.clone().into_string()).collect();
        domains.sort_unstable();
        domains
    }

    /// Approximate memory of the sketches, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
