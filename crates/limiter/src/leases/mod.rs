//! Leases of requests: permits of a request that passed, and leases that callers name to repeat a request without
//! reserving again.
//!
//! A budget reserves once under a lease. Other limits would be charged by each attempt, so that a request under a named lease
//! has none. Its limits are of one hash tag, so that one atomic call reserves of all or of none: what a denied attempt had
//! reserved in another tag could not be released safely, since the next attempt may have reserved it meanwhile. Limits that
//! it only reads are no exception, as their `on_store_error` may deny it.

#[cfg(test)]
mod tests;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tollgate_core::{RecordId, descriptor::Hits, lease::LeaseId};
use tollgate_store::request::{Check, Requests, TagRequest};
use tollgate_store::{Store, key::CellKey};

use crate::plan::{CounterMatch, Plan};
use crate::refund;

/// Permits that a request acquires, and then holds, under one lease.
///
/// A caller that received the lease's name releases them by it. Until then ([`Self::hand_over`]) the caller may
/// disconnect without the name, so the permits are released when the last clone of this is dropped; or at once
/// ([`Self::release`]) when it is known that the caller did not read the name.
#[derive(Clone, Debug)]
pub struct HeldPermits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lease: LeaseId,
    /// Requests that release the permits, by store.
    releases: Mutex<SmallVec<[(Store, Requests); 1]>>,
    is_handed_over: AtomicBool,
}

impl HeldPermits {
    /// The permits that `calls` acquire under `lease`.
    pub(super) fn new(store: Store, calls: &Requests, lease: LeaseId) -> Self {
        let releases = Mutex::new(SmallVec::from_iter([(store, refund::releases(calls.iter()))]));
        Self(Arc::new(Inner { lease, releases, is_handed_over: AtomicBool::new(false) }))
    }

    /// Permits under a lease that the caller named, and may have reserved before: their end is left to the caller.
    pub(super) fn named(lease: LeaseId) -> Self {
        let releases = Mutex::new(SmallVec::new());
        Self(Arc::new(Inner { lease, releases, is_handed_over: AtomicBool::new(true) }))
    }

    /// Adds the permits that `calls` acquired in `store`, unless their end is left to the caller.
    pub(super) fn add_store(&self, store: Store, calls: &Requests) {
        if self.is_handed_over() {
            return;
        }
        self.0.releases.lock().push((store, refund::releases(calls.iter())));
    }

    /// The lease under which the permits are held.
    pub fn lease(&self) -> LeaseId {
        self.0.lease
    }

    /// Releases the permits now, whether or not they were handed over.
    pub fn release(&self) {
        self.0.release();
    }

    /// Whether the release is left to the caller.
    pub fn is_handed_over(&self) -> bool {
        self.0.is_handed_over.load(Ordering::Relaxed)
    }

    /// Leaves the release to the caller, which has the lease's name.
    pub fn hand_over(&self) {
        self.0.is_handed_over.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn release(&self) {
        let releases = mem::take(&mut *self.releases.lock());
        releases.into_iter().for_each(|(store, release)| store.refund_in_background(release));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.is_handed_over.get_mut() {
            self.release();
        }
    }
}

/// Reason why a request cannot have a lease that its caller names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRepeatable {
    /// A limit that each attempt would charge.
    #[error(
        "the limit `{0}` has no `reserve`, so that a repetition is charged again; expected limits with `reserve`, or \
         no id"
    )]
    OtherLimit(Box<str>),
    /// Several descriptors of one budget, the sum of which is reserved.
    #[error("several descriptors have the same counter; expected one descriptor for each, or no id")]
    SharedCounter,
    /// Limits that are decided in several calls, of which one reserves.
    #[error(
        "the limits have several hash tags, so that they are not decided at once; expected a common `hash_tag`, or \
         no id"
    )]
    SeveralTags,
}

/// Whether a repetition of the calls of a plan, which reserve under a named lease, changes nothing.
pub(super) fn check(Plan { limits, calls, .. }: &Plan<'_, '_>) -> Result<(), NotRepeatable> {
    let charges = |check: &&Check| check.hits.charged() > 0;
    let is_reservation =
        |check: &Check| check.policy.is_budget() && matches!(check.hits, Hits::Acquire { .. });
    let mut charged = calls.iter().flat_map(TagRequest::checks).filter(charges);
    if let Some(other) = charged.find(|check| !is_reservation(check)) {
        let rule = limits.get(other.descriptor).and_then(|limit| limit.matched.rule());
        return Err(NotRepeatable::OtherLimit(rule.map_or("request", |rule| rule.label()).into()));
    }
    let mut cells = calls.iter().flat_map(|call| &call.cells);
    if cells.any(|cell| cell.checks.iter().any(|check| charges(&check) && !cell.checks_once(check.record))) {
        return Err(NotRepeatable::SharedCounter);
    }
    if calls.len() > 1 && calls.iter().flat_map(TagRequest::checks).any(|check| charges(&check)) {
        Err(NotRepeatable::SeveralTags)
    } else {
        Ok(())
    }
}

/// Makes a charge of a concurrency limit an acquisition under the lease, and one of a budget a reservation.
///
/// A lease reserves once of a budget, and is settled once. The hits of several descriptors on one budget are added to those
/// of the first, so that `add` and `cap` apply to their sum. What is left reads the counter, or repeats the settlement, which
/// changes nothing.
pub(super) fn under_lease(
    calls: &mut Requests,
    key: &CellKey,
    record: RecordId,
    CounterMatch { hits, policy, .. }: &CounterMatch,
    lease: Option<LeaseId>,
) -> Hits {
    match (*hits, lease) {
        (Hits::Charge(amount), Some(lease)) if policy.algorithm().takes_leases() => {
            let Some(reserve) = policy.reserve_terms() else { return Hits::Acquire { amount, lease } };
            for Check { hits, policy, .. } in checks_of(calls, key, record) {
                if let Hits::Acquire { amount: earlier, .. } = hits {
                    *earlier = reserve.capped(earlier.saturating_add(amount.get()), policy.limit());
                    return Hits::Peek;
                }
            }
            Hits::Acquire { amount: reserve.amount(amount, policy.limit()), lease }
        }
        (Hits::Settle { lease, used: more }, _) => {
            for Check { hits, .. } in checks_of(calls, key, record) {
                if let Hits::Settle { lease: earlier, used } = hits
                    && *earlier == lease
                {
                    *used = used.saturating_add(more).min(Hits::MAX);
                    return Hits::Settle { lease, used: 0 };
                }
            }
            *hits
        }
        (hits, _) => hits,
    }
}

/// The checks of a counter so far.
fn checks_of<'c>(
    calls: &'c mut Requests,
    key: &'c CellKey,
    record: RecordId,
) -> impl Iterator<Item = &'c mut Check> {
    let cells = calls.iter_mut().flat_map(|call| &mut call.cells).filter(move |cell| cell.key == *key);
    cells.flat_map(|cell| &mut cell.checks).filter(move |check| check.record == record)
}
