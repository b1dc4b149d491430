//! Hits in the order of their times: what an exact log and held leases have in common.
//!
//! Each hit counts for the same *lifetime* after its time. No hit lies ahead of the clock: when the clock stepped
//! back, those that would are moved to its time, so that they neither count less nor for longer than a lifetime.

use std::{collections::VecDeque, time::Duration};

use super::{QueueSummary, Verdict};
use crate::{clock::Timestamp, descriptor::Hits};

/// The most hits that one queue may hold. In Redis each takes 8 to 12 bytes of a log, and 40 to 110 under a lease.
pub const MAX_QUEUED: u32 = 10_000;

/// Hits in the order of their times, those of equal times in the order of a tag of the algorithm's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue<T> {
    used: u64,
    entries: VecDeque<Entry<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry<T> {
    at: Timestamp,
    hits: u64,
    tag: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { used: 0, entries: VecDeque::new() }
    }
}

impl<T: Copy + Ord> Queue<T> {
    /// Hits in the queue.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Entries that are kept; hits of the same time may share one.
    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Drops what has ended by `now`, and moves what lies ahead of it.
    pub(super) fn advance(&mut self, now: Timestamp, lifetime: Duration) {
        let ahead = self.entries.iter_mut().rev().take_while(|entry| entry.at > now);
        if ahead.map(|entry| entry.at = now).count() > 0 {
            self.entries.make_contiguous().sort_unstable_by_key(|entry| (entry.at, entry.tag));
        }
        while let Some(first) = self.entries.front().filter(|first| first.at.plus(lifetime) <= now) {
            self.used = self.used.saturating_sub(first.hits);
            self.entries.pop_front();
        }
        self.shrink();
    }

    /// Frees memory that a burst left behind, so that a queue takes about as much as its entries.
    fn shrink(&mut self) {
        let length = self.entries.len().max(4);
        if self.entries.capacity() > length.saturating_mul(4) {
            self.entries.shrink_to(length.saturating_mul(2));
        }
    }

    /// Adds hits at `now`, which is not before any other.
    pub(super) fn push(&mut self, now: Timestamp, hits: u64, tag: T) {
        let is_later = |entry: &&Entry<T>| (entry.at, entry.tag) > (now, tag);
        let later = self.entries.iter().rev().take_while(is_later).count();
        let place = self.entries.len().saturating_sub(later);
        self.entries.insert(place, Entry { at: now, hits, tag });
        self.used = self.used.saturating_add(hits);
    }

    /// The time of the newest hit.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.entries.back().map(|entry| entry.at)
    }

    /// Removes up to `hits` of the newest.
    pub(super) fn remove_newest(&mut self, hits: u64) {
        let mut left = hits;
        while let Some(last) = self.entries.back_mut().filter(|_| left > 0) {
            left = left.saturating_sub(take(last, left, &mut self.used));
            if last.hits == 0 {
                self.entries.pop_back();
            }
        }
    }

    /// Removes up to `hits` of the oldest.
    pub(super) fn remove_oldest(&mut self, hits: u64) {
        let mut left = hits;
        while let Some(first) = self.entries.front_mut().filter(|_| left > 0) {
            left = left.saturating_sub(take(first, left, &mut self.used));
            if first.hits == 0 {
                self.entries.pop_front();
            }
        }
    }

    /// Removes up to `hits` of those made at `at`.
    pub(super) fn remove_at(&mut self, at: Timestamp, hits: u64) {
        let mut left = hits;
        for entry in self.entries.iter_mut().rev().filter(|entry| entry.at == at) {
            left = left.saturating_sub(take(entry, left, &mut self.used));
        }
        self.entries.retain(|entry| entry.hits > 0);
    }

    /// Removes all that have the tag; says how many there were.
    pub(super) fn remove_tagged(&mut self, tag: T) -> u64 {
        let tagged = self.entries.iter().filter(|entry| entry.tag == tag);
        let hits = tagged.map(|entry| entry.hits).sum();
        if hits > 0 {
            self.entries.retain(|entry| entry.tag != tag);
            self.used = self.used.saturating_sub(hits);
        }
        hits
    }

    /// Where the queue stands at `now`, to which it was advanced, for one who asks for `hits` under `limit`.
    pub(super) fn summary(&self, now: Timestamp, lifetime: Duration, limit: u32, hits: u64) -> QueueSummary {
        let reset = self.newest().map_or(Duration::ZERO, |newest| newest.plus(lifetime).since(now));
        QueueSummary { used: self.used, wait: self.wait(now, lifetime, limit, hits), reset }
    }

    /// Until `hits` have room under `limit`.
    fn wait(&self, now: Timestamp, lifetime: Duration, limit: u32, hits: u64) -> Option<Duration> {
        if hits > u64::from(limit) {
            return None;
        }
        let mut too_many = self.used.saturating_add(hits).saturating_sub(u64::from(limit));
        let mut wait = Duration::ZERO;
        for entry in &self.entries {
            if too_many == 0 {
                break;
            }
            too_many = too_many.saturating_sub(entry.hits);
            wait = entry.at.plus(lifetime).since(now);
        }
        Some(wait)
    }

    /// When the last of the hits has ended, rounded up to a whole second since the epoch.
    pub(super) fn expires_at(&self, lifetime: Duration) -> u32 {
        self.newest().map_or(0, |newest| {
            let end = newest.plus(lifetime);
            end.seconds().saturating_add(u32::from(end.subsec_micros() > 0))
        })
    }
}

impl QueueSummary {
    /// What a decision came to that left so much in the queue.
    pub(super) fn verdict(&self, limit: u32, now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        let limit = u64::from(limit);
        let over = self.used.saturating_add(hits.charged()).saturating_sub(limit).min(hits.charged());
        Verdict {
            admitted,
            remaining: u32::try_from(limit.saturating_sub(self.used)).unwrap_or(u32::MAX),
            reset_after: self.reset,
            retry_after: if admitted { Duration::ZERO } else { self.wait.unwrap_or(Duration::MAX) },
            used: self.used,
            // What came too early had room, and is over the limit all the same.
            over: if admitted { 0 } else { over.max(u64::from(hits.charged() > 0)) },
            decided_at: now,
        }
    }
}

/// Takes up to `hits` out of an entry; says how many.
fn take<T>(entry: &mut Entry<T>, hits: u64, used: &mut u64) -> u64 {
    let taken = hits.min(entry.hits);
    entry.hits = entry.hits.saturating_sub(taken);
    *used = used.saturating_sub(taken);
    taken
}
