//! This instance's share of a limit while the store fails: the limit divided by the number of instances.

use std::num::NonZeroU32;

use tollgate_core::{SyncMode, algorithm::Policy, descriptor::Hits};
use tollgate_store::request::{Cell, Check};
use tollgate_store::{MemoryStore, Store, StoreError};

use crate::metrics::{self, LocalStart};
use crate::plan::Match;

/// The check of this instance's share of a limit, whose counter is started.
pub(super) fn check_of_share(
    local: &MemoryStore,
    store: &Store,
    cell: &Cell,
    check: &Check,
    matched: Option<&Match<'_>>,
    error: &StoreError,
    replicas: NonZeroU32,
) -> Check {
    let whole = matched.and_then(Match::degraded_policy).unwrap_or(check.policy);
    let whole = without_primary(cell, matched, whole);
    let policy = whole.shared_by(replicas);
    // The counter starts from its last verdict in the store, if there is one since the last start.
    let last = store.take_last_verdict(&cell.key, check.record);
    let state = last.and_then(|(last, last_reply_at)| whole.share_after(&last, last_reply_at, replicas));
    if let Some(state) = state {
        local.raise(&cell.key, check.record, &policy, state);
        metrics::local_start(LocalStart::LastVerdict);
    }
    // The calls of others are still decided there.
    let policy = if error.is_slowness() { policy.with_reserve() } else { policy };
    // A share denies clients that the limit would admit: they are not offenders.
    let is_zero = || matched.and_then(Match::rule).is_some_and(|rule| rule.degraded_limit == Some(0));
    let hits = if check.hits == Hits::Peek && is_zero() { Hits::ONE } else { check.hits };
    Check { policy, hits, sync: SyncMode::Strict, ban: None, share: None, ..*check }
}

/// The policy that decides without the primary region: the own region's share of the limit, if the primary region decides
/// it otherwise. A limit that a rule states for that time is divided already.
fn without_primary(cell: &Cell, matched: Option<&Match<'_>>, whole: Policy) -> Policy {
    let states_limit = || matched.and_then(Match::rule).is_some_and(|rule| rule.degraded_limit.is_some());
    if !cell.key.is_at_primary() || states_limit() {
        return whole;
    }
    let counter = matched.and_then(Match::counter);
    let share = counter.and_then(|counter| Some((counter.share?, u32::try_from(counter.quota.limit).ok()?)));
    share.map_or(whole, |(share, limit)| whole.region_share(share.base, limit))
}
