//! Cached denials of a server's counters.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{algorithm::Verdict, ban::Ban, clock::micros, descriptor::Hits};

use crate::{after, request::Check};

/// Longest validity of a cached denial: the delay with which a refund may be noticed.
const MAX_DENIAL_AGE: Duration = Duration::from_millis(500);

/// Longest validity of an enforced ban: the delay with which its end before its time may be noticed, where this process is
/// not notified of it by [`recheck_bans`].
const MAX_BAN_AGE: Duration = Duration::from_secs(10);

/// Longest validity for leased counters, of which other workers may refund unused tokens, and for those of which the region
/// may borrow hits.
const MAX_LEASED_DENIAL_AGE: Duration = Duration::from_millis(20);

/// Verdict on a counter when hits were denied: its own, or those of another counter charged all or none with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    hits: u64,
    verdict: Verdict,
    /// Not later than the decision.
    noted_at: Instant,
    until: Instant,
}

impl Denial {
    /// Caches a verdict on a charge that was sent at `sent_at` or later. `None` for limits with leases, which
    /// may be released at any time, and for charges that count beyond the limit: each of these has to be sent.
    ///
    /// `is_leased`: whether workers may hold tokens of the counter, or the region may borrow hits.
    pub(super) fn new(check: &Check, verdict: &Verdict, is_leased: bool, sent_at: Instant) -> Option<Self> {
        let Hits::Charge(hits) = check.hits else { return None };
        let max_age = match is_leased {
            // Neither a refund nor a returned token ends a ban.
            _ if is_banned(verdict) => MAX_BAN_AGE,
            true => MAX_LEASED_DENIAL_AGE,
            false => MAX_DENIAL_AGE,
        };
        let verdict = Verdict { ban: verdict.ban.map(Ban::known), ..*verdict };
        let age = if verdict.admitted { max_age } else { max_age.min(verdict.retry_after) };
        let until = after(sent_at, age);
        let is_lasting = !check.policy.algorithm().takes_leases();
        is_lasting.then_some(Self { hits: hits.get(), verdict, noted_at: sent_at, until })
    }

    /// The denial of a charge, if it follows from the cached one without a ban: of as many hits, or more.
    pub(super) fn covers(&self, hits: Hits, now: Instant) -> Option<Verdict> {
        let Hits::Charge(hits) = hits else { return None };
        let more = hits.get().checked_sub(self.hits)?;
        let verdict = self.at(now).filter(|verdict| !verdict.admitted)?;
        // The cached times do not apply to more hits.
        let retry_after = match more {
            0 => verdict.retry_after,
            _ => verdict.retry_after.max(verdict.reset_after),
        };
        // Where denied hits count, the first denial took what was left of the limit.
        let over = verdict.over.saturating_add(more).max(hits.get().saturating_sub(verdict.remaining));
        Some(Verdict { over, retry_after, ..verdict })
    }

    /// The verdict on exactly such a charge, whether or not it would have passed alone.
    pub(super) fn exact(&self, hits: Hits, now: Instant) -> Option<Verdict> {
        let Hits::Charge(hits) = hits else { return None };
        self.banned(Hits::Charge(hits), now).or_else(|| self.at(now).filter(|_| hits.get() == self.hits))
    }

    /// Whether it is an enforced ban.
    pub(super) fn is_of_ban(&self) -> bool {
        is_banned(&self.verdict)
    }

    /// Whether it is valid at `now`, or was a second before.
    pub(super) fn was_valid_of_late(&self, now: Instant) -> bool {
        now.duration_since(self.until) < Duration::from_secs(1)
    }

    /// The denial of a charge of any number of hits under an enforced ban.
    pub(super) fn banned(&self, hits: Hits, now: Instant) -> Option<Verdict> {
        let Hits::Charge(hits) = hits else { return None };
        let verdict = is_banned(&self.verdict).then(|| self.at(now)).flatten()?;
        Some(Verdict { over: hits.get(), ..verdict })
    }

    /// The verdict as of `now`, while valid.
    fn at(&self, now: Instant) -> Option<Verdict> {
        let Self { verdict, noted_at, until, .. } = self;
        let is_valid = now < *until && !(is_banned(verdict) && EARLY_ENDS.may_concern(*noted_at));
        is_valid.then(|| verdict.later(now.duration_since(*noted_at)))
    }
}

fn is_banned(verdict: &Verdict) -> bool {
    verdict.ban.is_some_and(|ban| ban.is_enforced)
}

/// Early ends in this process.
pub(super) static EARLY_ENDS: EarlyEnds = EarlyEnds::new();

/// A time in this process, before those that are recorded.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Makes every worker of this process call the server again before it uses a cached ban: bans may have been lifted, or
/// their rules have changed.
pub fn recheck_bans() {
    let start = *START;
    EARLY_ENDS.record(start, Instant::now());
}

/// The last time at which bans may have ended early.
#[derive(Debug)]
pub(super) struct EarlyEnds {
    /// Microseconds after the start, rounded up; 0 for never.
    micros: AtomicU64,
}

impl EarlyEnds {
    const fn new() -> Self {
        Self { micros: AtomicU64::new(0) }
    }

    fn record(&self, start: Instant, now: Instant) {
        let micros = micros(now.duration_since(start));
        self.micros.store(micros.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether a ban that was noted at `noted_at` may have ended early since.
    pub(super) fn may_concern(&self, noted_at: Instant) -> bool {
        match self.micros.load(Ordering::Relaxed) {
            0 => false,
            micros => START.checked_add(Duration::from_micros(micros)).is_none_or(|last| noted_at <= last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_is_believed_if_it_was_noted_after_the_last_early_end() {
        let (ends, start) = (EarlyEnds::new(), *START);
        let after = |millis| start + Duration::from_millis(millis);
        assert!(!ends.may_concern(after(0)), "none ended");
        for last in [5, 9] {
            ends.record(start, after(last));
            assert!(ends.may_concern(after(0)) && ends.may_concern(after(last)));
            assert!(!ends.may_concern(after(last + 1)));
        }
    }
}
