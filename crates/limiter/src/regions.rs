//! Own region's share of the limits that all regions enforce together.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;
use tollgate_core::algorithm::{Policy, RegionShare};
use tollgate_core::{RecordId, clock::Clock, hash_of, quota::Quota};
use tollgate_loans::shares::RegionShares;
use tollgate_rules::{Rule, Scope};
use tollgate_store::loans::{ShareWatch, SharedCounter};
use tollgate_store::{Decisions, Store, key::CellKey};

use super::plan::{CounterMatch, Match, Plan};
use super::{AwaitedLoans, awaited_loans::waiting_hit};

/// Shares of the own region as of now; none without a region table. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OwnShares {
    shares: Arc<ArcSwapOption<RegionShares>>,
    /// Where decisions on counters that regions share are reported, if they lend to each other.
    pub watch: Option<ShareWatch>,
    /// Loans that counters wait for.
    pub awaited: AwaitedLoans,
}

impl OwnShares {
    /// Replaces the shares for all later requests.
    pub fn set(&self, shares: RegionShares) {
        self.shares.store(Some(Arc::new(shares)));
    }

    /// The shares, if there is a region table.
    pub fn load(&self) -> Option<Arc<RegionShares>> {
        self.shares.load_full()
    }

    /// The counter of a limit of `quota` with `policy` that regions share; `None` without a region table, or if regions
    /// lend no parts of such a limit.
    pub fn counter(
        &self,
        quota: Quota,
        policy: &Policy,
        cell: CellKey,
        record: RecordId,
        clock: &Clock,
    ) -> Option<SharedCounter> {
        let (policy, share) = self.share(quota, policy, &cell, record, clock)?;
        policy.can_be_lent().then_some(SharedCounter { cell, record, policy, share })
    }

    /// Reports the decisions on counters that regions share. A hit that its share denies waits for a loan `until` a time, if
    /// it is the only one of the request.
    pub(super) async fn after_loans(
        &self,
        store: &Store,
        plan: &Plan<'_, '_>,
        decided: Decisions,
        until: Option<Instant>,
    ) -> Decisions {
        let Some(watch) = self.watch.as_ref().filter(|_| plan.has(Match::has_share)) else { return decided };
        let calls = &plan.calls;
        let hit = until.and_then(|_| waiting_hit(calls, &decided));
        let awaited = hit.and_then(|(cell, record)| self.awaited.register(cell, record));
        match (awaited, until) {
            (Some(awaited), Some(until)) if watch.observe(calls, &decided, true) => {
                // Boxed, so that the future of the common case stays small.
                Box::pin(awaited.decide_again(store, calls, decided, until)).await
            }
            // Without a shortage the whole limit is used up.
            (Some(_), Some(_)) => decided,
            _ => {
                watch.observe(calls, &decided, false);
                decided
            }
        }
    }

    /// Limits the counter of a global rule to the own share of its limit. For one of the primary region, the share is what
    /// decides without that region.
    pub(super) fn apply(
        &self,
        rule: &Rule,
        counter: &mut CounterMatch,
        key: &CellKey,
        record: RecordId,
        clock: &Clock,
    ) {
        if rule.scope == Scope::Regional {
            return;
        }
        if let Some((policy, share)) = self.share(counter.quota, &counter.policy, key, record, clock) {
            counter.share = Some(share);
            if rule.scope == Scope::Global {
                counter.policy = policy;
            }
        }
    }

    fn share(
        &self,
        quota: Quota,
        whole: &Policy,
        key: &CellKey,
        record: RecordId,
        clock: &Clock,
    ) -> Option<(Policy, RegionShare)> {
        let shares = self.shares.load();
        let hash = || hash_of(key.as_bytes()) ^ hash_of(record.as_bytes());
        let limit = u32::try_from(quota.limit).ok()?;
        let base = shares.as_ref()?.share(limit, whole, || clock.now(), hash);
        Some((whole.region_share(base, limit), RegionShare::new(quota, base)?))
    }
}
