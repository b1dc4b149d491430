//! The last minute of one domain.

use std::collections::VecDeque;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::{
    Talker,
    samples::Sample,
    summary::{Estimate, Room, Summary},
};

/// Windows that a minute is made of: the last one is still going on, so that together they hold 50 to 60 seconds.
const WINDOWS: u64 = 6;

/// Seconds of each.
pub(super) const WINDOW_SECONDS: u64 = 10;

/// What came in one window.
#[derive(Debug, Default)]
struct Window {
    number: u64,
    asked: Summary,
    denied: Summary,
}

/// Which keys are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Those that asked for the most hits.
    Heaviest,
    /// Those that were denied the most hits.
    Denied,
}

/// The windows of the last minute, oldest first.
#[derive(Debug, Default)]
pub(super) struct Minute {
    windows: VecDeque<Window>,
}

impl Minute {
    /// Adds a sample to window number `now`, and says by how many bytes that made it larger, and smaller.
    pub(super) fn add(&mut self, sample: &Sample<'_>, now: u64, room: Room) -> (usize, usize) {
        if self.windows.back().is_none_or(|window| window.number < now) {
            self.windows.push_back(Window { number: now, ..Window::default() });
        }
        let Some(window) = self.windows.back_mut() else { return (0, 0) };
        let before = window.bytes();
        for (summary, hits) in [(&mut window.asked, sample.asked), (&mut window.denied, sample.denied)] {
            if hits > 0 {
                summary.add(sample.key, hits, room);
            }
        }
        (window.bytes(), before)
    }

    /// Drops what is older than a minute at window number `now`, and says whether anything is left.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        while self.windows.front().is_some_and(|window| window.number.saturating_add(WINDOWS) <= now) {
            self.windows.pop_front();
        }
        !self.windows.is_empty()
    }

    /// Bytes that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.windows.iter().map(Window::bytes).sum()
    }

    /// The heaviest keys, at most so many.
    ///
    /// In a window that has no counter of a key, it may have had as many hits as that window's floor. So the errors add
    /// up over the windows, to no more than one summary of all hits could have.
    pub(super) fn top(&self, kind: Kind, most: usize) -> Vec<Talker> {
        let mut keys: HashMap<&str, Estimate, RandomState> = HashMap::default();
        let summaries = || self.windows.iter().map(|window| window.of(kind));
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
        talkers.truncate(most);
        let talker = |(key, known): (&str, Estimate)| Talker {
            key: key.to_owned(),
            hits: known.weight,
            error: known.error,
        };
        talkers.into_iter().map(talker).collect()
    }
}

impl Window {
    const fn of(&self, kind: Kind) -> &Summary {
        match kind {
            Kind::Heaviest => &self.asked,
            Kind::Denied => &self.denied,
        }
    }

    fn bytes(&self) -> usize {
        self.asked.bytes().saturating_add(self.denied.bytes())
    }
}
