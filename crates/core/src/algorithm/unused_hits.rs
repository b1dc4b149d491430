//! Fixed windows that carry a share of their unused hits to the next one.
//!
//! A window admits the limit and the *headroom*, that share of the limit. It begins with the part of the headroom that the last
//! window did not leave unused, and with the debt of that window, if the limit carries one: so it begins with 0 after a window
//! without hits. Both count in the next window only: the state is the end of the next window, from which on the last one was
//! without hits, and the hits of this window with those that it began with.

use std::time::Duration;

use super::{FixedWindow, MAX_STEP_BACK_WINDOWS};
use crate::{clock::Timestamp, descriptor::Hits};

/// Lower bits of the script's bound, with the maximum debt; above them is the share in percent.
const DEBT_BITS: u32 = 36;

impl FixedWindow {
    /// Returns this policy with a share of the unused hits, in percent, carried to the next window.
    #[must_use]
    pub const fn with_unused(self, percent: u8) -> Self {
        Self { unused_percent: percent, ..self }
    }

    /// Share of the unused hits that is carried, in percent.
    pub const fn unused_percent(&self) -> u8 {
        self.unused_percent
    }

    pub(super) const fn carries_unused(&self) -> bool {
        self.unused_percent > 0 && self.limit > 0
    }

    fn share_of(&self, hits: u64) -> u64 {
        hits.saturating_mul(self.unused_percent.into()) / 100
    }

    /// Hits up to which a window admits.
    pub(super) fn ceiling(&self) -> u64 {
        self.limit.saturating_add(self.share_of(self.limit))
    }

    fn max_next_debt(&self) -> u64 {
        self.limit.min(self.max_carried.into())
    }

    /// The bound of the script.
    pub(super) fn unused_bound(&self) -> u64 {
        // Disjoint bits.
        u64::from(self.unused_percent) << DEBT_BITS | self.max_next_debt()
    }

    /// Hits with which the window after one with `count` hits begins.
    fn next(&self, count: u64) -> u64 {
        let ceiling = self.ceiling();
        let headroom = ceiling.saturating_sub(self.limit);
        match count.checked_sub(ceiling) {
            Some(debt) => headroom.saturating_add(debt.min(self.max_next_debt())),
            None => headroom.saturating_sub(self.share_of(ceiling.saturating_sub(count))),
        }
    }

    /// Ends of the window that contains `now`, and of the one after it.
    pub(super) fn next_ends(&self, now: Timestamp) -> (u32, u32) {
        let end = self.window_end(now);
        (end, self.window_end(Timestamp::from_seconds(end)))
    }

    /// End of the window after that of `now`.
    pub(super) fn next_window_end(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_seconds(self.next_ends(now).1)
    }

    /// End of the next window, or of one that is ahead of the clock, and the hits of the present one.
    pub(super) fn counts_with_unused(&self, (ends, count): (u32, u64), now: Timestamp) -> (u32, u64) {
        let (end, next) = self.next_ends(now);
        let ahead = next.saturating_sub(end).saturating_mul(MAX_STEP_BACK_WINDOWS);
        let kept = if ends > next && ends <= next.saturating_add(ahead) { ends } else { next };
        let count = match ends {
            _ if ends <= now.seconds() => 0,
            _ if ends <= end => self.next(count),
            _ => count,
        };
        (kept, count)
    }

    /// The hits of a state: no more than the debt allows.
    pub(super) fn bounded_with_unused(&self, count: u64) -> u32 {
        let max_counted = match self.max_next_debt() {
            0 => u64::MAX,
            debt => self.ceiling().saturating_add(debt),
        };
        u32::try_from(count.min(max_counted)).unwrap_or(u32::MAX)
    }

    /// Time until the window ends, and until denied hits would pass in a window with `used` hits.
    pub(super) fn waits_with_unused(&self, used: u64, now: Timestamp, hits: Hits) -> (Duration, Duration) {
        let (end, next) = self.next_ends(now);
        let until = |end: u32| Timestamp::from_seconds(end).since(now);
        let passes_next = self.next(used).saturating_add(hits.charged()) <= self.ceiling();
        let retry = match hits.charged() > self.ceiling() {
            true => Duration::MAX,
            false if passes_next => until(end),
            false => until(next),
        };
        (until(end), retry)
    }
}
