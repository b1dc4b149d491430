//! Sketches of all domains over the last minute, within one memory bound.

use std::collections::VecDeque;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::counts::{self, DomainCounts, KeyCounts, Merge, SpanCounts};
use super::sampler::Sample;
use super::space_saving::{Memory, Summary};

/// Maximum number of domains with a sketch.
pub(super) const MAX_DOMAINS: usize = 64;

/// Memory of all sketches above which each summary grows only to [`MIN_KEYS`](crate::space_saving::MIN_KEYS) keys, which for
/// all of them is at most another 7 MiB.
pub(super) const MAX_BYTES: usize = 20 << 20;

/// The last minute of every domain. A new domain among too many has no sketch until another one becomes inactive.
#[derive(Debug, Default)]
pub(super) struct Sketches {
    domains: HashMap<Box<str>, LastMinute, RandomState>,
    /// Approximate memory of the sketches, in bytes.
    pub(super) bytes: usize,
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
}

/// Windows of a minute. The last one is incomplete, so that together they cover 50 to 60 seconds.
const WINDOWS: u64 = 6;

/// Length of a window.
pub(super) const WINDOW_SECONDS: u64 = 10;

/// Summaries of one window.
#[derive(Debug, Default)]
pub(super) struct Window {
    number: u64,
    pub(super) requested: Summary,
    pub(super) denied: Summary,
}

/// The windows of the last minute, oldest first.
#[derive(Debug, Default)]
pub(super) struct LastMinute {
    windows: VecDeque<Window>,
}

impl LastMinute {
    /// Adds a sample to window number `now`; returns the window's size in bytes after and before.
    pub(super) fn add(&mut self, sample: &Sample<'_>, now: u64, memory: Memory) -> (usize, usize) {
        if self.windows.back().is_none_or(|window| window.number < now) {
            self.windows.push_back(Window { number: now, ..Window::default() });
        }
        let Some(window) = self.windows.back_mut() else { return (0, 0) };
        let before = window.bytes();
        for (summary, hits) in
            [(&mut window.requested, sample.requested), (&mut window.denied, sample.denied)]
        {
            if hits > 0 {
                summary.add(sample.key, hits, memory);
            }
        }
        (window.bytes(), before)
    }

    /// Drops windows older than a minute at window number `now`; whether any are left.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        while self.windows.front().is_some_and(|window| window.number.saturating_add(WINDOWS) <= now) {
            self.windows.pop_front();
        }
        !self.windows.is_empty()
    }

    /// Approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.windows.iter().map(Window::bytes).sum()
    }

    /// Returns counts of the heaviest keys at window number `now`: of the last minute, and of the last complete window.
    pub(super) fn span_counts(&self, now: u64) -> [SpanCounts; 2] {
        let [of_minute, of_window] = counts::MAX_KEYS;
        let counts = |limit, is_included: &dyn Fn(u64) -> bool| SpanCounts {
            heaviest: self.counts(|window| &window.requested, limit, is_included),
            denied: self.counts(|window| &window.denied, limit, is_included),
        };
        [counts(of_minute, &|_| true), counts(of_window, &|number| number.saturating_add(1) == now)]
    }

    /// Returns counts of the heaviest keys in some windows, at most `limit`.
    pub(super) fn counts(
        &self,
        of: fn(&Window) -> &Summary,
        limit: usize,
        is_included: impl Fn(u64) -> bool,
    ) -> KeyCounts {
        let mut merge = Merge::default();
        for window in self.windows.iter().filter(|window| is_included(window.number)) {
            let summary = of(window);
            merge.add(summary.floor, summary.iter());
        }
        let (floor, keys) = merge.sorted();
        KeyCounts::new(floor, &keys, limit)
    }

    /// Returns the keys with estimates of their requested hits, whose sum is about that of all hits.
    pub(super) fn traffic(&self) -> Vec<(String, u64)> {
        let mut keys: HashMap<&str, u64, RandomState> = HashMap::default();
        for (key, hits) in self.windows.iter().flat_map(|window| window.requested.shared_out()) {
            let sum = keys.entry(key).or_default();
            *sum = sum.saturating_add(hits);
        }
        keys.into_iter().map(|(key, hits)| (key.to_owned(), hits)).collect()
    }
}

impl Window {
    fn bytes(&self) -> usize {
        self.requested.bytes().saturating_add(self.denied.bytes())
    }
}
