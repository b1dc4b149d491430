//! Sliding window over the last minute of one domain.

use std::collections::VecDeque;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::{
    Talker,
    counts::{DomainCounts, KeyCounts, SpanCounts},
    merge::Merge,
    samples::Sample,
    summary::{Memory, Summary},
};

/// Windows of a minute. The last one is incomplete, so that together they cover 50 to 60 seconds.
const WINDOWS: u64 = 6;

/// Length of a window.
pub(super) const WINDOW_SECONDS: u64 = 10;

/// Summaries of one window.
#[derive(Debug, Default)]
struct Window {
    number: u64,
    requested: Summary,
    denied: Summary,
}

/// Order of the top keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ranking {
    /// By requested hits.
    Heaviest,
    /// By denied hits.
    Denied,
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

    /// Returns the heaviest keys, at most `limit`.
    pub(super) fn top(&self, ranking: Ranking, limit: usize) -> Vec<Talker> {
        self.counts(ranking, limit, |_| true).top(limit)
    }

    /// Returns counts of the heaviest keys at window number `now`: of the last minute, and of the last complete window.
    pub(super) fn span_counts(&self, now: u64) -> [SpanCounts; 2] {
        let [of_minute, of_window] = DomainCounts::limits();
        let counts = |limit, is_included: &dyn Fn(u64) -> bool| SpanCounts {
            heaviest: self.counts(Ranking::Heaviest, limit, is_included),
            denied: self.counts(Ranking::Denied, limit, is_included),
        };
        [counts(of_minute, &|_| true), counts(of_window, &|number| number.saturating_add(1) == now)]
    }

    fn counts(&self, ranking: Ranking, limit: usize, is_included: impl Fn(u64) -> bool) -> KeyCounts {
        let mut merge = Merge::default();
        for window in self.windows.iter().filter(|window| is_included(window.number)) {
            let summary = window.of(ranking);
            merge.add(summary.floor(), summary.iter());
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
    const fn of(&self, ranking: Ranking) -> &Summary {
        match ranking {
            Ranking::Heaviest => &self.requested,
            Ranking::Denied => &self.denied,
        }
    }

    fn bytes(&self) -> usize {
        self.requested.bytes().saturating_add(self.denied.bytes())
    }
}
