//! Concurrency limits: a maximum number of requests in flight.
//!
//! A request acquires permits under a lease and releases them by the lease's identifier; so a second release, or one of an
//! unknown lease, frees no permit of another request. A lease that is not released expires its time to live after it was
//! acquired. A lease that acquires further permits is renewed with all of them.
//!
//! A changed limit or time to live applies to the permits already held. Permits refunded without a lease are those that
//! would expire first.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::{
    Charging, LastVerdict, LimitAlgorithm, MAX_QUEUED, Parameters, PolicyError, Queue, StateSummary, Verdict,
};
use crate::{clock::Timestamp, descriptor::Hits, lease::LeaseId, quota::Quota, saturating::Count};

/// Held permits with their leases.
type Held = Queue<LeaseId>;

/// At most `limit` permits held at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u32,
    lease_ttl: Duration,
}

impl LimitAlgorithm for Concurrency {
    type State = Held;

    fn nearest(quota: Quota, parameters: &Parameters) -> Self {
        Self { limit: quota.word().min(MAX_QUEUED), lease_ttl: parameters.lease_ttl }
    }

    fn check(&self, quota: Quota, _parameters: &Parameters) -> Result<(), PolicyError> {
        if quota.word() > MAX_QUEUED { Err(PolicyError::TooMany) } else { Ok(()) }
    }

    fn common_parameters(&self) -> Parameters {
        Parameters { lease_ttl: self.lease_ttl, ..Parameters::default() }
    }

    fn limit(&self) -> u64 {
        self.limit.into()
    }

    fn apply(&self, held: &mut Held, now: Timestamp, hits: Hits, _charging: Charging) -> bool {
        held.advance(now, self.lease_ttl);
        let (amount, lease) = match hits {
            Hits::Charge(amount) | Hits::Overdraw(amount) => {
                // Permits that are acquired without a lease expire together by time, apart from others.
                (amount.get(), LeaseId::new(NonZeroU64::new(now.as_micros()).unwrap_or(NonZeroU64::MIN)))
            }
            Hits::Acquire { amount, lease } => (amount.get(), lease),
            Hits::Peek => return held.used <= self.limit(),
            Hits::Refund(amount) | Hits::RefundCharge { amount, .. } => {
                held.remove_oldest(amount.get());
                return true;
            }
            Hits::Release(lease) | Hits::Settle { lease, .. } => {
                held.remove_tagged(lease);
                return true;
            }
        };
        let admitted = held.used + amount <= self.limit();
        if admitted {
            let at = held.next_time(now);
            let known = held.remove_tagged(lease);
            held.push(at, amount.saturating_add(known), lease);
        }
        admitted
    }

    fn passes(&self, held: &mut Held, now: Timestamp, earlier: u64, hits: Hits) -> Option<bool> {
        held.advance(now, self.lease_ttl);
        Some(held.used + earlier + hits.charged() <= self.limit())
    }

    /// Summary of the held permits, which were advanced to `now`.
    fn summary(&self, held: &Held, now: Timestamp, hits: Hits) -> StateSummary {
        StateSummary::Queue(held.summary(now, self.lease_ttl, self.limit, hits.charged()))
    }

    fn verdict(&self, of: StateSummary, now: Timestamp, hits: Hits, admitted: bool, _: Charging) -> Verdict {
        of.queue().verdict(self.limit, now, hits, admitted)
    }

    fn expires_at(&self, held: &Held) -> u32 {
        held.kept_until(self.lease_ttl)
    }

    /// Limit in permits, and time to live in microseconds.
    fn script_parameters(&self, _store_time: impl FnOnce() -> Timestamp) -> [i64; 2] {
        [i64::from(self.limit), i64::try_from(self.lease_ttl.as_micros()).unwrap_or(i64::MAX)]
    }

    fn with_limit(self, limit: u64, _window: Duration) -> Self {
        Self { limit: Count(limit).word().min(MAX_QUEUED), ..self }
    }

    fn with_reserve(self) -> Self {
        // Permits of other instances are returned, and so none is set aside for them.
        self
    }

    fn tail(&self) -> Duration {
        self.lease_ttl
    }

    fn after(&self, _whole: &Self, _last: &LastVerdict, _instances: NonZeroU32) -> Option<Held> {
        // Permits end with their requests.
        None
    }
}
