//! Allow and deny lists, which decide in the place of the limits that descriptors match.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::clock::Clock;
use tollgate_rules::{Listing, Lists};

use crate::decision::ListDecision;
use crate::plan::{Match, PlannedLimit, PlannedLimits};

/// Longest retry time reported to a client, also for entries without expiry: an operator may remove an entry at any
/// time.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// Applies the allow and deny lists. If one matches, descriptors that charge hits skip their limits.
///
/// Refunds and releases are made regardless of the lists, so that no permit is held longer than needed and no charge
/// stays by mistake; they are not matched against the lists either. Nor are reports of a utilization.
pub(super) fn apply(
    lists: &Lists,
    clock: &Clock,
    domain: &str,
    limits: &mut PlannedLimits<'_, '_>,
) -> Option<ListDecision> {
    if !lists.has_lists() {
        return None;
    }
    let now_ms = clock.now().as_millis();
    let charging = limits.iter_mut().filter(|limit| !limit.matched.is_report() && !limit.is_refund());
    let mut charging: SmallVec<[_; 2]> = charging.collect();
    let allows = |limit: &&mut PlannedLimit<'_, '_>| lists.allowing(domain, limit.entries, now_ms).is_some();
    if charging.iter().any(allows) {
        charging.iter_mut().for_each(|limit| limit.matched = Match::None);
        return Some(ListDecision::Allowed);
    }
    // Patterns can be slow on long values, so denying entries are looked up once.
    let denying = charging.iter().map(|limit| lists.denying(domain, limit.entries, now_ms));
    let denying: SmallVec<[Option<&Listing>; 2]> = denying.collect();
    let retry_after = denying.iter().flatten().map(|entry| retry_after(entry, now_ms)).max()?;
    for (limit, denying) in charging.iter_mut().zip(denying) {
        limit.matched = if denying.is_some() { Match::Denied } else { Match::None };
    }
    Some(ListDecision::Denied { retry_after })
}

/// Time until the entry expires, as reported to clients.
fn retry_after(entry: &Listing, now_ms: u64) -> Duration {
    let left = |end: u64| Duration::from_millis(end.saturating_sub(now_ms));
    entry.expires_at_ms.map_or(MAX_RETRY_AFTER, |end| left(end).min(MAX_RETRY_AFTER))
}
