//! Sliding window, estimated from two counts.
//!
//! Hits are counted in windows aligned to the epoch, and those of the previous window count in part: in proportion to the
//! part of that window that lies within one window's length of now, as if they were spread evenly. Hits pass while the
//! estimate and the new ones are within the limit; denied hits do not count. No aligned window holds more than the limit,
//! and bursts at both sides of an edge are limited; but uneven hits are estimated wrongly, so that up to twice the limit
//! can pass in an interval that is not aligned: with all hits at the end of one window, and all that the estimate frees by
//! the end of the next. The log is exact. Hits charged as an overdraft count in full.
//!
//! The state is `[end, count, previous]`: the hits of the current and of the previous window, and the time at which the
//! current ones expire, one window's length after the end of their window, in seconds since the epoch. Their window
//! follows from that time and the window's length.
//!
//! After the length was changed, the hits of both windows count in full until the end of the window of `now`, so that not
//! more than the larger of the two limits passes in that window; then they are those of the previous one. A state of
//! another length shows by its end, unless that is also the end of a window of the new length. So the policy holds the
//! second since which it has its length: in the window of that second, every state may be of another length. After the
//! clock stepped back by up to four windows the state stays, so that nothing is granted twice once the clock is right; a
//! state further ahead counts as one of the next window.
//!
//! The share is computed in steps of 2^-21 of a window, but at least a microsecond, rounded up: all products are exact in
//! the 53 bits of a Lua number.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Charging, LastVerdict, LimitAlgorithm, MAX_STEP_BACK_WINDOWS, Parameters, Prefetch, StateSummary,
    Verdict, Words, in_proportion, used_of_share,
};
use crate::saturating::{Count, Seconds};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

/// Maximum number of steps of a window.
pub const MAX_STEPS: u64 = 1 << 21;

/// Bits of a window's length in the script's parameter; all lengths fit.
pub const WINDOW_BITS: u32 = 26;

/// Bits above them of the second since which the policy has that length, modulo 4 years.
pub const SINCE_BITS: u32 = 27;

/// At most `limit` hits in a sliding window, by estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u32,
    /// Length in seconds.
    window: NonZeroU32,
    /// Second since the epoch since which the counter has this length; 0 if it is not known to have had another one.
    since: u32,
    /// Whether the share of the previous window is rounded up: the sums of several regions then are no less than the whole.
    rounds_up: bool,
}

/// State as of a given time.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// End of the current window, since the epoch.
    end: Seconds,
    count: Count,
    previous: Count,
}

impl SlidingWindow {
    /// Returns this policy for the counters that `former` decided until `now`, if there was such a policy.
    pub(super) const fn succeeding(self, former: Option<Self>, now: Timestamp) -> Self {
        let since = match former {
            Some(former) if former.window.get() == self.window.get() => former.since,
            // Zero stands for no change, also in the script's parameter.
            _ if now.seconds().trailing_zeros() >= SINCE_BITS => now.seconds() | 1,
            _ => now.seconds(),
        };
        Self { since, ..self }
    }

    /// End of the window of a verdict whose `current` hits, or those of the window before without any, expire at `reset_at`.
    /// It may be ahead, after a step back of the clock or a change of length.
    fn end_of(&self, decided_at: Timestamp, reset_at: Timestamp, current: Count) -> Seconds {
        let reset_at = Count(reset_at.as_micros());
        let end = match current {
            Count(0) => Timestamp::from_micros((reset_at - 1).0).window_end(self.window),
            _ => {
                let behind = self.micros() - self.last_left(current, Count(0));
                Seconds(Timestamp::from_micros((reset_at - behind).0).seconds())
            }
        };
        end.max(decided_at.window_end(self.window))
    }

    /// Maximum number of hits of the previous window of which `share` count when `left` steps of this one are left.
    fn previous_of(&self, share: Count, left: u64) -> Count {
        let steps = self.steps();
        if self.rounds_up {
            Count((share * steps).0.checked_div(left).unwrap_or(0))
        } else {
            Count(((share + 1) * steps).0.div_ceil(left)) - 1
        }
    }

    /// Minimum number of hits of the previous window that keep a share with `room_of_share` for them full for as long as
    /// `previous` hits keep a whole full that has `room` for them. The hits of a share are fewer, so that its next one may
    /// expire earlier.
    fn previous_that_fills(&self, room_of_share: Count, previous: Count, room: Count) -> Count {
        // Rounded up, a hit counts until nothing of it is left.
        let rest = u64::from(self.rounds_up);
        match (room - rest).0 {
            0 => Count(0),
            room => Count((previous * (room_of_share - rest)).0.div_ceil(room)),
        }
    }

    /// Length of one step in microseconds.
    fn step(&self) -> u64 {
        self.micros().0.div_ceil(MAX_STEPS)
    }

    fn micros(&self) -> Count {
        Count(self.window.get().into()) * 1_000_000
    }

    /// Number of whole steps of the window.
    fn steps(&self) -> u64 {
        self.micros().0.checked_div(self.step()).unwrap_or(1)
    }

    /// Whether states in the window that ends at `end` may be of another length.
    fn is_changed_within(&self, end: Seconds) -> bool {
        Seconds(self.since) > end - self.window.get()
    }

    /// The counts as of `now`.
    fn counts(&self, [ends, count, previous]: Words, now: Timestamp) -> Counts {
        let (window, ends) = (Seconds(self.window.get()), Seconds(ends));
        let end = now.window_end(self.window);
        let next_end = end + window;
        let last_end = next_end + window * MAX_STEP_BACK_WINDOWS;
        let is_changed = self.is_changed_within(end);
        // No more than a state holds.
        let all = Count(count.saturating_add(previous).into());
        let (count, previous, none) = (Count(count.into()), Count(previous.into()), Count(0));
        match ends {
            _ if ends <= now.seconds() => Counts { end, count: none, previous: none },
            _ if ends == next_end && !is_changed => Counts { end, count, previous },
            _ if ends == end && !is_changed => Counts { end, count: none, previous: count },
            // Hits counted with another length count in full, and until an edge of this length.
            _ if ends <= next_end => Counts { end, count: all, previous: none },
            _ if ends <= last_end => Counts { end: ends - window, count, previous },
            _ => Counts { end: next_end, count, previous },
        }
    }

    /// Microseconds from `now` to the end of the current window.
    fn until_end(counts: &Counts, now: Timestamp) -> Count {
        Count(counts.end.0.into()) * 1_000_000 - now.as_micros()
    }

    /// Number of hits of the previous window that count `left` microseconds before the end of the current one.
    fn share(&self, previous: Count, left: Count) -> Count {
        let steps = self.steps();
        let Count(product) = previous * left.0.div_ceil(self.step()).min(steps);
        Count(if self.rounds_up {
            product.div_ceil(steps.max(1))
        } else {
            product.checked_div(steps).unwrap_or(0)
        })
    }

    fn used(&self, counts: &Counts, now: Timestamp) -> Count {
        self.share(counts.previous, Self::until_end(counts, now)) + counts.count
    }

    fn words(&self, counts: &Counts) -> Words {
        [(counts.end + self.window.get()).0, counts.count.word(), counts.previous.word()]
    }

    /// Time until at most `room` hits count.
    fn until_room(&self, counts: &Counts, now: Timestamp, room: Count) -> Duration {
        let left = Self::until_end(counts, now);
        let micros = if room >= counts.count {
            left - self.last_left(counts.previous, room - counts.count)
        } else {
            // At the earliest when the current hits are those of the previous window.
            left + self.micros() - self.last_left(counts.count, room)
        };
        Duration::from_micros(micros.0)
    }

    /// Maximum number of microseconds left of a window at which at most `room` of the `previous` hits count.
    fn last_left(&self, previous: Count, room: Count) -> Count {
        // share <= room  <=>  previous × steps < (room + 1) × all steps, or <= room × all steps if rounded up
        let bound = if self.rounds_up { room * self.steps() + 1 } else { (room + 1) * self.steps() };
        match (bound - 1).0.checked_div(previous.0) {
            Some(steps) if steps < self.steps() => Count(steps) * self.step(),
            Some(_) | None => Count(u64::MAX),
        }
    }
}

impl LimitAlgorithm for SlidingWindow {
    type State = Words;

    fn nearest(quota: Quota, _parameters: &Parameters) -> Self {
        Self { limit: quota.word(), window: quota.window.length(), since: 0, rounds_up: false }
    }

    fn with_quota(self, quota: Quota) -> Self {
        // A limit override shares the counter of the rule if the window is the same.
        let limit = Self::nearest(quota, &Parameters::default());
        if limit.window == self.window { Self { since: self.since, ..limit } } else { limit }
    }

    fn limit(&self) -> u64 {
        self.limit.into()
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.window.get().into())
    }

    fn apply(&self, state: &mut Words, now: Timestamp, hits: Hits, _charging: Charging) -> bool {
        if let Hits::RefundCharge { made_at, .. } = hits {
            // Time at which the charge expires if it is among the current hits; one window later if among the previous.
            let (ends, expires_at) = (Seconds(state[0]), made_at.window_end(self.window) + self.window.get());
            if ends != expires_at && ends != expires_at + self.window.get() {
                // The charge has expired, or one of the two was counted with another length and may not count any more.
                return true;
            }
        }
        let mut counts = self.counts(*state, now);
        let used = self.used(&counts, now);
        let limit = u64::from(self.limit);
        let mut admitted = used <= limit;
        match hits {
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => {
                admitted = used + amount.get() <= limit;
                if admitted {
                    counts.count += amount.get();
                }
            }
            Hits::Overdraw(amount) => {
                admitted = used + amount.get() <= limit;
                counts.count += amount.get();
            }
            Hits::Refund(amount) => {
                let more = Count(amount.get()) - counts.count;
                counts.count -= amount.get();
                counts.previous -= more;
                admitted = true;
            }
            Hits::RefundCharge { amount, made_at } => {
                // It is among the current hits or among the previous ones.
                let window_end = made_at.window_end(self.window);
                if window_end == counts.end {
                    counts.count -= amount.get();
                } else if window_end + self.window.get() == counts.end {
                    counts.previous -= amount.get();
                }
                admitted = true;
            }
            Hits::Peek | Hits::Release(_) | Hits::Settle { .. } => {}
        }
        *state = self.words(&counts);
        admitted
    }

    fn verdict(&self, of: StateSummary, now: Timestamp, hits: Hits, admitted: bool, _: Charging) -> Verdict {
        let counts = self.counts(of.words(), now);
        let used = self.used(&counts, now);
        let limit = u64::from(self.limit);
        let uncounted = if hits.is_overdraft() { 0 } else { hits.charged() };
        let over = (used + uncounted - limit).0.min(hits.charged());
        Verdict {
            admitted,
            remaining: (Count(limit) - used).0,
            reset_after: self.until_room(&counts, now, Count(0)),
            retry_after: match limit.checked_sub(hits.charged()) {
                _ if admitted => Duration::ZERO,
                Some(room) => self.until_room(&counts, now, Count(room)),
                None => Duration::MAX,
            },
            used: used.0,
            decaying: (used - counts.count).0,
            over: if admitted { 0 } else { over },
            ..Verdict::empty(now)
        }
    }

    fn expires_at(&self, [ends, count, previous]: &Words) -> u32 {
        if *count == 0 && *previous == 0 { 0 } else { *ends }
    }

    fn prefetch(&self, state: &mut Words, now: Timestamp, prefetch: Prefetch) -> u32 {
        let mut counts = self.counts(*state, now);
        let tokens = prefetch.granted((Count(self.limit.into()) - self.used(&counts, now)).0);
        if tokens > 0 {
            counts.count += u64::from(tokens);
            *state = self.words(&counts);
        }
        tokens
    }

    fn prefetched_until(&self, now: Timestamp) -> Option<Timestamp> {
        Some(Timestamp::from_seconds(now.window_end(self.window).0))
    }

    /// Limit in hits; window in seconds, with the second since which it has that length above, and negative if the share
    /// is rounded up.
    fn script_parameters(&self, _store_time: impl FnOnce() -> Timestamp) -> [i64; 2] {
        let since = i64::from(self.since) & ((1 << SINCE_BITS) - 1);
        let window = i64::from(self.window.get()) | since << WINDOW_BITS;
        [i64::from(self.limit), if self.rounds_up { window.saturating_neg() } else { window }]
    }

    fn with_limit(self, limit: u64, _window: Duration) -> Self {
        Self { limit: Count(limit).word(), ..self }
    }

    fn region_share(self, share: u32, _whole: u32) -> Self {
        Self { limit: share, rounds_up: true, ..self }
    }

    fn tail(&self) -> Duration {
        self.length().saturating_mul(3)
    }

    fn can_be_lent(&self) -> bool {
        true
    }

    /// End of the window that a charge counts in.
    fn label(&self, state: &Words, now: Timestamp) -> u32 {
        self.counts(*state, now).end.0
    }

    fn last_verdict(&self, verdict: &Verdict, prefetched: u32) -> LastVerdict {
        let mut last = LastVerdict::of(verdict, prefetched);
        if prefetched > 0 {
            let current = Count(verdict.used) - verdict.decaying;
            let end = Timestamp::from_seconds(self.end_of(last.decided_at, last.reset_at, current).0);
            let left = self.last_left(current + u64::from(prefetched), Count(0));
            last.reset_at = end.plus(Duration::from_micros((self.micros() - left).0));
        }
        last
    }

    fn after(&self, whole: &Self, last: &LastVerdict, instances: NonZeroU32) -> Option<Words> {
        let (limit, share) = (u64::from(whole.limit), u64::from(self.limit));
        let used = Count(used_of_share(limit, last.used, share, instances));
        let current = Count(last.current());
        let count = Count(in_proportion(current.0, share, limit)).min(used);
        let end = whole.end_of(last.decided_at, last.reset_at, current);
        let counts = Counts { end, count, previous: Count(0) };
        if self.is_changed_within(counts.end) {
            // All hits count in full until the end of the window.
            return Some(self.words(&Counts { count: used, ..counts }));
        }
        let until_end = Self::until_end(&counts, last.decided_at);
        let left = until_end.0.div_ceil(self.step()).clamp(1, self.steps());
        let mut previous = self.previous_of(used - count, left);
        if last.used >= limit {
            let of_whole = self.previous_of(Count(last.decaying.into()), left);
            let (room, room_of_share) = (Count(limit) - current, Count(share) - count);
            previous = previous.max(self.previous_that_fills(room_of_share, of_whole, room));
        }
        Some(self.words(&Counts { previous, ..counts }))
    }
}
