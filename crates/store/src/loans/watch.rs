//! Counters of which the region runs short, as the verdicts of this process show it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{hash::BuildHasher as _, num::NonZeroU32};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tollgate_core::algorithm::{Policy, Verdict};
use tollgate_core::{RecordId, clock::Timestamp};
use tollgate_loans::policy::{self, Demand};
use tollgate_loans::terms::{LOAN_MICROS, Moment, Terms};

use super::SharedCounter;
use crate::request::{Cell, Check, TagRequest};
use crate::{Decisions, key::CellKey, local::RecentValues};

/// Parts of the record of demands, each under a lock of its own.
const SHARDS: usize = 16;

/// Counters of a generation in each part: of more, the demand of those that were not used of late is forgotten.
const MAX_COUNTERS: usize = 256;

/// Maximum number of shortages that wait for a loan request.
const MAX_QUEUED: usize = 1_024;

/// Shortest time between two reports of one counter, in microseconds: the loan request itself is recorded in the ledger.
const REPORT_MICROS: u64 = 200_000;

/// Watches the verdicts of counters that regions share. Clones share one record.
#[derive(Clone, Debug, Default)]
pub struct ShareWatch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    hasher: RandomState,
    shards: [Mutex<Demands>; SHARDS],
    queue: Mutex<VecDeque<Shortage>>,
    queued: Notify,
    /// Instances of the region among which hits are divided; 0 while unknown, which counts as one.
    instances: AtomicU32,
}

/// A counter of which a region runs short.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortage {
    /// The counter.
    pub counter: SharedCounter,
    /// Hits that the region would borrow.
    pub want: u32,
    /// Hits that were just denied; 0 if there were some left.
    pub denied: u32,
    /// Demand in the region, as estimated from that of this process.
    pub demand: Demand,
}

/// Demand for counters.
type Demands = RecentValues<KnownDemand, MAX_COUNTERS>;

#[derive(Clone, Copy, Debug, Default)]
struct KnownDemand {
    demand: Demand,
    /// Time until which the counter is not reported again, in microseconds.
    quiet_until: u64,
}

impl ShareWatch {
    /// Sets the number of instances among which the region's hits are divided.
    pub fn set_instances(&self, instances: NonZeroU32) {
        self.shared.instances.store(instances.get(), Ordering::Relaxed);
    }

    /// Observes the verdicts of a request that a store decided, and returns whether a shortage was reported: at once, if its
    /// hits would wait for a loan.
    pub fn observe(&self, calls: &[TagRequest], decisions: &Decisions, is_waiting: bool) -> bool {
        let mut is_reported = false;
        for (call, decision) in calls.iter().zip(decisions) {
            let Ok(verdicts) = decision else { continue };
            for ((cell, check), (_, verdict)) in call.checks_with_cells().zip(verdicts) {
                is_reported |= self.observe_check(cell, check, verdict, is_waiting).unwrap_or(false);
            }
        }
        is_reported
    }

    /// Demand for a counter in the region, as estimated from that of this process.
    pub fn demand(&self, cell: &CellKey, record: RecordId) -> Demand {
        let counter = self.shared.hash(cell, record);
        let known = self.shared.shard(counter).and_then(|demands| demands.lock().get(counter).copied());
        self.shared.of_region(known.unwrap_or_default().demand)
    }

    /// Waits for a counter of which the region runs short.
    pub async fn shortage(&self) -> Shortage {
        loop {
            let queued = self.shared.queued.notified();
            let first = self.shared.queue.lock().pop_front();
            match first {
                Some(shortage) => return shortage,
                None => queued.await,
            }
        }
    }

    /// Whether a shortage was reported.
    fn observe_check(&self, cell: &Cell, check: &Check, verdict: &Verdict, is_waiting: bool) -> Option<bool> {
        let share = check.share.filter(|_| check.policy.can_be_lent())?;
        let hits = u32::try_from(check.hits.charged()).unwrap_or(u32::MAX);
        let used = u32::try_from(verdict.used).unwrap_or(u32::MAX);
        let is_bucket = matches!(check.policy, Policy::TokenBucket(_));
        // A long window is far from short. Buckets and short windows are lent by their rate, which all of their hits show.
        let has_rate = is_bucket || u64::from(share.window_seconds(&check.policy)) <= LOAN_MICROS / 1_000_000;
        let has_plenty = verdict.admitted && !has_rate && u64::from(used) <= verdict.remaining;
        if hits == 0 || has_plenty || verdict.ban.is_some_and(|ban| ban.is_enforced) {
            return None;
        }
        let counter =
            SharedCounter { cell: cell.key.clone(), record: check.record, policy: check.policy, share };
        let terms = counter.terms();
        let now = moment(&terms, &check.policy, verdict.decided_at);
        let effective = share.effective_in(&check.policy, verdict);
        let denied = if verdict.admitted { 0 } else { hits };
        let usage = if is_bucket { 0 } else { used };
        let hash = self.shared.hash(&cell.key, check.record);
        let mut demands = self.shared.shard(hash).map(Mutex::lock)?;
        let entry = demands.get_or_insert(hash, KnownDemand::default);
        entry.demand.add(now.micros, hits);
        let is_quiet = now.micros < entry.quiet_until && !is_waiting;
        let quiet_until = now.micros.saturating_add(REPORT_MICROS);
        if is_quiet && entry.quiet_until <= quiet_until {
            return None;
        }
        let demand = self.shared.of_region(entry.demand);
        let want = policy::shortage(&terms, now, effective, usage, denied, &demand)?;
        entry.quiet_until = quiet_until;
        drop(demands);
        Some(self.shared.report(Shortage { counter, want, denied, demand }))
    }
}

impl Shared {
    fn hash(&self, cell: &CellKey, record: RecordId) -> u64 {
        self.hasher.hash_one((cell.as_bytes(), record.as_bytes()))
    }

    /// The shard of a hash, by other bits than the tables within it take.
    fn shard(&self, hash: u64) -> Option<&Mutex<Demands>> {
        self.shards.get((hash >> 32) as usize % SHARDS)
    }

    fn of_region(&self, demand: Demand) -> Demand {
        let instances = self.instances.load(Ordering::Relaxed).max(1);
        let all = |hits: u32| hits.saturating_mul(instances);
        Demand { count: all(demand.count), previous: all(demand.previous), ..demand }
    }

    /// Queues a shortage, if there is room; a counter that is still short is reported again.
    fn report(&self, shortage: Shortage) -> bool {
        let mut queue = self.queue.lock();
        let has_room = queue.len() < MAX_QUEUED;
        if has_room {
            queue.push_back(shortage);
            drop(queue);
            self.queued.notify_one();
        }
        has_room
    }
}

fn moment(terms: &Terms, policy: &Policy, now: Timestamp) -> Moment {
    let micros = now.as_micros();
    let end = policy.prefetched_until(now).filter(|_| terms.kind.label_step().is_some());
    Moment { label: end.map_or(micros, |end| end.seconds().into()), micros }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};
    use tollgate_core::algorithm::RegionShare;

    use super::*;
    use crate::test_prelude::*;

    /// A hit on a counter of which the region has 200 of 600 hits.
    fn request(value: impl ToString, seconds: u32) -> TagRequest {
        let quota = Quota { limit: 600, window: Window::from_seconds(seconds).expect("in range") };
        let share = RegionShare::new(quota, 200).expect("a limit");
        let policy = share.under(policy(Algorithm::FixedWindow, 600, seconds), 200);
        request_of(value, Check { share: Some(share), ..check(policy, Hits::ONE) })
    }

    #[tokio::test]
    async fn a_counter_is_reported_once_it_lasts_for_less_than_a_second() {
        let clock = Clock::manual(Timestamp::from_micros(1_700_000_100_000_000));
        let (store, watch) = (MemoryStore::new(1_000, clock.clone()), ShareWatch::default());
        let mut reported_at = Vec::new();
        for hit in 0..220_u64 {
            clock.set(Timestamp::from_micros(1_700_000_100_000_000 + hit * 100_000));
            let call = [request("busy", 60)];
            let decisions = Decisions::from_iter([Ok(store.decide(&call[0]))]);
            watch.observe(&call, &decisions, false);
            if let Ok(shortage) = timeout(Duration::ZERO, watch.shortage()).await {
                assert_eq!(shortage.counter.share.base, 200);
                reported_at.push(hit);
            }
        }
        let first = *reported_at.first().expect("reported");
        assert!((170..200).contains(&first), "first reported after {first} of 200 hits");
        assert!(reported_at.len() < 30, "{reported_at:?}");
    }

    #[tokio::test]
    async fn every_hit_of_a_short_window_is_demand() {
        let clock = Clock::manual(Timestamp::from_micros(1_700_000_100_000_000));
        let (store, watch) = (MemoryStore::new(1_000, clock), ShareWatch::default());
        for (seconds, seen) in [(1, 50), (5, 50), (6, 0)] {
            let call = [request(seconds, seconds)];
            for _ in 0..50 {
                watch.observe(&call, &Decisions::from_iter([Ok(store.decide(&call[0]))]), false);
            }
            let cell = &call[0].cells[0];
            assert_eq!(watch.demand(&cell.key, cell.checks[0].record).count, seen, "{seconds} s");
        }
    }

    #[tokio::test]
    async fn counters_below_half_of_their_share_are_not_reported() {
        let clock = Clock::manual(Timestamp::from_micros(1_700_000_100_000_000));
        let (store, watch) = (MemoryStore::new(10_000, clock), ShareWatch::default());
        for name in 0..5_000 {
            let call = [request(name, 60)];
            let decisions = Decisions::from_iter([Ok(store.decide(&call[0]))]);
            watch.observe(&call, &decisions, false);
        }
        assert!(timeout(Duration::ZERO, watch.shortage()).await.is_err());
        assert_eq!(watch.demand(&cell(1), RecordId::alone(Algorithm::FixedWindow)), Demand::default());
    }
}
