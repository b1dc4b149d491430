//! Hits counted in windows aligned to the epoch.
//!
//! The algorithm of envoyproxy/ratelimit: hits that are denied count too, so a caller that keeps hammering
//! stays over its limit until the window ends; where a request is charged all or none, or the counter is leased, they
//! don't. Up to twice the limit can pass within one window's length that straddles an edge.
//!
//! The state is `[end of the window in seconds since the epoch, hits]`. While that end lies ahead, the hits
//! count, whatever window the rule has by now: when a window was made longer or shorter, the usage counts in the
//! window that `now` lies in, and in the one after it at the most. A clock that steps back is met the same way:
//! it grants nothing twice, and holds usage for no longer than two windows.

use std::{num::NonZeroU32, time::Duration};

use super::{Charging, Prefetch, Verdict, share::share_of};
use crate::{clock::Timestamp, descriptor::Hits, quota::Quota};

/// At most `limit` hits in each window of `window` seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u32,
    window: NonZeroU32,
}

impl FixedWindow {
    /// The policy that enforces `quota`.
    pub const fn new(quota: Quota) -> Self {
        Self { limit: quota.limit, window: quota.window.length() }
    }

    pub(super) fn shared_by(self, shares: NonZeroU32) -> Self {
        Self { limit: share_of(self.limit, shares), ..self }
    }

    /// Limit in hits, window in seconds.
    pub(super) fn script_parameters(&self) -> [u64; 2] {
        [u64::from(self.limit), u64::from(self.window.get())]
    }

    /// The end of the window that `now` lies in, in seconds since the epoch.
    pub(super) fn window_end(&self, now: Timestamp) -> u32 {
        let start = now.seconds().saturating_sub(now.seconds() % self.window);
        start.saturating_add(self.window.get())
    }

    /// The end of the window that the hits count in, and the hits.
    fn counts(&self, [ends, count]: [u32; 2], now: Timestamp) -> (u32, u64) {
        let end = self.window_end(now);
        match ends > now.seconds() {
            true => (ends.clamp(end, end.saturating_add(self.window.get())), u64::from(count)),
            false => (end, 0),
        }
    }

    pub(super) fn apply(&self, state: &mut [u32; 2], now: Timestamp, hits: Hits, charging: Charging) -> bool {
        if let Hits::Undo { made_at, .. } = hits
            && self.window_end(made_at) != state[0]
        {
            // It counts no more, or one of the two was counted with another length: then it is not known to count.
            return true;
        }
        let (end, count) = self.counts(*state, now);
        let limit = u64::from(self.limit);
        let after = match hits {
            Hits::Peek | Hits::Release(_) => count,
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => count.saturating_add(amount.get()),
            Hits::Refund(amount) | Hits::Undo { amount, .. } => count.saturating_sub(amount.get()),
        };
        let is_uncounted = charging == Charging::AllOrNone && hits.charged() > 0 && after > limit;
        let kept = if is_uncounted { count } else { after };
        *state = [end, u32::try_from(kept).unwrap_or(u32::MAX)];
        matches!(hits, Hits::Refund(_) | Hits::Undo { .. }) || after <= limit
    }

    pub(super) fn reserve(&self, state: &mut [u32; 2], now: Timestamp, wish: Prefetch) -> u32 {
        let (end, count) = self.counts(*state, now);
        let tokens = wish.granted(u64::from(self.limit).saturating_sub(count));
        if tokens > 0 {
            let kept = count.saturating_add(u64::from(tokens));
            *state = [end, u32::try_from(kept).unwrap_or(u32::MAX)];
        }
        tokens
    }

    pub(super) fn verdict(
        &self,
        state: [u32; 2],
        now: Timestamp,
        hits: Hits,
        admitted: bool,
        charging: Charging,
    ) -> Verdict {
        let (limit, used) = (u64::from(self.limit), u64::from(state[1]));
        let end = Timestamp::from_micros(u64::from(state[0]).saturating_mul(1_000_000));
        let until_end = end.since(now);
        let retry_after = match admitted {
            true => Duration::ZERO,
            false if hits.charged() > limit => Duration::MAX,
            false => until_end,
        };
        let counted = match charging {
            Charging::EachForItself => used,
            Charging::AllOrNone if admitted => used,
            Charging::AllOrNone => used.saturating_add(hits.charged()),
        };
        Verdict {
            admitted,
            remaining: self.limit.saturating_sub(state[1]),
            reset_after: until_end,
            retry_after,
            used,
            over: counted.saturating_sub(limit).min(hits.charged()),
            decided_at: now,
        }
    }
}

/// A window is over at its end, and an empty one need not be kept.
pub(super) const fn expires_at(state: [u32; 2]) -> u32 {
    if state[1] == 0 { 0 } else { state[0] }
}
