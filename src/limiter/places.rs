//! Places of concurrency limits, from when they are asked for until their caller can give them back.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::undo;
use crate::{
    algorithm::Charging,
    lease::LeaseId,
    store::{
        Store,
        call::{Ask, Call, Calls, add},
    },
};

/// The places that a request asks for, and then holds, under one lease.
///
/// Who was told the lease's name gives them back by it. Until that is said of the caller ([`Self::handed_over`]), it
/// may go away without: they are given up when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub struct Places(Arc<Held>);

#[derive(Debug)]
struct Held {
    lease: LeaseId,
    store: Store,
    release: Calls,
    is_handed_over: AtomicBool,
}

impl Places {
    /// The places that `calls` ask for under `lease`.
    pub(super) fn new(store: Store, calls: &Calls, lease: LeaseId) -> Self {
        let mut release = Calls::new();
        for (cell, ask) in calls.iter().flat_map(Call::asks_with_cells) {
            if let Some(hits) = undo::release_of(ask.hits) {
                add(&mut release, Charging::EachForItself, cell.key.clone(), Ask { hits, ..*ask });
            }
        }
        Self(Arc::new(Held { lease, store, release, is_handed_over: AtomicBool::new(false) }))
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
            self.store.decide_later(mem::take(&mut self.release));
        }
    }
}
