//! Permits of concurrency limits, from their request until the caller can release them.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tollgate_core::lease::LeaseId;
use tollgate_store::{Store, request::Requests};

use super::refund;

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
