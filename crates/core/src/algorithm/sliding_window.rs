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
    LastVerdict, MAX_STEP_BACK_WINDOWS, Prefetch, Verdict, Words,
    last_verdict::{in_proportion, used_of_share},
};
use crate::{
    clock::Timestamp,
    descriptor::Hits,
    quota::{Quota, word_share_of},
};

/// Maximum number of steps of a window.
const MAX_STEPS: u64 = 1 << 21;

/// Bits of a window's length in the script's parameter; all lengths fit. The second since which the policy has it takes
/// the others, modulo 4 years.
const WINDOW_BITS: u32 = 26;
const SINCE_BITS: u32 = 27;

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
    /// End of the current window, in seconds since the epoch.
    end: u32,
    count: u64,
    previous: u64,
}

impl SlidingWindow {
    pub(super) fn new(quota: Quota) -> Self {
        Self { limit: quota.word(), window: quota.window.length(), since: 0, rounds_up: false }
    }

    /// Returns this policy for the counters that `former` decided until `now`, if there was such a policy.
    pub(super) const fn succeeding(self, former: Option<Self>, now: Timestamp) -> Self {
        match former {
            Some(former) if former.window.get() == self.window.get() => Self { since: former.since, ..self },
            // Zero stands for no change, also in the script's parameter.
            _ if now.seconds().trailing_zeros() >= SINCE_BITS => Self { since: now.seconds() | 1, ..self },
            _ => Self { since: now.seconds(), ..self },
        }
    }

    pub(super) const fn with_limit(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    /// Returns this policy for the share of a region.
    pub(super) const fn rounded_up(self) -> Self {
        Self { rounds_up: true, ..self }
    }

    pub(super) fn shared_by(self, instances: NonZeroU32) -> Self {
        Self { limit: word_share_of(self.limit, instances), ..self }
    }

    /// Returns this policy for a limit override, which shares the counter of `rule` if the window is the same.
    pub(super) const fn beside(self, rule: Self) -> Self {
        if rule.window.get() == self.window.get() { Self { since: rule.since, ..self } } else { self }
    }

    /// Limit in hits; window in seconds, with the second since which it has that length above, and negative if the share
    /// is rounded up.
    pub(super) fn script_parameters(&self) -> [i64; 2] {
        let since = i64::from(self.since) & ((1 << SINCE_BITS) - 1);
        let window = i64::from(self.window.get()) | since << WINDOW_BITS;
        [i64::from(self.limit), if self.rounds_up { window.saturating_neg() } else { window }]
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// State of this share of the `whole` limit after its last verdict.
    pub(super) fn after(&self, whole: &Self, last: &LastVerdict, instances: NonZeroU32) -> Words {
        let (limit, share) = (u64::from(whole.limit), u64::from(self.limit));
        let used = used_of_share(limit, last.used, share, instances);
        let count = in_proportion(last.current(), share, limit).min(used);
        let counts = Counts {
            end: whole.end_of((last.decided_at, last.reset_at), last.current()),
            count,
            previous: 0,
        };
        if self.is_changed_within(counts.end) {
            // All hits count in full until the end of the window.
            return self.words(&Counts { count: used, ..counts });
        }
        let left = Self::until_end(&counts, last.decided_at).div_ceil(self.step()).clamp(1, self.steps());
        let mut previous = self.previous_of(used.saturating_sub(count), left);
        if last.used >= limit {
            let of_whole = self.previous_of(last.decaying.into(), left);
            let (room, room_of_share) = (limit.saturating_sub(last.current()), share.saturating_sub(count));
            previous = previous.max(self.previous_that_fills(room_of_share, of_whole, room));
        }
        self.words(&Counts { previous, ..counts })
    }

    /// Time at which the counter equals an unused one, given that `prefetched` tokens were charged after a verdict.
    pub(super) fn reset_with(&self, verdict: &Verdict, prefetched: u32) -> Timestamp {
        let reset_at = verdict.decided_at.plus(verdict.reset_after);
        if prefetched == 0 {
            return reset_at;
        }
        let current = verdict.used.saturating_sub(verdict.decaying);
        let end = Timestamp::from_seconds(self.end_of((verdict.decided_at, reset_at), current));
        let left = self.last_left(current.saturating_add(prefetched.into()), 0);
        end.plus(Duration::from_micros(self.micros().saturating_sub(left)))
    }

    /// End of the window of a verdict whose `current` hits, or those of the window before without any, expire at `reset_at`.
    /// It may be ahead, after a step back of the clock or a change of length.
    fn end_of(&self, (decided_at, reset_at): (Timestamp, Timestamp), current: u64) -> u32 {
        let end = match current {
            0 => self.window_end(Timestamp::from_micros(reset_at.as_micros().saturating_sub(1))),
            _ => {
                let behind = self.micros().saturating_sub(self.last_left(current, 0));
                Timestamp::from_micros(reset_at.as_micros().saturating_sub(behind)).seconds()
            }
        };
        end.max(self.window_end(decided_at))
    }

    /// Maximum number of hits of the previous window of which `share` count when `left` steps of this one are left.
    fn previous_of(&self, share: u64, left: u64) -> u64 {
        let steps = self.steps();
        match self.rounds_up {
            true => share.saturating_mul(steps).checked_div(left).unwrap_or(0),
            false => share.saturating_add(1).saturating_mul(steps).div_ceil(left).saturating_sub(1),
        }
    }

    /// Minimum number of hits of the previous window that keep a share with `room_of_share` for them full for as long as
    /// `previous` hits keep a whole full that has `room` for them. The hits of a share are fewer, so that its next one may
    /// expire earlier.
    fn previous_that_fills(&self, room_of_share: u64, previous: u64, room: u64) -> u64 {
        // Rounded up, a hit counts until nothing of it is left.
        let rest = u64::from(self.rounds_up);
        match room.saturating_sub(rest) {
            0 => 0,
            room => previous.saturating_mul(room_of_share.saturating_sub(rest)).div_ceil(room),
        }
    }

    /// Length of a window.
    pub(super) const fn length(&self) -> Duration {
        Duration::from_secs(self.window.get() as u64)
    }

    /// Length of one step in microseconds.
    fn step(&self) -> u64 {
        self.micros().div_ceil(MAX_STEPS)
    }

    fn micros(&self) -> u64 {
        u64::from(self.window.get()).saturating_mul(1_000_000)
    }

    /// Number of whole steps of the window.
    fn steps(&self) -> u64 {
        self.micros().checked_div(self.step()).unwrap_or(1)
    }

    /// End of the window that contains `time`, in seconds since the epoch.
    pub(super) fn window_end(&self, time: Timestamp) -> u32 {
        let start = time.seconds().saturating_sub(time.seconds() % self.window);
        start.saturating_add(self.window.get())
    }

    /// Whether states in the window that ends at `end` may be of another length.
    const fn is_changed_within(&self, end: u32) -> bool {
        self.since > end.saturating_sub(self.window.get())
    }

    /// The counts as of `now`.
    fn counts(&self, [ends, count, previous]: Words, now: Timestamp) -> Counts {
        let window = self.window.get();
        let end = self.window_end(now);
        let next_end = end.saturating_add(window);
        let last_end = next_end.saturating_add(window.saturating_mul(MAX_STEP_BACK_WINDOWS));
        let is_changed = self.is_changed_within(end);
        let all = count.saturating_add(previous).into();
        let (count, previous) = (u64::from(count), u64::from(previous));
        match ends {
            _ if ends <= now.seconds() => Counts { end, count: 0, previous: 0 },
            _ if ends == next_end && !is_changed => Counts { end, count, previous },
            _ if ends == end && !is_changed => Counts { end, count: 0, previous: count },
            // Hits counted with another length count in full, and until an edge of this length.
            _ if ends <= next_end => Counts { end, count: all, previous: 0 },
            _ if ends <= last_end => Counts { end: ends.saturating_sub(window), count, previous },
            _ => Counts { end: next_end, count, previous },
        }
    }

    /// End of the window that a charge counts in.
    pub(super) fn label(&self, state: Words, now: Timestamp) -> u32 {
        self.counts(state, now).end
    }

    /// Microseconds from `now` to the end of the current window.
    fn until_end(counts: &Counts, now: Timestamp) -> u64 {
        u64::from(counts.end).saturating_mul(1_000_000).saturating_sub(now.as_micros())
    }

    /// Number of hits of the previous window that count `left` microseconds before the end of the current one.
    fn share(&self, previous: u64, left: u64) -> u64 {
        let steps = self.steps();
        let product = previous.saturating_mul(left.div_ceil(self.step()).min(steps));
        if self.rounds_up { product.div_ceil(steps.max(1)) } else { product.checked_div(steps).unwrap_or(0) }
    }

    fn used(&self, counts: &Counts, now: Timestamp) -> u64 {
        self.share(counts.previous, Self::until_end(counts, now)).saturating_add(counts.count)
    }

    pub(super) fn apply(&self, state: &mut Words, now: Timestamp, hits: Hits) -> bool {
        if let Hits::RefundCharge { made_at, .. } = hits {
            // Time at which the charge expires if it is among the current hits; one window later if among the previous.
            let expires_at = self.window_end(made_at).saturating_add(self.window.get());
            if state[0] != expires_at && state[0] != expires_at.saturating_add(self.window.get()) {
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
                admitted = used.saturating_add(amount.get()) <= limit;
                if admitted {
                    counts.count = counts.count.saturating_add(amount.get());
                }
            }
            Hits::Overdraw(amount) => {
                admitted = used.saturating_add(amount.get()) <= limit;
                counts.count = counts.count.saturating_add(amount.get());
            }
            Hits::Refund(amount) => {
                let more = amount.get().saturating_sub(counts.count);
                counts.count = counts.count.saturating_sub(amount.get());
                counts.previous = counts.previous.saturating_sub(more);
                admitted = true;
            }
            Hits::RefundCharge { amount, made_at } => {
                self.refund_charge(&mut counts, amount.get(), made_at);
                admitted = true;
            }
            Hits::Peek | Hits::Release(_) | Hits::Settle { .. } => {}
        }
        *state = self.words(&counts);
        admitted
    }

    pub(super) fn prefetch(&self, state: &mut Words, now: Timestamp, prefetch: Prefetch) -> u32 {
        let mut counts = self.counts(*state, now);
        let tokens = prefetch.granted(u64::from(self.limit).saturating_sub(self.used(&counts, now)));
        if tokens > 0 {
            counts.count = counts.count.saturating_add(u64::from(tokens));
            *state = self.words(&counts);
        }
        tokens
    }

    fn words(&self, counts: &Counts) -> Words {
        let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        [counts.end.saturating_add(self.window.get()), word(counts.count), word(counts.previous)]
    }

    /// Refunds a charge of time `made_at`, which is among the current hits or among the previous ones.
    fn refund_charge(&self, counts: &mut Counts, amount: u64, made_at: Timestamp) {
        let window_end = self.window_end(made_at);
        if window_end == counts.end {
            counts.count = counts.count.saturating_sub(amount);
        } else if window_end.saturating_add(self.window.get()) == counts.end {
            counts.previous = counts.previous.saturating_sub(amount);
        }
    }

    pub(super) fn verdict(&self, state: Words, now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        let counts = self.counts(state, now);
        let used = self.used(&counts, now);
        let limit = u64::from(self.limit);
        let uncounted = if hits.is_overdraft() { 0 } else { hits.charged() };
        let over = used.saturating_add(uncounted).saturating_sub(limit).min(hits.charged());
        Verdict {
            admitted,
            remaining: limit.saturating_sub(used),
            reset_after: self.until_room(&counts, now, 0),
            retry_after: match limit.checked_sub(hits.charged()) {
                _ if admitted => Duration::ZERO,
                Some(room) => self.until_room(&counts, now, room),
                None => Duration::MAX,
            },
            used,
            decaying: used.saturating_sub(counts.count),
            over: if admitted { 0 } else { over },
            held: 0,
            decided_at: now,
            ban: None,
        }
    }

    /// Time until at most `room` hits count.
    fn until_room(&self, counts: &Counts, now: Timestamp, room: u64) -> Duration {
        let left = Self::until_end(counts, now);
        let micros = match room.checked_sub(counts.count) {
            Some(room) => left.saturating_sub(self.last_left(counts.previous, room)),
            // At the earliest when the current hits are those of the previous window.
            None => left.saturating_add(self.micros()).saturating_sub(self.last_left(counts.count, room)),
        };
        Duration::from_micros(micros)
    }

    /// Maximum number of microseconds left of a window at which at most `room` of the `previous` hits count.
    fn last_left(&self, previous: u64, room: u64) -> u64 {
        // share <= room  <=>  previous × steps < (room + 1) × all steps, or <= room × all steps if rounded up
        let bound = match self.rounds_up {
            true => room.saturating_mul(self.steps()).saturating_add(1),
            false => room.saturating_add(1).saturating_mul(self.steps()),
        };
        match bound.saturating_sub(1).checked_div(previous) {
            Some(steps) if steps < self.steps() => steps.saturating_mul(self.step()),
            Some(_) | None => u64::MAX,
        }
    }
}

/// Time at which the last hit expires, in seconds since the epoch.
pub(super) const fn expires_at([ends, count, previous]: Words) -> u32 {
    if count == 0 && previous == 0 { 0 } else { ends }
}
