//! Fixed windows that carry a share of their unused hits to the next one.
//!
//! A window admits the limit and the *headroom*, that share of the limit. It begins with the part of the headroom that the last
//! window did not leave unused, and with the debt of that window, if the limit carries one: so it begins with 0 after a window
//! without hits. Both count in the next window only: the state is the end of the next window, from which on the last one was
//! without hits, and the hits of this window with those that it began with.

use std::time::Duration;

use super::{FixedWindow, MAX_STEP_BACK_WINDOWS};
use crate::saturating::{Count, Seconds};
use crate::{clock::Timestamp, descriptor::Hits};

/// Lower bits of the script's bound, with the maximum debt; above them is the share in percent.
pub const DEBT_BITS: u32 = 36;

impl FixedWindow {
    pub(super) const fn carries_unused(&self) -> bool {
        self.unused_percent > 0 && self.limit > 0
    }

    fn share_of(&self, hits: Count) -> Count {
        Count((hits * u64::from(self.unused_percent)).0 / 100)
    }

    /// Hits up to which a window admits.
    pub(super) fn ceiling(&self) -> u64 {
        (Count(self.limit) + self.share_of(Count(self.limit))).0
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
    fn next(&self, count: Count) -> Count {
        let ceiling = Count(self.ceiling());
        let headroom = ceiling - self.limit;
        if count >= ceiling {
            headroom + (count - ceiling).min(Count(self.max_next_debt()))
        } else {
            headroom - self.share_of(ceiling - count)
        }
    }

    /// Ends of the window that contains `now`, and of the one after it.
    pub(super) fn next_ends(&self, now: Timestamp) -> (u32, u32) {
        let end = self.end_of_window(now);
        (end, self.end_of_window(Timestamp::from_seconds(end)))
    }

    /// End of the next window, or of one that is ahead of the clock, and the hits of the present one.
    pub(super) fn counts_with_unused(&self, ends: Seconds, count: Count, now: Timestamp) -> (Seconds, Count) {
        let (end, next) = self.next_ends(now);
        let (end, next) = (Seconds(end), Seconds(next));
        let ahead = (next - end) * MAX_STEP_BACK_WINDOWS;
        let kept = if ends > next && ends <= next + ahead { ends } else { next };
        let count = match ends {
            _ if ends <= now.seconds() => Count(0),
            _ if ends <= end => self.next(count),
            _ => count,
        };
        (kept, count)
    }

    /// The hits of a state: no more than the debt allows.
    pub(super) fn bounded_with_unused(&self, count: Count) -> u32 {
        match self.max_next_debt() {
            0 => count.word(),
            debt => count.min(Count(self.ceiling()) + debt).word(),
        }
    }

    /// Time until the window ends, and until denied hits would pass in a window with `used` hits.
    pub(super) fn waits_with_unused(&self, used: Count, now: Timestamp, hits: Hits) -> (Duration, Duration) {
        let (end, next) = self.next_ends(now);
        let until = |end: u32| Timestamp::from_seconds(end).since(now);
        let passes_next = self.next(used) + hits.charged() <= self.ceiling();
        let retry = match hits.charged() > self.ceiling() {
            true => Duration::MAX,
            false if passes_next => until(end),
            false => until(next),
        };
        (until(end), retry)
    }
}
