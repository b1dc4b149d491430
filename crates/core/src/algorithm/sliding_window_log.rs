//! Exact sliding window: a log of the admitted hits.
//!
//! Hits pass while those of the window that ends now, including the new ones, are within the limit; so no window of that
//! length holds more than the limit, wherever it begins. A denied hit is not logged. The log is bounded by the limit,
//! which is at most [`MAX_QUEUED`].
//!
//! Hits charged as an overdraft are logged in full, but of all hits only the newest are kept, twice as many as the limit:
//! more would keep the log over its limit for no longer.
//!
//! With a *minimum interval*, a request is also denied if less than that has passed since the last admitted one, whatever
//! number of hits they charge.
//!
//! A changed limit, window or interval applies to the hits already in the log. A refund removes the newest hits.

use std::{num::NonZeroU32, time::Duration};

use super::{
    Charging, LastVerdict, LimitAlgorithm, MAX_QUEUED, Parameters, PolicyError, Queue, QueueSummary,
    StateSummary, Verdict, used_of_share,
};
use crate::clock::{Timestamp, micros};
use crate::quota::{Quota, word_share_of};
use crate::{descriptor::Hits, saturating::Count};

/// Maximum number of times at which the hits of an earlier log are taken to have been logged.
const MAX_START_ENTRIES: u64 = 64;

/// At most `limit` hits in any interval of a window's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindowLog {
    limit: u32,
    window: Duration,
    /// Minimum time between two admitted requests.
    min_interval: Duration,
}

impl SlidingWindowLog {
    /// Maximum number of hits that the log keeps after an overdraft.
    fn max_logged(&self) -> u64 {
        (Count(self.limit.into()) * 2).0.max(1)
    }

    /// Logs `used` hits after the last verdict. Only the time of the newest one is known and, if the log is full, of those
    /// that expire first and leave room for a hit: the others are spread evenly between the two.
    fn fill(&self, log: &mut Queue<()>, used: u64, last: &LastVerdict, is_full: bool) {
        let logged_at = |expires_at: Timestamp| {
            Timestamp::from_micros((Count(expires_at.as_micros()) - micros(self.window)).0)
        };
        let newest = logged_at(last.reset_at);
        if !is_full || last.retry_at <= last.decided_at || last.retry_at > last.reset_at {
            // The interval counts from the newest hit, however few there are; a share of one hit would be exhausted by it.
            let is_waiting = newest.plus(self.min_interval) > last.decided_at && self.limit > 1;
            let used = used.max(u64::from(is_waiting));
            if used > 0 {
                log.push(newest, used, ());
            }
            return;
        }
        let oldest = logged_at(last.retry_at);
        let used = Count(used);
        let first = used.min(used - u64::from(self.limit) + 1);
        log.push(oldest, first.0, ());
        let others = used - first;
        let groups = u32::try_from(others.0.min(MAX_START_ENTRIES)).unwrap_or(0);
        let mut logged = Count(0);
        for group in 1..=groups {
            let until = (others * u64::from(group)).0.checked_div(groups.into()).map_or(others, Count);
            let after = newest.since(oldest).saturating_mul(group).checked_div(groups).unwrap_or_default();
            log.push(oldest.plus(after), (until - logged).0, ());
            logged = until;
        }
    }

    /// Time until the minimum interval has passed.
    fn until_due(&self, log: &Queue<()>, now: Timestamp) -> Duration {
        match self.min_interval {
            Duration::ZERO => Duration::ZERO,
            interval => log.newest().map_or(Duration::ZERO, |newest| newest.plus(interval).since(now)),
        }
    }
}

impl LimitAlgorithm for SlidingWindowLog {
    type State = Queue<()>;

    fn nearest(quota: Quota, parameters: &Parameters) -> Self {
        let window = Duration::from_secs(quota.window.seconds().into());
        let min_interval = parameters.min_interval.min(window);
        Self { limit: quota.word().min(MAX_QUEUED), window, min_interval }
    }

    fn check(&self, quota: Quota, parameters: &Parameters) -> Result<(), PolicyError> {
        match () {
            () if quota.word() > MAX_QUEUED => Err(PolicyError::TooMany),
            () if parameters.min_interval > self.window => Err(PolicyError::TooRare),
            () => Ok(()),
        }
    }

    fn common_parameters(&self) -> Parameters {
        Parameters { min_interval: self.min_interval, ..Parameters::default() }
    }

    fn limit(&self) -> u64 {
        self.limit.into()
    }

    fn length(&self) -> Duration {
        self.window
    }

    fn apply(&self, log: &mut Queue<()>, now: Timestamp, hits: Hits, _charging: Charging) -> bool {
        log.advance(now, self.window);
        match hits {
            Hits::Charge(amount) | Hits::Acquire { amount, .. } => {
                let is_due = self.until_due(log, now).is_zero();
                let admitted = is_due && log.used + amount.get() <= self.limit();
                if admitted {
                    log.push(log.next_time(now), amount.get(), ());
                }
                return admitted;
            }
            Hits::Overdraw(amount) => {
                let is_within = log.used + amount.get() <= self.limit();
                log.push(log.next_time(now), amount.get().min(self.max_logged()), ());
                log.remove_oldest((log.used - self.max_logged()).0);
                return is_within;
            }
            Hits::Refund(amount) => log.remove_newest(amount.get()),
            Hits::RefundCharge { amount, made_at } => log.remove_at(made_at, amount.get()),
            Hits::Peek | Hits::Release(_) | Hits::Settle { .. } => {}
        }
        matches!(hits, Hits::Refund(_) | Hits::RefundCharge { .. }) || log.used <= self.limit()
    }

    fn passes(&self, log: &mut Queue<()>, now: Timestamp, earlier: u64, hits: Hits) -> Option<bool> {
        log.advance(now, self.window);
        // The interval does not apply to reads and overdrafts.
        let is_spaced = hits.charged() > 0 && !hits.is_overdraft() && !self.min_interval.is_zero();
        let is_due = !is_spaced || earlier == 0 && self.until_due(log, now).is_zero();
        Some(is_due && log.used + earlier + hits.charged() <= self.limit())
    }

    /// Summary of the log, which was advanced to `now`.
    fn summary(&self, log: &Queue<()>, now: Timestamp, hits: Hits) -> StateSummary {
        let queued = log.summary(now, self.window, self.limit, hits.charged());
        let is_charge = hits.charged() > 0 && !hits.is_overdraft();
        let due = if is_charge { self.until_due(log, now) } else { Duration::ZERO };
        StateSummary::Queue(QueueSummary { wait: queued.wait.map(|wait| wait.max(due)), ..queued })
    }

    fn verdict(&self, of: StateSummary, now: Timestamp, hits: Hits, admitted: bool, _: Charging) -> Verdict {
        of.queue().verdict(self.limit, now, hits, admitted)
    }

    fn expires_at(&self, log: &Queue<()>) -> u32 {
        log.kept_until(self.window)
    }

    /// Limit in hits, and window in microseconds.
    fn script_parameters(&self, _store_time: impl FnOnce() -> Timestamp) -> [i64; 2] {
        [i64::from(self.limit), i64::try_from(self.window.as_micros()).unwrap_or(i64::MAX)]
    }

    fn script_bound(&self) -> u64 {
        self.max_logged()
    }

    fn with_limit(self, limit: u64, _window: Duration) -> Self {
        Self { limit: Count(limit).word().min(MAX_QUEUED), ..self }
    }

    fn shared_by(self, instances: NonZeroU32) -> Self {
        let min_interval = self.min_interval.saturating_mul(instances.get()).min(self.window);
        Self { limit: word_share_of(self.limit, instances), min_interval, ..self }
    }

    fn after(&self, whole: &Self, last: &LastVerdict, instances: NonZeroU32) -> Option<Queue<()>> {
        let used = used_of_share(whole.limit(), last.used, self.limit(), instances);
        let mut log = Queue::default();
        self.fill(&mut log, used, last, last.used >= whole.limit());
        Some(log)
    }
}
