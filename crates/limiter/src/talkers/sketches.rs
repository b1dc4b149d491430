//! The sketches of all domains, within one bound of memory.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::{
    DomainTop,
    samples::Sample,
    summary::Room,
    window::{Kind, Minute},
};

/// Domains that have a sketch at the most.
pub(super) const MOST_DOMAINS: usize = 64;

/// Bytes that all may take; beyond, each summary grows only to [`FEWEST`](super::summary::FEWEST) keys, which for all of
/// them together is another 7 MiB at the very most.
pub(super) const MOST_BYTES: usize = 20 << 20;

/// Every domain's last minute. A domain that comes when there are too many has none until another one falls silent.
#[derive(Debug, Default)]
pub(super) struct Sketches {
    domains: HashMap<Box<str>, Minute, RandomState>,
    /// Bytes that the sketches take.
    bytes: usize,
    /// The number of the window that goes on.
    now: u64,
}

impl Sketches {
    /// Drops what is over at window number `now`.
    pub(super) fn turn(&mut self, now: u64) {
        if self.now != now {
            self.now = now;
            self.domains.retain(|_, minute| minute.expire(now));
            self.bytes = self.domains.values().map(Minute::bytes).sum();
        }
    }

    /// Adds a sample, and says whether there was a place for it.
    pub(super) fn add(&mut self, sample: &Sample<'_>) -> bool {
        let room = if self.bytes < MOST_BYTES { Room::Ample } else { Room::Short };
        let is_full = self.domains.len() >= MOST_DOMAINS;
        let minute = match self.domains.get_mut(sample.domain) {
            Some(minute) => minute,
            None if is_full => return false,
            None => self.domains.entry(sample.domain.into()).or_default(),
        };
        let (after, before) = minute.add(sample, self.now, room);
        self.bytes = self.bytes.saturating_add(after).saturating_sub(before);
        true
    }

    /// The heaviest keys of a domain, if it has a sketch.
    pub(super) fn top(&self, domain: &str, most: usize) -> Option<DomainTop> {
        let minute = self.domains.get(domain)?;
        let top = |kind| minute.top(kind, most);
        let domain = domain.to_owned();
        Some(DomainTop { domain, heaviest: top(Kind::Heaviest), denied: top(Kind::Denied) })
    }

    /// The domains that have a sketch, in order.
    pub(super) fn domains(&self) -> Vec<String> {
        let mut domains: Vec<_> = self.domains.keys().map(|domain| domain.clone().into_string()).collect();
        domains.sort_unstable();
        domains
    }

    /// Bytes that the sketches take, about.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
