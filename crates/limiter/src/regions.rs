//! Own region's share of the limits that all regions enforce together.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tollgate_core::{
    RecordId,
    clock::Clock,
    region::{RegionShares, hash_of},
};
use tollgate_rules::{Rule, Scope};
use tollgate_store::key::CellKey;

use super::matched::CounterMatch;

/// Shares of the own region as of now; none without a region table. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OwnShares(Arc<ArcSwapOption<RegionShares>>);

impl OwnShares {
    /// Replaces the shares for all later requests.
    pub fn set(&self, shares: RegionShares) {
        self.0.store(Some(Arc::new(shares)));
    }

    /// The shares, if there is a region table.
    pub fn load(&self) -> Option<Arc<RegionShares>> {
        self.0.load_full()
    }

    /// Limits the counter of a global rule to the own share of its limit.
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
        if let Some(shares) = &*self.0.load() {
            let limit = counter.quota.limit;
            let hash = || hash_of(key.as_bytes()) ^ hash_of(record.as_bytes());
            let share = shares.share(limit, &counter.policy, || clock.now(), hash);
            counter.policy = counter.policy.region_share(share, limit);
            counter.share = Some(share);
        }
    }
}
