//! Allow and deny lists, which decide a request in place of its limits.

use std::{iter::repeat, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{clock::Clock, descriptor::Descriptor};
use tollgate_rules::{Listing, Lists};

use crate::{Match, Matches, decision::Listed};

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
    descriptors: &[Descriptor<'_>],
    matches: &mut Matches<'_>,
) -> Option<Listed> {
    if !lists.has_lists() {
        return None;
    }
    let now_ms = clock.now().as_millis();
    let is_refund = |descriptor: &Descriptor<'_>, matched: &Match<'_>| {
        matched.is_report() || matched.hits().unwrap_or(descriptor.hits).is_refund()
    };
    let charging = || {
        let pairs = descriptors.iter().zip(&*matches);
        pairs
            .filter(|(descriptor, matched)| !is_refund(descriptor, matched))
            .map(|(descriptor, _)| descriptor)
    };
    let is_allowed =
        charging().any(|descriptor| lists.allowing(domain, &descriptor.entries, now_ms).is_some());
    // Patterns can be slow on long values, so denying entries are looked up once.
    let denying = |(descriptor, matched): (&Descriptor<'_>, &Match<'_>)| {
        if is_refund(descriptor, matched) {
            None
        } else {
            lists.denying(domain, &descriptor.entries, now_ms).map(|entry| retry_after(entry, now_ms))
        }
    };
    let denied: SmallVec<[Option<Duration>; 2]> =
        if is_allowed { SmallVec::new() } else { descriptors.iter().zip(&*matches).map(denying).collect() };
    let listed = if is_allowed {
        Listed::Allowed
    } else {
        Listed::Denied { retry_after: denied.iter().copied().flatten().max()? }
    };
    let is_denied = denied.iter().map(Option::is_some).chain(repeat(false));
    for ((descriptor, matched), is_denied) in descriptors.iter().zip(matches).zip(is_denied) {
        if !is_refund(descriptor, matched) {
            *matched = if is_denied { Match::Denied } else { Match::None };
        }
    }
    Some(listed)
}

/// Time until the entry expires, as reported to clients.
fn retry_after(entry: &Listing, now_ms: u64) -> Duration {
    let left = |end: u64| Duration::from_millis(end.saturating_sub(now_ms));
    entry.expires_at_ms().map_or(MAX_RETRY_AFTER, |end| left(end).min(MAX_RETRY_AFTER))
}
