//! At most so many requests at the same time.
//!
//! A request takes places under a lease and gives them up by the lease's name; so giving up twice, or what was
//! never taken, frees nothing of anyone else's. A lease that nobody gives up ends when its time to live has
//! passed since it was taken. A lease that takes further places begins anew with all of them.
//!
//! A changed limit or time to live is applied to the places that are held. Places given back without a lease's
//! name are those that would end first.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use super::{QueueSummary, queue::Queue, share::share_of};
use crate::{clock::Timestamp, descriptor::Hits, lease::LeaseId};

/// The time to live of a lease when none is stated.
pub const DEFAULT_LEASE_TTL: Duration = Duration::from_secs(60);

/// Places held, with their holders.
type Held = Queue<LeaseId>;

/// At most `limit` places held at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u32,
    lease_ttl: Duration,
}

impl Concurrency {
    pub(super) const fn new(limit: u32, lease_ttl: Duration) -> Self {
        Self { limit, lease_ttl }
    }

    pub(super) fn shared_by(self, shares: NonZeroU32) -> Self {
        Self { limit: share_of(self.limit, shares), ..self }
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// How long a place is held when nobody gives it up.
    pub const fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    pub(super) fn passes(&self, held: &mut Held, now: Timestamp, earlier: u64, hits: u64) -> bool {
        held.advance(now, self.lease_ttl);
        held.used().saturating_add(earlier).saturating_add(hits) <= u64::from(self.limit)
    }

    pub(super) fn apply(&self, held: &mut Held, now: Timestamp, hits: Hits) -> bool {
        held.advance(now, self.lease_ttl);
        let (amount, lease) = match hits {
            Hits::Charge(amount) => (amount.get(), named_after(now)),
            Hits::Acquire { amount, lease } => (amount.get(), lease),
            Hits::Peek | Hits::Refund(_) | Hits::Undo { .. } | Hits::Release(_) => {
                give_back(held, hits);
                return hits.gives_back() || held.used() <= u64::from(self.limit);
            }
        };
        let admitted = held.used().saturating_add(amount) <= u64::from(self.limit);
        if admitted {
            let known = held.remove_tagged(lease);
            held.push(now, amount.saturating_add(known), lease);
        }
        admitted
    }

    /// Where the places stand; they were advanced to `now`.
    pub(super) fn summary(&self, held: &Held, now: Timestamp, hits: Hits) -> QueueSummary {
        held.summary(now, self.lease_ttl, self.limit, hits.charged())
    }
}

/// The lease of places that are taken without one, so that they end together and apart from others.
fn named_after(now: Timestamp) -> LeaseId {
    LeaseId::new(NonZeroU64::new(now.as_micros()).unwrap_or(NonZeroU64::MIN))
}

fn give_back(held: &mut Held, hits: Hits) {
    match hits {
        Hits::Release(lease) => {
            held.remove_tagged(lease);
        }
        Hits::Refund(amount) | Hits::Undo { amount, .. } => held.remove_oldest(amount.get()),
        Hits::Peek | Hits::Charge(_) | Hits::Acquire { .. } => {}
    }
}
