//! Queue of hits in the order of their times, for exact logs and held leases.
//!
//! Each hit counts for the same *lifetime* after its time. After the clock stepped back by up to four lifetimes, later hits
//! stay, so that nothing is granted twice once the clock is right. If a hit is further ahead, the clock was ahead: hits in
//! the future are moved to its time, so that they still count, and for no longer than a lifetime.

use std::{collections::VecDeque, time::Duration};

use super::{MAX_STEP_BACK_WINDOWS, Verdict};
use crate::{clock::Timestamp, descriptor::Hits, saturating::Count};

/// Maximum number of hits in a queue. In Redis a hit takes 8 to 12 bytes of a log, and 40 to 110 under a lease.
pub const MAX_QUEUED: u32 = 10_000;

/// Hits in the order of their times; hits of equal times in the order of a tag that the algorithm defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue<T> {
    pub(super) used: Count,
    /// Hits of the same time may share an entry.
    pub(super) entries: VecDeque<Entry<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<T> {
    at: Timestamp,
    hits: Count,
    tag: T,
}

/// Summary of a queue of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSummary {
    /// Hits in the queue.
    pub used: u64,
    /// Time until the requested hits would pass: zero if they would pass now, `None` if they never can.
    pub wait: Option<Duration>,
    /// Time until the last hit expires.
    pub reset: Duration,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { used: Count(0), entries: VecDeque::new() }
    }
}

impl<T: Copy + Ord> Queue<T> {
    /// Drops hits that expired by `now`, and moves later ones to `now` if the clock was ahead.
    #[inline]
    pub(super) fn advance(&mut self, now: Timestamp, lifetime: Duration) {
        let last_kept = now.plus(lifetime.saturating_mul(MAX_STEP_BACK_WINDOWS));
        if self.newest().is_some_and(|newest| newest > last_kept) {
            let ahead = self.entries.iter_mut().rev().take_while(|entry| entry.at > now);
            ahead.for_each(|entry| entry.at = now);
            self.entries.make_contiguous().sort_unstable_by_key(|entry| (entry.at, entry.tag));
        }
        while let Some(first) = self.entries.front().filter(|first| first.at.plus(lifetime) <= now) {
            self.used -= first.hits;
            self.entries.pop_front();
        }
        // Frees memory after a burst, so that the memory of a queue is proportional to its entries.
        let length = self.entries.len().max(4);
        if self.entries.capacity() > length.saturating_mul(4) {
            self.entries.shrink_to(length.saturating_mul(2));
        }
    }

    /// Adds hits of time `at`.
    pub(super) fn push(&mut self, at: Timestamp, hits: u64, tag: T) {
        let is_later = |entry: &&Entry<T>| (entry.at, entry.tag) > (at, tag);
        let later = self.entries.iter().rev().take_while(is_later).count();
        let index = self.entries.len().saturating_sub(later);
        self.entries.insert(index, Entry { at, hits: Count(hits), tag });
        self.used += hits;
    }

    /// Time of the newest hit.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.entries.back().map(|entry| entry.at)
    }

    /// Time of hits that are added at `now`: that of the newest hit if the clock stepped back, so that they still count once
    /// it is right.
    pub(super) fn next_time(&self, now: Timestamp) -> Timestamp {
        self.newest().map_or(now, |newest| newest.max(now))
    }

    /// Removes up to `hits` of the newest hits.
    pub(super) fn remove_newest(&mut self, hits: u64) {
        let mut left = Count(hits);
        while let Some(last) = self.entries.back_mut().filter(|_| left > 0) {
            left -= take(last, left, &mut self.used);
            if last.hits == 0 {
                self.entries.pop_back();
            }
        }
    }

    /// Removes up to `hits` of the oldest hits.
    pub(super) fn remove_oldest(&mut self, hits: u64) {
        let mut left = Count(hits);
        while let Some(first) = self.entries.front_mut().filter(|_| left > 0) {
            left -= take(first, left, &mut self.used);
            if first.hits == 0 {
                self.entries.pop_front();
            }
        }
    }

    /// Removes up to `hits` of the hits of time `at`.
    pub(super) fn remove_at(&mut self, at: Timestamp, hits: u64) {
        let mut left = Count(hits);
        for entry in self.entries.iter_mut().rev().filter(|entry| entry.at == at) {
            left -= take(entry, left, &mut self.used);
        }
        self.entries.retain(|entry| entry.hits > 0);
    }

    /// Removes all hits with the tag, and returns their number.
    pub(super) fn remove_tagged(&mut self, tag: T) -> u64 {
        let tagged = self.entries.iter().filter(|entry| entry.tag == tag);
        let hits = tagged.map(|entry| entry.hits.0).sum();
        if hits > 0 {
            self.entries.retain(|entry| entry.tag != tag);
            self.used -= hits;
        }
        hits
    }

    /// Summary of a queue that was advanced to `now`, for a request of `hits` under `limit`.
    #[inline]
    pub(super) fn summary(&self, now: Timestamp, lifetime: Duration, limit: u32, hits: u64) -> QueueSummary {
        let reset = self.newest().map_or(Duration::ZERO, |newest| newest.plus(lifetime).since(now));
        QueueSummary { used: self.used.0, wait: self.wait(now, lifetime, limit, hits), reset }
    }

    /// Time until `hits` are within `limit`; `None` if they exceed it by themselves.
    fn wait(&self, now: Timestamp, lifetime: Duration, limit: u32, hits: u64) -> Option<Duration> {
        if hits > u64::from(limit) {
            return None;
        }
        let mut excess = self.used + hits - u64::from(limit);
        let mut wait = Duration::ZERO;
        for entry in &self.entries {
            if excess == 0 {
                break;
            }
            excess -= entry.hits;
            wait = entry.at.plus(lifetime).since(now);
        }
        Some(wait)
    }

    /// Time until which the hits are kept, in seconds since the epoch, rounded up: for a lifetime more than they count, in case
    /// that the lifetime is lengthened meanwhile.
    pub(super) fn kept_until(&self, lifetime: Duration) -> u32 {
        self.newest().map_or(0, |newest| {
            let end = newest.plus(lifetime.saturating_mul(2));
            end.seconds().saturating_add(u32::from(end.subsec_micros() > 0))
        })
    }
}

impl QueueSummary {
    /// Returns the verdict of a decision after which the queue has this summary.
    pub(super) fn verdict(&self, limit: u32, now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        let limit = Count(limit.into());
        let uncounted = if hits.is_overdraft() { 0 } else { hits.charged() };
        let over = (Count(self.used) + uncounted - limit).0.min(hits.charged());
        Verdict {
            admitted,
            remaining: (limit - self.used).0,
            reset_after: self.reset,
            retry_after: if admitted { Duration::ZERO } else { self.wait.unwrap_or(Duration::MAX) },
            used: self.used,
            // A request before the minimum interval fits the limit, and is counted as over it all the same.
            over: if admitted { 0 } else { over.max(u64::from(hits.charged() > 0)) },
            ..Verdict::empty(now)
        }
    }
}

/// Removes up to `hits` from an entry, and returns their number.
fn take<T>(entry: &mut Entry<T>, hits: Count, used: &mut Count) -> Count {
    let taken = hits.min(entry.hits);
    entry.hits -= taken;
    *used -= taken;
    taken
}
