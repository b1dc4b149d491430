//! Loans of counters between regions, for a region of one instance.

use std::collections::HashMap;

use tollgate_core::algorithm::effective_limit::{fill_later, label};
use tollgate_core::algorithm::{CounterState, LoanTotals, Policy, RegionShare};
use tollgate_core::{RecordId, clock::Timestamp};

use super::{CounterKey, EvictionRank, LockedShard, MemoryStore};
use crate::loans::{Change, SharedCounter, Snapshot};
use crate::request::{Cell, Check};
use crate::{StoreError, key::CellKey, store::LoanStep};

/// Maximum number of counters with loans in a shard.
const MAX_ENTRIES: usize = 1_024;

/// Counters of a shard with loans.
#[derive(Debug, Default)]
pub(super) struct LoanBook {
    entries: HashMap<Box<[u8]>, LoanEntry>,
}

#[derive(Debug)]
struct LoanEntry {
    totals: LoanTotals,
    ledger: String,
    /// When the ledger may be dropped, in seconds since the epoch.
    expires_at: u32,
}

/// The share of a check's counter with loans.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoanedShare {
    share: RegionShare,
    totals: LoanTotals,
}

impl LoanBook {
    /// The share of a check whose counter has loans.
    pub(super) fn share(&self, cell: &Cell, check: &Check) -> Option<LoanedShare> {
        if self.entries.is_empty() {
            return None;
        }
        let share = check.share.filter(|_| check.policy.can_be_lent())?;
        let entry = self.entries.get(&*book_name(&cell.key, check.record))?;
        Some(LoanedShare { share, totals: entry.totals })
    }

    /// Keeps what a bucket has lent until it is full.
    pub(super) fn prolong(&mut self, cell: &Cell, check: &Check, now: Timestamp, full_at: u32) {
        if matches!(check.policy, Policy::TokenBucket(_))
            && let Some(entry) = self.entries.get_mut(&*book_name(&cell.key, check.record))
        {
            entry.totals.prolong(now, full_at);
        }
    }

    fn has_room(&mut self, name: &[u8], now: Timestamp) -> bool {
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(name) {
            let is_live = |entry: &LoanEntry| entry.expires_at.max(entry.totals.expires_at()) > now.seconds();
            self.entries.retain(|_, entry| is_live(entry));
        }
        self.entries.len() < MAX_ENTRIES || self.entries.contains_key(name)
    }
}

impl LoanedShare {
    /// The policy of the share on a counter with this state.
    pub(super) fn policy(&self, policy: Policy, state: &CounterState, now: Timestamp) -> Policy {
        let label = label(&policy, state, now);
        self.share.under(policy, self.totals.effective(&self.share, label))
    }
}

/// See [`CounterStore::with_loans`](crate::CounterStore::with_loans).
pub(super) fn with_loans(
    store: &MemoryStore,
    counter: &SharedCounter,
    step: &mut LoanStep<'_>,
) -> Result<(), StoreError> {
    let shared = &*store.shared;
    let Some((mut shard, now)) = shared.lock(counter.cell.tag()) else {
        return Err(StoreError::Declined("no such shard".into()));
    };
    let book_name = book_name(&counter.cell, counter.record);
    if !shard.loans.has_room(&book_name, now) {
        return Err(StoreError::Declined("too many counters with loans".into()));
    }
    let counter_name = CounterKey::new(&shared.hasher, counter.cell.as_bytes(), counter.record.as_bytes());
    let state = shard.counters.inspect(&counter_name, |state| state.clone());
    let CounterState::Words(words) = state else {
        return Err(StoreError::Declined("a counter whose limit cannot be lent".into()));
    };
    let known = shard.loans.entries.get(&book_name);
    let snapshot = Snapshot {
        now,
        state: words,
        totals: known.map(|entry| entry.totals).unwrap_or_default(),
        ledger: known.map(|entry| entry.ledger.clone()).unwrap_or_default(),
    };
    if let Some(change) = step(&snapshot)? {
        write(&mut shard, &counter_name, counter, now, change);
    }
    Ok(())
}

fn write(
    shard: &mut LockedShard,
    name: &CounterKey<'_>,
    counter: &SharedCounter,
    now: Timestamp,
    change: Change,
) {
    let mut totals = change.totals;
    if let Policy::TokenBucket(_) = counter.policy {
        let full_at = shard.counters.decide(name, now, |state| {
            fill_later(&counter.policy, state, now, change.full_later);
            let expires_at = counter.policy.expires_at(state);
            (expires_at, EvictionRank::new(false, expires_at))
        });
        totals.prolong(now, full_at);
    }
    let ttl = u32::try_from(change.ttl_millis.div_ceil(1_000)).unwrap_or(u32::MAX);
    let entry = LoanEntry { totals, ledger: change.ledger, expires_at: now.seconds().saturating_add(ttl) };
    shard.loans.entries.insert(book_name(&counter.cell, counter.record), entry);
}

fn book_name(cell: &CellKey, record: RecordId) -> Box<[u8]> {
    [cell.as_bytes(), record.as_bytes()].concat().into()
}
