//! Sliding window over the last minute of one domain.

use std::collections::VecDeque;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::{
    Talker,
    key::KeyEntries,
    samples::Sample,
    summary::{Estimate, Memory, Summary},
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
    ///
    /// A key without a counter in a window may have had as many hits as the window's floor. Thus the errors add up over
    /// the windows, to no more than one summary of all hits could have.
    pub(super) fn top(&self, ranking: Ranking, limit: usize) -> Vec<Talker> {
        let mut keys: HashMap<&str, Estimate, RandomState> = HashMap::default();
        let summaries = || self.windows.iter().map(|window| window.of(ranking));
        let floors = summaries().fold(0_u64, |sum, summary| sum.saturating_add(summary.floor()));
        for summary in summaries() {
            for (key, here) in summary.iter() {
                let known = keys.entry(key).or_insert(Estimate { weight: floors, error: floors });
                let add = |sum: u64, part: u64| sum.saturating_sub(summary.floor()).saturating_add(part);
                known.weight = add(known.weight, here.weight);
                known.error = add(known.error, here.error);
            }
        }
        let mut talkers: Vec<_> = keys.into_iter().collect();
        talkers.sort_unstable_by(|(a, more), (b, less)| less.weight.cmp(&more.weight).then(a.cmp(b)));
        talkers.truncate(limit);
        let talker = |(key, known): (&str, Estimate)| {
            let entries = KeyEntries::read(key);
            Talker {
                key: entries.to_text(),
                descriptor: entries.whole(),
                hits: known.weight,
                error: known.error,
            }
        };
        talkers.into_iter().map(talker).collect()
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
