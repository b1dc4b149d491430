//! Fixed windows, aligned to the epoch.
//!
//! The algorithm of envoyproxy/ratelimit: denied hits count too, so that a caller that keeps sending stays over its limit
//! until the window ends. They do not count where a request is charged all or none, or where the counter is leased. Up to
//! twice the limit can pass in an interval of one window's length that spans an edge.
//!
//! The state is `[end of the window in seconds since the epoch, hits]`. While that end lies ahead, the hits count,
//! whatever window the rule has by now: after a window was made longer, the usage counts to the end of that window. An end
//! up to four windows after that of the present one stays, so that a clock that stepped back and is put right grants
//! nothing twice; and so usage of a longer window counts to the end of that. An end beyond that is replaced by that of the
//! next window.

use std::{num::NonZeroU32, time::Duration};

use super::{Charging, MAX_STEP_BACK_WINDOWS, Prefetch, Verdict};
use crate::{
    clock::Timestamp,
    descriptor::Hits,
    quota::{Quota, share_of},
};

/// At most `limit` hits in each window of `window` seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u32,
    window: NonZeroU32,
}

impl FixedWindow {
    /// Returns the policy that enforces `quota`.
    pub const fn new(quota: Quota) -> Self {
        Self { limit: quota.limit, window: quota.window.length() }
    }

    pub(super) fn shared_by(self, instances: NonZeroU32) -> Self {
        Self { limit: share_of(self.limit, instances), ..self }
    }

    /// Limit in hits and window in seconds.
    pub(super) fn script_parameters(&self) -> [i64; 2] {
        [i64::from(self.limit), i64::from(self.window.get())]
    }

    /// End of the window that contains `now`, in seconds since the epoch.
    pub(super) fn window_end(&self, now: Timestamp) -> u32 {
        let start = now.seconds().saturating_sub(now.seconds() % self.window);
        start.saturating_add(self.window.get())
    }

    /// End of the window in which the hits count, and their number.
    fn counts(&self, [ends, count]: [u32; 2], now: Timestamp) -> (u32, u64) {
        let end = self.window_end(now);
        let last_end = end.saturating_add(self.window.get().saturating_mul(MAX_STEP_BACK_WINDOWS));
        match ends {
            _ if ends <= now.seconds() => (end, 0),
            _ if ends <= last_end => (ends.max(end), u64::from(count)),
            _ => (end.saturating_add(self.window.get()), u64::from(count)),
        }
    }

    pub(super) fn apply(&self, state: &mut [u32; 2], now: Timestamp, hits: Hits, charging: Charging) -> bool {
        if let Hits::RefundCharge { made_at, .. } = hits
            && self.window_end(made_at) != state[0]
        {
            // The charge has expired, or one of the two was counted with another length and may not count any more.
            return true;
        }
        let (end, count) = self.counts(*state, now);
        let limit = u64::from(self.limit);
        let after = match hits {
            Hits::Peek | Hits::Release(_) => count,
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => count.saturating_add(amount.get()),
            Hits::Refund(amount) | Hits::RefundCharge { amount, .. } => count.saturating_sub(amount.get()),
        };
        let is_uncounted = charging == Charging::AllOrNone && hits.charged() > 0 && after > limit;
        let kept = if is_uncounted { count } else { after };
        *state = [end, u32::try_from(kept).unwrap_or(u32::MAX)];
        matches!(hits, Hits::Refund(_) | Hits::RefundCharge { .. }) || after <= limit
    }

    pub(super) fn reserve(&self, state: &mut [u32; 2], now: Timestamp, prefetch: Prefetch) -> u32 {
        let (end, count) = self.counts(*state, now);
        let tokens = prefetch.granted(u64::from(self.limit).saturating_sub(count));
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
            // The state holds no more than 2^32 - 1 hits. The charge was made on a full counter or, if it is larger than
            // that alone, on an unused one, as far as the state shows.
            Charging::Independent if state[1] == u32::MAX && !admitted => match hits.charged() {
                more if more > used => more,
                hits => used.saturating_add(hits),
            },
            Charging::Independent => used,
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

/// End of the window; an empty one need not be kept.
pub(super) const fn expires_at(state: [u32; 2]) -> u32 {
    if state[1] == 0 { 0 } else { state[0] }
}
