//! Counter that a descriptor matches.

use tollgate_core::{
    algorithm::{Policy, RegionShare},
    descriptor::Hits,
    quota::Quota,
};

/// Limit and hits of a matched counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterMatch {
    pub(super) quota: Quota,
    pub(super) policy: Policy,
    /// A descriptor that releases a lease does not charge.
    pub(super) hits: Hits,
    /// Own region's share of the quota, if all regions enforce it together; the policy is that of the share.
    pub(super) share: Option<RegionShare>,
}

impl CounterMatch {
    /// Own region's part of another limit in the quota's place.
    pub(super) fn part_of(&self, limit: u32) -> u32 {
        let Some(share) = self.share else { return limit };
        let part = u64::from(limit).saturating_mul(share.base().into()).checked_div(self.quota.limit);
        part.and_then(|part| u32::try_from(part).ok()).unwrap_or(limit)
    }
}
