//! Charges that were made in the local store alone, until the store has them too.
//!
//! Only charges that the store certainly did not make are deferred, added up by counter. They are sent before the next
//! call of their counter, or after a short time without one. A counter is charged what its local counter still counts: of
//! a window that has ended, nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{collections::HashMap, num::NonZeroU64, time::Duration};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_core::algorithm::{Charging, Policy};
use tollgate_core::{RecordId, descriptor::Hits};
use tollgate_store::request::{Check, Requests, TagRequest};
use tollgate_store::{Store, key::CellKey};

use crate::metrics::{self, DeferredResult};

/// Maximum number of counters with deferred charges: 0.2 kB each.
const MAX_COUNTERS: usize = 16_384;

/// Time after a failed attempt until the calls of a counter send its charges again.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Deadline of a deferred charge: longer than that of a request, because no caller waits for it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Deferred charges of the counters of an instance; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct DeferredCharges(Arc<Shared>);

type Counters = HashMap<(CellKey, RecordId), Deferred, RandomState>;

#[derive(Debug, Default)]
struct Shared {
    counters: Mutex<Counters>,
    /// Number of counters, read without the lock.
    length: AtomicUsize,
    retry_at: Mutex<Option<Instant>>,
    has_sender: AtomicBool,
}

/// The charges of one counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    /// The limit in the store.
    policy: Policy,
    /// The share of it that decided.
    share: Policy,
    hits: u64,
}

/// Charges of one counter, taken to be sent.
pub(crate) type TakenCharge = ((CellKey, RecordId), Deferred);

impl DeferredCharges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.length.load(Ordering::Relaxed) == 0
    }

    /// Adds a charge of `hits` that the `share` of a counter admitted.
    pub(super) fn add(&self, cell: &CellKey, check: &Check, share: Policy, hits: u64) {
        self.merge((cell.clone(), check.record), Deferred { policy: check.policy, share, hits });
    }

    fn merge(&self, name: (CellKey, RecordId), deferred: Deferred) {
        let mut counters = self.0.counters.lock();
        let is_full = counters.len() >= MAX_COUNTERS;
        match counters.get_mut(&name) {
            Some(known) => {
                let hits = known.hits.saturating_add(deferred.hits);
                *known = Deferred { hits, ..deferred };
            }
            None if is_full => metrics::deferred(DeferredResult::Dropped, deferred.hits),
            None => {
                counters.insert(name, deferred);
                self.0.length.store(counters.len(), Ordering::Relaxed);
            }
        }
    }

    /// Removes hits that were refunded in the local store.
    pub(super) fn refund(&self, cell: &CellKey, record: RecordId, hits: u64) {
        if let Some(known) = self.0.counters.lock().get_mut(&(cell.clone(), record)) {
            known.hits = known.hits.saturating_sub(hits);
        }
    }

    /// Takes the charges of the counters of `calls`, unless an attempt failed just now.
    pub(super) fn take_for(&self, calls: &Requests, now: Instant) -> Vec<TakenCharge> {
        if self.0.retry_at.lock().is_some_and(|retry_at| now < retry_at) {
            return Vec::new();
        }
        let mut counters = self.0.counters.lock();
        let names = calls.iter().flat_map(TagRequest::checks_with_cells);
        let names = names.map(|(cell, check)| (cell.key.clone(), check.record));
        let taken = names.filter_map(|name| counters.remove_entry(&name)).collect();
        self.0.length.store(counters.len(), Ordering::Relaxed);
        taken
    }

    /// Takes the charges of up to `max_counters` counters.
    pub(super) fn take_some(&self, max_counters: usize) -> Vec<TakenCharge> {
        let mut counters = self.0.counters.lock();
        let names: Vec<_> = counters.keys().take(max_counters).cloned().collect();
        let taken = names.iter().filter_map(|name| counters.remove_entry(name)).collect();
        self.0.length.store(counters.len(), Ordering::Relaxed);
        taken
    }

    /// Sends charges, of which `counted` returns the hits that still count. Those that were certainly not made are kept.
    /// Returns whether any was made.
    pub(super) async fn send(
        &self,
        store: &Store,
        mut taken: Vec<TakenCharge>,
        counted: impl Fn(&CellKey, RecordId, &Policy) -> u64,
    ) -> bool {
        taken.retain_mut(|((cell, record), deferred)| {
            let left = counted(cell, *record, &deferred.share).min(deferred.hits);
            let expired = deferred.hits.saturating_sub(left);
            if expired > 0 {
                metrics::deferred(DeferredResult::Expired, expired);
            }
            deferred.hits = left;
            left > 0
        });
        let requests: Requests = taken.iter().filter_map(request).collect();
        let mut is_any_made = requests.is_empty();
        let deadline = Instant::now().checked_add(SEND_TIMEOUT);
        for ((name, deferred), decision) in taken.into_iter().zip(store.decide(&requests, deadline).await) {
            match decision {
                Ok(_) => {
                    is_any_made = true;
                    metrics::deferred(DeferredResult::Charged, deferred.hits);
                }
                Err(error) if error.charged_nothing() => {
                    self.merge(name, deferred);
                    *self.0.retry_at.lock() = Instant::now().checked_add(RETRY_INTERVAL);
                }
                Err(_) => metrics::deferred(DeferredResult::Unknown, deferred.hits),
            }
        }
        is_any_made
    }

    /// Whether the caller is now the only one that sends charges without a call.
    pub(super) fn become_sender(&self) -> bool {
        !self.0.has_sender.load(Ordering::Relaxed) && !self.0.has_sender.swap(true, Ordering::AcqRel)
    }

    /// Ends [`Self::become_sender`].
    pub(super) fn resign(&self) {
        self.0.has_sender.store(false, Ordering::Release);
    }
}

/// The charge in the store: in full, as the hits have passed.
fn request(((cell, record), deferred): &TakenCharge) -> Option<TagRequest> {
    let hits = Hits::Overdraw(NonZeroU64::new(deferred.hits)?);
    let check = Check::own(*record, deferred.policy, hits);
    Some(TagRequest::new(Charging::Independent, cell.clone(), check))
}
