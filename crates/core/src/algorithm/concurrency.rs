//! Concurrency limits: a maximum number of requests in flight.
//!
//! A request acquires permits under a lease and releases them by the lease's identifier; so a second release, or one of an
//! unknown lease, frees no permit of another request. A lease that is not released expires its time to live after it was
//! acquired. A lease that acquires further permits is renewed with all of them.
//!
//! A changed limit or time to live applies to the permits already held. Permits refunded without a lease are those that
//! would expire first.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{QueueSummary, queue::Queue};
use crate::{clock::Timestamp, descriptor::Hits, lease::LeaseId, quota::word_share_of};

/// Time to live of a lease by default.
pub const DEFAULT_LEASE_TTL: Duration = Duration::from_secs(60);

/// Held permits with their leases.
type Held = Queue<LeaseId>;

/// At most `limit` permits held at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    pub(super) limit: u32,
    pub(super) lease_ttl: Duration,
}

impl Concurrency {
    pub(super) const fn new(limit: u32, lease_ttl: Duration) -> Self {
        Self { limit, lease_ttl }
    }

    pub(super) const fn with_limit(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    pub(super) fn shared_by(self, instances: NonZeroU32) -> Self {
        Self { limit: word_share_of(self.limit, instances), ..self }
    }

    /// Time for which a permit is held unless it is returned earlier.
    pub const fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    pub(super) fn passes(&self, held: &mut Held, now: Timestamp, earlier: u64, hits: Hits) -> bool {
        held.advance(now, self.lease_ttl);
        held.used() + earlier + hits.charged() <= u64::from(self.limit)
    }

    pub(super) fn apply(&self, held: &mut Held, now: Timestamp, hits: Hits) -> bool {
        held.advance(now, self.lease_ttl);
        let (amount, lease) = match hits {
            Hits::Charge(amount) | Hits::Overdraw(amount) => {
                // Permits that are acquired without a lease expire together by time, apart from others.
                (amount.get(), LeaseId::new(NonZeroU64::new(now.as_micros()).unwrap_or(NonZeroU64::MIN)))
            }
            Hits::Acquire { amount, lease } => (amount.get(), lease),
            Hits::Peek
            | Hits::Refund(_)
            | Hits::RefundCharge { .. }
            | Hits::Release(_)
            | Hits::Settle { .. } => {
                refund(held, hits);
                return hits.is_refund() || held.used() <= u64::from(self.limit);
            }
        };
        let admitted = held.used() + amount <= u64::from(self.limit);
        if admitted {
            let at = held.next_time(now);
            let known = held.remove_tagged(lease);
            held.push(at, amount.saturating_add(known), lease);
        }
        admitted
    }

    /// Summary of the held permits, which were advanced to `now`.
    pub(super) fn summary(&self, held: &Held, now: Timestamp, hits: Hits) -> QueueSummary {
        held.summary(now, self.lease_ttl, self.limit, hits.charged())
    }
}

fn refund(held: &mut Held, hits: Hits) {
    match hits {
        Hits::Release(lease) | Hits::Settle { lease, .. } => {
            held.remove_tagged(lease);
        }
        Hits::Refund(amount) | Hits::RefundCharge { amount, .. } => held.remove_oldest(amount.get()),
        Hits::Peek | Hits::Charge(_) | Hits::Overdraw(_) | Hits::Acquire { .. } => {}
    }
}
