//! Verdicts of decisions, and prefetches of tokens.

use std::time::Duration;

use crate::{ban::Ban, clock::Timestamp, descriptor::Hits, saturating::Count};

/// Maximum step back of the clock in windows, or lifetimes of queued hits, after which the state is kept as it is, so
/// that nothing is granted twice once the clock is right again. A state that is further ahead was written while the clock
/// was ahead: its usage is moved to the present, so that it does not deny for as long as that.
pub(super) const MAX_STEP_BACK_WINDOWS: u32 = 4;

/// Whether a denial of one descriptor prevents the others of the request from being charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charging {
    /// Each counter is charged independently, as in envoyproxy/ratelimit; a fixed window also counts denied hits.
    #[default]
    Independent,
    /// All counters of a request are charged or none, and denied hits count nowhere.
    AllOrNone,
}

/// A decision on hits: the input of a verdict besides the summary of the state after it.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// Time of the decision.
    pub now: Timestamp,
    /// The requested hits.
    pub hits: Hits,
    /// Whether they pass.
    pub admitted: bool,
    /// Whether the counter is charged with others or independently.
    pub charging: Charging,
}

/// Result of a decision on a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the hits pass. A read passes unless the counter is over its limit.
    pub admitted: bool,
    /// Hits that would still pass now.
    pub remaining: u64,
    /// Time until the counter equals an unused one.
    pub reset_after: Duration,
    /// Time until the same hits would pass: zero if they passed, [`Duration::MAX`] if they never can.
    pub retry_after: Duration,
    /// Hits that count now, without those that are held.
    pub used: u64,
    /// Part of `used` that decays before the present aligned window ends: in a sliding window, hits of the previous one.
    pub decaying: u64,
    /// Hits that open leases of a budget hold.
    pub held: u64,
    /// Number of the charged hits that exceed the limit; 0 if they passed.
    pub over: u64,
    /// Time of the decision.
    pub decided_at: Timestamp,
    /// The active ban of the counter, if any.
    pub ban: Option<Ban>,
}

impl Verdict {
    /// A denial in which all numbers and times are 0.
    pub fn empty(decided_at: Timestamp) -> Self {
        Self { decided_at, ..Self::default() }
    }

    /// Returns the verdict on `hits` under a ban: a denial until its end if the ban is enforced. A refund is never denied.
    #[must_use]
    pub fn under(self, ban: Ban, hits: Hits) -> Self {
        if !ban.is_enforced || hits.is_refund() {
            return Self { ban: Some(ban), ..self };
        }
        let left = ban.ends_at().since(self.decided_at);
        Self {
            admitted: false,
            remaining: 0,
            reset_after: left,
            retry_after: left,
            over: hits.charged(),
            ban: Some(ban),
            ..self
        }
    }

    /// Whether hits were to be reserved under a known lease that does not hold them: because it was settled or has ended, or
    /// holds fewer.
    pub fn has_conflict(&self) -> bool {
        // Of all denials of hits, this one alone exceeds no limit.
        !self.admitted && self.over == 0 && self.retry_after == Duration::MAX
    }

    /// Returns the verdict as of `elapsed` later, given that the counter is not used in between.
    #[must_use]
    pub fn later(self, elapsed: Duration) -> Self {
        let left = |time: Duration| if time == Duration::MAX { time } else { time.saturating_sub(elapsed) };
        Self {
            reset_after: left(self.reset_after),
            retry_after: left(self.retry_after),
            decided_at: self.decided_at.plus(elapsed),
            ..self
        }
    }
}

/// Fraction of the requested tokens, as a divisor, below which a grant is not worth its risk.
const MIN_GRANT_DIVISOR: u32 = 2;

/// Request of an instance to charge tokens ahead of its own use, to be spent without another call to the store.
///
/// Prefetched tokens are charged like any hits, so that no limit is exceeded however they are spent, provided that they
/// are spent in time: within the requested hold, and by [`Policy::prefetched_until`](super::Policy::prefetched_until).
/// Tokens that are not spent by then are refunded by [`Hits::RefundCharge`] as of the time of the prefetch, or are lost to
/// all instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefetch {
    /// Maximum number of tokens; 0 requests none.
    pub max_tokens: u32,
    /// Maximum share of the remaining hits, in 65536ths.
    pub share: u16,
    /// Time for which the tokens are held, in milliseconds.
    pub hold_millis: u16,
}

impl Prefetch {
    /// Number of tokens granted while `remaining` hits remain. Zero shortly before the limit: the last hits would be held
    /// by one instance while another one denies.
    pub(super) fn granted(self, remaining: u64) -> u32 {
        let share = (Count(remaining) * u64::from(self.share)).0 >> u16::BITS;
        let tokens = Count(share).word().min(self.max_tokens);
        if tokens < self.max_tokens / MIN_GRANT_DIVISOR { 0 } else { tokens }
    }
}
