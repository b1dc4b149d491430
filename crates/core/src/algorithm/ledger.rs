//! Ledger of a budget: the used hits of a window, and the leases that hold hits.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::{lease::LeaseId, saturating::Count};

/// Leases that end at the same time in one batch at most: in Redis, an element of a compact hash.
const MAX_BATCH: usize = 7;

/// Maximum number of used or held hits, exact in a Lua number.
const MAX_COUNT: u64 = (1 << 53) - 1;

/// State of a counter with reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// End of the window, in seconds since the epoch.
    pub(super) ends: u32,
    /// Hits that were used in it.
    pub(super) used: Count,
    /// Hits that open leases hold.
    pub(super) held: Count,
    pub(super) leases: HashMap<LeaseId, Lease>,
    /// The leases in the order of their ends. A lease that was cancelled is still in it.
    pub(super) batches: VecDeque<Batch>,
    /// Number of leases in `batches`.
    pub(super) batched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    /// Its end, in seconds since the epoch; then, the time until which it is remembered.
    pub(super) until: u32,
    pub(super) state: LeaseState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// Holds hits.
    Open(u64),
    Settled,
    /// Ended by itself. Its hits were charged, and count in the window with this end.
    Charged {
        hits: u64,
        window: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) until: u32,
    pub(super) leases: SmallVec<[LeaseId; MAX_BATCH]>,
}

/// Summary of a ledger after a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSummary {
    /// Hits that were used in the window.
    pub used: u64,
    /// Hits that open leases hold.
    pub held: u64,
    /// End of the window, in seconds since the epoch.
    pub ends: u32,
    /// Whether the lease of a reservation is a known one that does not hold its hits.
    pub has_conflict: bool,
}

impl Ledger {
    pub(super) fn charge(&mut self, hits: u64) {
        self.used = (self.used + hits).min(Count(MAX_COUNT));
    }

    /// Returns what a lease holds, as though it had not been reserved.
    pub(super) fn cancel(&mut self, id: LeaseId) {
        if let Some(Lease { state: LeaseState::Open(held), .. }) = self.leases.get(&id).copied() {
            self.held -= held;
            self.leases.remove(&id);
        }
    }

    /// Adds a lease that ends last, with those before it at the earliest.
    pub(super) fn push(&mut self, id: LeaseId, until: u32, state: LeaseState) {
        let until = self.batches.back().map_or(until, |last| until.max(last.until));
        match self.batches.back_mut().filter(|last| last.until == until && last.leases.len() < MAX_BATCH) {
            Some(last) => last.leases.push(id),
            None => self.batches.push_back(Batch { until, leases: SmallVec::from_iter([id]) }),
        }
        self.batched = self.batched.saturating_add(1);
        self.leases.insert(id, Lease { until, state });
    }
}

impl Lease {
    /// Whether at least `amount` hits are held.
    pub(super) const fn holds(&self, amount: NonZeroU64) -> bool {
        matches!(self.state, LeaseState::Open(held) if held >= amount.get())
    }
}
