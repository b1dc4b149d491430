//! Places of concurrency limits, from when they are asked for until their caller can give them back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::refund;
use tollgate_core::lease::LeaseId;
use tollgate_store::{Store, request::Requests};

/// The places that a request asks for, and then holds, under one lease.
///
/// Who was told the lease's name gives them back by it. Until that is said of the caller ([`Self::handed_over`]), it
/// may go away without: they are given up when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub struct Places(Arc<Held>);

#[derive(Debug)]
struct Held {
    lease: LeaseId,
    /// What gives them up, and where.
    releases: Mutex<SmallVec<[(Store, Requests); 1]>>,
    is_handed_over: AtomicBool,
}

impl Places {
    /// The places that `calls` ask for under `lease`.
    pub(super) fn new(store: Store, calls: &Requests, lease: LeaseId) -> Self {
        let releases = Mutex::new(SmallVec::from_iter([(store, refund::releases(calls.iter()))]));
        Self(Arc::new(Held { lease, releases, is_handed_over: AtomicBool::new(false) }))
    }

    /// From now on they are given up in `store` too, of which `calls` asked some.
    pub(super) fn are_also_in(&self, store: Store, calls: &Requests) {
        self.0.releases.lock().push((store, refund::releases(calls.iter())));
    }

    /// Under which name they are held.
    pub fn lease(&self) -> LeaseId {
        self.0.lease
    }

    /// From now on somebody else sees to it that they are given back.
    pub fn handed_over(&self) {
        self.0.is_handed_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !*self.is_handed_over.get_mut() {
            self.releases
                .get_mut()
                .drain(..)
                .for_each(|(store, release)| store.refund_in_background(release));
        }
    }
}
