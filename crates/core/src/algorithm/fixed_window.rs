//! Fixed windows, aligned to the epoch, or those of a calendar.
//!
//! The algorithm of envoyproxy/ratelimit: denied hits count too, so that a caller that keeps sending stays over its limit
//! until the window ends. They do not count where a request is charged all or none, or where the counter is leased. Up to
//! twice the limit can pass in an interval of one window's length that spans an edge.
//!
//! The state is `[end of the window in seconds since the epoch, low 32 bits of the hits, the others]`. While that end lies ahead, the hits count,
//! whatever window the rule has by now: after a window was made longer, the usage counts to the end of that window. An end
//! up to four windows after that of the present one stays, so that a clock that stepped back and is put right grants
//! nothing twice; and so usage of a longer window counts to the end of that. An end beyond that is replaced by that of the
//! next window; with a calendar, by that of the present one.
//!
//! With a *carry*, hits beyond the limit count in the next windows too, up to a bound. The state is then the end of the
//! last of these windows, and the hits that are left for it; each window before it is full. Of a calendar these are no more
//! than two windows: the script has the end of the next one only. Such a state of another limit
//! or window thus lasts as long as it did, within the bound.
//!
//! Limits of up to 32 bits count no more than 2^32 - 1 hits, and their third word is 0: a store has only two. Others are
//! *wide*: they count up to [`Hits::MAX`], under a kind of their own, and have no carry.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Charging, LastVerdict, LimitAlgorithm, MAX_STEP_BACK_WINDOWS, Parameters, PolicyError, Prefetch,
    StateSummary, Verdict, Words, in_proportion_of_time, used_of_share,
};
use crate::quota::{Quota, share_of, word_share_of};
use crate::saturating::{Count, Seconds};
use crate::{calendar::Calendar, clock::Timestamp, descriptor::Hits};

/// Maximum length of the windows for which a loan between regions lasts longer than one.
const MAX_LOAN_WINDOW: Duration = Duration::from_secs(5);

/// Maximum time by which a window of a calendar exceeds the length of its unit: a month has up to 31 days, a year 366, and a
/// country that moves to the other side of the date line may have a day twice.
const MAX_EXCESS: Duration = Duration::from_secs(2 * 86_400);

/// At most `limit` hits in each window of `window` seconds, or of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    pub(super) limit: u64,
    /// With a calendar, the length of its unit.
    pub(super) window: NonZeroU32,
    pub(super) calendar: Option<Calendar>,
    /// Maximum number of hits beyond the limit that count in the next windows; 0 without a carry.
    pub(super) max_carried: u32,
    /// Share of the unused hits that is carried to the next window, in percent.
    pub(super) unused_percent: u8,
}

impl FixedWindow {
    /// Maximum number of hits that a counter has whose debt counts in the next windows; `None` for others.
    fn max_used(&self) -> Option<u64> {
        if self.carries_unused() {
            return None;
        }
        let max_carried = u64::from(self.max_carried);
        let max_carried = if self.calendar.is_some() { self.limit.min(max_carried) } else { max_carried };
        (self.limit > 0 && self.max_carried > 0).then_some((Count(self.limit) + max_carried).0)
    }

    /// End of the window that contains `now`, in seconds since the epoch.
    pub(super) fn end_of_window(&self, now: Timestamp) -> u32 {
        match self.calendar {
            None => now.window_end(self.window).0,
            Some(calendar) => calendar.window(now.seconds()).end,
        }
    }

    /// Time from the start of the window that contains `now`.
    fn elapsed(&self, now: Timestamp) -> Duration {
        let start = match self.calendar {
            None => (now.window_end(self.window) - self.window.get()).0,
            Some(calendar) => calendar.window(now.seconds()).start,
        };
        now.since(Timestamp::from_seconds(start))
    }

    /// End of the window in which the hits count, and their number.
    fn counts(&self, state: Words, now: Timestamp) -> (Seconds, Count) {
        let (ends, count) = (Seconds(state[0]), hits_of(state));
        if self.carries_unused() {
            return self.counts_with_unused(ends, count, now);
        }
        let (end, window) = (Seconds(self.end_of_window(now)), Seconds(self.window.get()));
        match ends {
            _ if ends <= now.seconds() => (end, Count(0)),
            _ if ends > end
                && let Some(max_used) = self.max_used() =>
            {
                let windows = match self.calendar {
                    None => (ends - end).0.div_ceil(window.0),
                    Some(_) => 1,
                };
                let used = Count(windows.into()) * self.limit + count;
                (end, used.min(Count(max_used)))
            }
            _ if ends <= end + window * MAX_STEP_BACK_WINDOWS => (ends.max(end), count),
            _ if self.calendar.is_some() => (end, count),
            _ => (end + window, count),
        }
    }

    /// Whether counters need [`RecordKind::WideWindow`](super::RecordKind::WideWindow).
    pub(super) fn is_wide(&self) -> bool {
        self.limit > u32::MAX.into()
    }

    /// Maximum number of hits that a state holds.
    fn max_counted(&self) -> u64 {
        if self.is_wide() { Hits::MAX } else { u32::MAX.into() }
    }

    /// The state with `count` hits in the window that ends at `end`.
    fn state(&self, mut end: Seconds, mut count: Count) -> Words {
        if self.carries_unused() {
            return [end.0, self.bounded_with_unused(count), 0];
        }
        if let Some(max_used) = self.max_used() {
            count = count.min(Count(max_used));
            // The last second since the epoch that a state can have bounds the windows.
            let left = u64::from((Seconds(u32::MAX) - end).0 / self.window);
            let full = (count - 1).0.checked_div(self.limit).unwrap_or(0).min(left);
            end = match self.calendar {
                None => end + Seconds(self.window.get()) * u32::try_from(full).unwrap_or(0),
                Some(calendar) if full > 0 => Seconds(calendar.window(end.0).end),
                Some(_) => end,
            };
            count -= Count(full) * self.limit;
        }
        let Count(count) = count.min(Count(self.max_counted()));
        [end.0, Count(count & u64::from(u32::MAX)).word(), Count(count >> u32::BITS).word()]
    }

    /// Time until denied hits may pass, without a carry of unused hits.
    fn retry_after(&self, state: Words, used: Count, now: Timestamp, hits: Hits) -> Duration {
        let limit = self.ceiling();
        if hits.charged() > limit {
            return Duration::MAX;
        }
        // In the last window that the carried hits take part of.
        if used > limit && hits_of(state) + hits.charged() <= limit {
            let end = match self.calendar {
                None => (Seconds(state[0]) - self.window.get()).0,
                Some(calendar) => calendar.window((Seconds(state[0]) - 1).0).start,
            };
            return until(end, now);
        }
        until(state[0], now)
    }

    /// Hits that a counter has with those of a charge that was counted whether admitted or not.
    fn counted(&self, state: Words, used: Count, hits: Hits, admitted: bool) -> Count {
        // The state holds no more hits. The charge was made on a full counter or, if it is larger than that alone, on an
        // unused one, as far as the state shows.
        if hits_of(state) == self.max_counted() && !admitted {
            let charged = Count(hits.charged());
            return if charged > used { charged } else { used + charged };
        }
        used
    }
}

impl LimitAlgorithm for FixedWindow {
    type State = Words;

    fn nearest(quota: Quota, parameters: &Parameters) -> Self {
        let Quota { limit, window } = quota;
        let max_carried = if parameters.carry { parameters.debt_of(quota) } else { 0 };
        let unused_percent = parameters.unused_percent;
        Self { limit, window: window.length(), calendar: window.calendar(), max_carried, unused_percent }
    }

    fn check(&self, quota: Quota, _parameters: &Parameters) -> Result<(), PolicyError> {
        let carries = self.max_carried > 0 || self.unused_percent > 0;
        if carries && quota.is_wide() { Err(PolicyError::TooLarge) } else { Ok(()) }
    }

    fn common_parameters(&self) -> Parameters {
        let carry = self.max_carried > 0;
        let unused_percent = self.unused_percent;
        Parameters { overdraft: carry, carry, unused_percent, ..Parameters::default() }
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.window.get().into())
    }

    fn window_end(&self, now: Timestamp) -> Option<u32> {
        Some(self.end_of_window(now))
    }

    /// Not on a limit of 0, so that none of them is counted once the limit is raised.
    fn counts_denied(&self) -> bool {
        self.limit > 0
    }

    fn apply(&self, state: &mut Words, now: Timestamp, hits: Hits, charging: Charging) -> bool {
        if let Hits::RefundCharge { made_at, .. } = hits
            && self.end_of_window(made_at) != state[0]
        {
            // The charge has expired, or one of the two was counted with another length and may not count any more.
            return true;
        }
        let (end, count) = self.counts(*state, now);
        let limit = self.ceiling();
        let after = match hits {
            Hits::Peek | Hits::Release(_) | Hits::Settle { .. } => count,
            Hits::Charge(amount) | Hits::Overdraw(amount) | Hits::Acquire { amount, .. } => {
                count + amount.get()
            }
            Hits::Refund(amount) | Hits::RefundCharge { amount, .. } => count - amount.get(),
        };
        let may_be_uncounted = charging == Charging::AllOrNone && !hits.is_overdraft();
        let is_uncounted = may_be_uncounted && hits.charged() > 0 && after > limit;
        *state = self.state(end, if is_uncounted { count } else { after });
        matches!(hits, Hits::Refund(_) | Hits::RefundCharge { .. }) || after <= limit
    }

    fn verdict(
        &self,
        of: StateSummary,
        now: Timestamp,
        hits: Hits,
        admitted: bool,
        charging: Charging,
    ) -> Verdict {
        let (state, limit) = (of.words(), self.ceiling());
        let used = match self.max_used() {
            None => hits_of(state),
            Some(_) => self.counts(state, now).1,
        };
        let (reset_after, retry_after) = match self.carries_unused() {
            true => self.waits_with_unused(used, now, hits),
            false if admitted => (until(state[0], now), Duration::ZERO),
            false => (until(state[0], now), self.retry_after(state, used, now, hits)),
        };
        let counted = match charging {
            Charging::Independent => self.counted(state, used, hits, admitted),
            Charging::AllOrNone if admitted || hits.is_overdraft() => used,
            Charging::AllOrNone => used + hits.charged(),
        };
        Verdict {
            admitted,
            remaining: (Count(limit) - used).0,
            reset_after,
            retry_after: if admitted { Duration::ZERO } else { retry_after },
            used: used.0,
            over: (counted - limit).0.min(hits.charged()),
            ..Verdict::empty(now)
        }
    }

    /// End of the window; an empty one need not be kept.
    fn expires_at(&self, [ends, low, high]: &Words) -> u32 {
        if *low == 0 && *high == 0 { 0 } else { *ends }
    }

    fn prefetch(&self, state: &mut Words, now: Timestamp, prefetch: Prefetch) -> u32 {
        let (end, count) = self.counts(*state, now);
        let tokens = prefetch.granted((Count(self.ceiling()) - count).0);
        if tokens > 0 {
            *state = self.state(end, count + u64::from(tokens));
        }
        tokens
    }

    /// Limit in hits, and window in seconds or around the store's time in a calendar.
    fn script_parameters(&self, store_time: impl FnOnce() -> Timestamp) -> [i64; 2] {
        let window = match self.calendar {
            None => i64::from(self.window.get()),
            Some(calendar) => {
                calendar.script_window(store_time(), self.max_carried > 0 || self.carries_unused())
            }
        };
        [self.limit.cast_signed(), window]
    }

    fn script_bound(&self) -> u64 {
        if self.carries_unused() {
            return self.unused_bound();
        }
        self.max_used().unwrap_or(self.max_counted())
    }

    fn has_bound(&self) -> bool {
        self.carries_unused() || self.max_used().is_some()
    }

    fn max_debt(&self) -> Option<u64> {
        (self.max_carried > 0 && self.has_bound()).then(|| self.max_carried.into())
    }

    fn with_limit(self, limit: u64, _window: Duration) -> Self {
        Self { limit, ..self }
    }

    fn shared_by(self, instances: NonZeroU32) -> Self {
        // With more instances than hits, each has a share of one hit, and so the part of one hit in the debt.
        let hits = u32::try_from(self.limit).ok().and_then(NonZeroU32::new);
        let parts = hits.map_or(instances, |hits| hits.min(instances));
        let max_carried = word_share_of(self.max_carried, parts);
        Self { limit: share_of(self.limit, instances), max_carried, ..self }
    }

    fn region_share(self, share: u32, whole: u32) -> Self {
        let part = Count(self.max_carried.into()) * u64::from(share);
        let max_carried = part.0.checked_div(whole.into()).map_or(0, |part| Count(part).word());
        Self { limit: share.into(), max_carried, ..self }
    }

    /// Time until a window's hits do not count any more: also in the next windows, with a carry.
    fn tail(&self) -> Duration {
        let carried = u64::from(self.max_carried).checked_div(self.limit).unwrap_or_default();
        let windows = match self.max_carried {
            _ if self.carries_unused() => 2,
            0 => 1,
            _ => Count(carried).word().saturating_add(2),
        };
        let mut window = self.length();
        if self.calendar.is_some() {
            window = window.saturating_add(MAX_EXCESS);
        }
        window.saturating_mul(windows).saturating_add(window.min(MAX_LOAN_WINDOW))
    }

    fn can_be_lent(&self) -> bool {
        // Loans end with windows of one length, and the bound of an overdraft is not a part of them.
        self.calendar.is_none() && !self.has_bound()
    }

    /// End of the window that a charge counts in, for one without a carry.
    fn label(&self, state: &Words, now: Timestamp) -> u32 {
        self.counts(*state, now).0.0
    }

    fn last_verdict(&self, verdict: &Verdict, prefetched: u32) -> LastVerdict {
        let mut last = LastVerdict::of(verdict, prefetched);
        if self.carries_unused() {
            // What is left of a window, or owed, counts in the next one too.
            let (_, next_end) = self.next_ends(verdict.decided_at);
            last.reset_at = last.reset_at.max(Timestamp::from_seconds(next_end));
        }
        last
    }

    fn after(&self, whole: &Self, last: &LastVerdict, instances: NonZeroU32) -> Option<Words> {
        let used = used_of_share(whole.ceiling(), last.used, self.ceiling(), instances);
        // The counter may end with a longer window that the rule had before.
        let end = match self.max_used() {
            Some(_) => self.end_of_window(last.decided_at),
            None if self.carries_unused() => self.next_ends(last.decided_at).1,
            None => last.reset_at.seconds(),
        };
        Some(self.state(Seconds(end), Count(used)))
    }

    fn expected_hits(&self, used: u64, from: Timestamp, elapsed: Duration) -> u64 {
        in_proportion_of_time(used, elapsed, self.elapsed(from))
    }
}

/// Time until a second since the epoch.
fn until(end: u32, now: Timestamp) -> Duration {
    Timestamp::from_seconds(end).since(now)
}

/// Hits in a state.
fn hits_of([_, low, high]: Words) -> Count {
    Count(u64::from(high) << u32::BITS | u64::from(low))
}
