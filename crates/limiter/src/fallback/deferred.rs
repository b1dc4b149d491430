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
struct Deferred {
    /// The limit in the store.
    policy: Policy,
    /// The share of it that decided.
    share: Policy,
    hits: u64,
}

/// Charges of one counter, taken to be sent.
#[derive(Debug)]
pub(crate) struct TakenCharge {
    cell: CellKey,
    record: RecordId,
    deferred: Deferred,
    /// Hits that the local counter still counts.
    counted: u64,
}

impl DeferredCharges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.length.load(Ordering::Relaxed) == 0
    }

    /// Adds a charge of `hits` that the `share` of a counter admitted.
    pub(super) fn add(&self, cell: &CellKey, check: &Check, share: Policy, hits: u64) {
        self.merge(cell, check.record, Deferred { policy: check.policy, share, hits });
    }

    fn merge(&self, cell: &CellKey, record: RecordId, deferred: Deferred) {
        let mut counters = self.0.counters.lock();
        let is_full = counters.len() >= MAX_COUNTERS;
        let name = (cell.clone(), record);
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
        let taken = names
            .filter_map(|(cell, check)| take(&mut counters, &(cell.key.clone(), check.record)))
            .collect();
        self.0.length.store(counters.len(), Ordering::Relaxed);
        taken
    }

    /// Takes the charges of up to `max_counters` counters.
    pub(super) fn take_some(&self, max_counters: usize) -> Vec<TakenCharge> {
        let mut counters = self.0.counters.lock();
        let names: Vec<_> = counters.keys().take(max_counters).cloned().collect();
        let taken = names.iter().filter_map(|name| take(&mut counters, name)).collect();
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
        taken.retain_mut(|charge| {
            charge.counted =
                counted(&charge.cell, charge.record, &charge.deferred.share).min(charge.deferred.hits);
            let expired = charge.deferred.hits.saturating_sub(charge.counted);
            if expired > 0 {
                metrics::deferred(DeferredResult::Expired, expired);
            }
            charge.deferred.hits = charge.counted;
            charge.counted > 0
        });
        let requests: Requests = taken.iter().filter_map(TakenCharge::request).collect();
        let mut is_any_made = requests.is_empty();
        let deadline = Instant::now().checked_add(SEND_TIMEOUT);
        for (charge, decision) in taken.into_iter().zip(store.decide(&requests, deadline).await) {
            match decision {
                Ok(_) => {
                    is_any_made = true;
                    metrics::deferred(DeferredResult::Charged, charge.counted);
                }
                Err(error) if error.charged_nothing() => {
                    self.merge(&charge.cell, charge.record, charge.deferred);
                    *self.0.retry_at.lock() = Instant::now().checked_add(RETRY_INTERVAL);
                }
                Err(_) => metrics::deferred(DeferredResult::Unknown, charge.counted),
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

fn take(counters: &mut Counters, name: &(CellKey, RecordId)) -> Option<TakenCharge> {
    let ((cell, record), deferred) = counters.remove_entry(name)?;
    Some(TakenCharge { cell, record, deferred, counted: 0 })
}

impl TakenCharge {
    /// The charge in the store: in full, as the hits have passed.
    fn request(&self) -> Option<TagRequest> {
        let hits = Hits::Overdraw(NonZeroU64::new(self.counted)?);
        let check = Check::own(self.record, self.deferred.policy, hits);
        Some(TagRequest::new(Charging::Independent, self.cell.clone(), check))
    }
}
