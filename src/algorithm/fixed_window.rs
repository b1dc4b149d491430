//! Hits counted in windows aligned to the epoch.
//!
//! The algorithm of envoyproxy/ratelimit: hits that are denied count too, so a caller that keeps hammering
//! stays over its limit until the window ends. Up to twice the limit can pass within one window's length that
//! straddles an edge.
//!
//! The state is `[end of the window in seconds since the epoch, hits]`. While that end lies ahead, the hits
//! count, whatever window the rule has by now: when a window was made longer or shorter, the usage counts in the
//! window that `now` lies in, and in the one after it at the most. A clock that steps back is met the same way:
//! it grants nothing twice, and holds usage for no longer than two windows.

use std::{num::NonZeroU32, time::Duration};

use super::{Verdict, Words};
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

    /// Limit in hits, window in seconds.
    pub(super) fn script_parameters(&self) -> [u64; 2] {
        [u64::from(self.limit), u64::from(self.window.get())]
    }

    /// The end of the window that `now` lies in, in seconds since the epoch.
    fn window_end(&self, now: Timestamp) -> u32 {
        let start = now.seconds().saturating_sub(now.seconds() % self.window);
        start.saturating_add(self.window.get())
    }

    pub(super) fn apply(&self, state: &mut Words, now: Timestamp, hits: Hits) -> bool {
        let end = self.window_end(now);
        let (end, count) = match state[0] > now.seconds() {
            true => (state[0].clamp(end, end.saturating_add(self.window.get())), u64::from(state[1])),
            false => (end, 0),
        };
        let after = match hits {
            Hits::Peek => count,
            Hits::Charge(amount) => count.saturating_add(amount.get()),
            Hits::Refund(amount) => count.saturating_sub(amount.get()),
        };
        *state = [end, u32::try_from(after).unwrap_or(u32::MAX)];
        after <= u64::from(self.limit)
    }

    pub(super) fn verdict(&self, state: Words, now: Timestamp, hits: Hits, admitted: bool) -> Verdict {
        let used = u64::from(state[1]);
        let until_end =
            Duration::from_secs(u64::from(state[0])).saturating_sub(Duration::from_micros(now.as_micros()));
        let retry_after = match admitted {
            true => Duration::ZERO,
            false if hits.charged() > u64::from(self.limit) => Duration::MAX,
            false => until_end,
        };
        Verdict {
            admitted,
            remaining: self.limit.saturating_sub(state[1]),
            reset_after: until_end,
            retry_after,
            used,
            over: used.saturating_sub(u64::from(self.limit)).min(hits.charged()),
        }
    }
}

/// A window is over at its end, and an empty one need not be kept.
pub(super) const fn expires_at(state: Words) -> u32 {
    if state[1] == 0 { 0 } else { state[0] }
}
