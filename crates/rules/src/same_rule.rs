//! Comparison of rules.

use super::Rule;

impl Rule {
    /// Whether both have the same path, limit and attributes, wherever those are stated.
    pub fn states_same_as(&self, other: &Self) -> bool {
        // Names all fields, so that a new one is not forgotten.
        let Self {
            limit,
            part,
            shedding,
            sync,
            scope,
            on_share_exhausted,
            overdraft,
            ban,
            notify,
            weights,
            on_store_error,
            degraded_limit,
            retry_after_spread,
            name,
            replaces,
            shadow_mode,
            quota_mode,
            detailed_metric,
            metadata,
            segments,
            rollout,
            origin: _,
            stated: _,
            derived: _,
        } = self;
        let has_same_limit = (limit, part, shedding, ban, weights, rollout)
            == (&other.limit, &other.part, &other.shedding, &other.ban, &other.weights, &other.rollout);
        let is_counted_same = (sync, scope, on_share_exhausted, overdraft)
            == (&other.sync, &other.scope, &other.on_share_exhausted, &other.overdraft);
        let is_answered_same = (notify, on_store_error, degraded_limit, retry_after_spread, metadata)
            == (
                &other.notify,
                &other.on_store_error,
                &other.degraded_limit,
                &other.retry_after_spread,
                &other.metadata,
            );
        let has_same_modes = (shadow_mode, quota_mode, detailed_metric)
            == (&other.shadow_mode, &other.quota_mode, &other.detailed_metric);
        let has_same_names = (name, replaces, segments) == (&other.name, &other.replaces, &other.segments);
        has_same_limit && is_counted_same && is_answered_same && has_same_modes && has_same_names
    }
}
