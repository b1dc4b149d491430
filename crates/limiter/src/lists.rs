//! Requests that a list decides in place of the limits.

use std::{iter::repeat, time::Duration};

use smallvec::SmallVec;

use super::metrics;
use super::{Limiter, Statuses, Target, matched::Targets};
use crate::verdict::{Decision, Listed};
use tollgate_core::{clock::Clock, descriptor::Descriptor};
use tollgate_rules::{Listing, Overrides};

/// What a client is told at the most, and of a ban without an end: it may be lifted at any time.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Has lists decide about a request, if one of them does: what asks for something is up against them alone then.
///
/// What gives back does so whatever they say, so that no place is held for longer and no charge stays that is not to; and
/// it is not asked whether they match it.
pub(super) fn decide(
    overrides: &Overrides,
    clock: &Clock,
    domain: &str,
    descriptors: &[Descriptor<'_>],
    targets: &mut Targets<'_>,
) -> Option<Listed> {
    if !overrides.has_lists() {
        return None;
    }
    let now_ms = clock.now().as_micros() / 1_000;
    let gives_back = |descriptor: &Descriptor<'_>, target: &Target<'_>| {
        target.hits().unwrap_or(descriptor.hits).is_refund()
    };
    let asking = || {
        let pairs = descriptors.iter().zip(&*targets);
        pairs.filter(|(descriptor, target)| !gives_back(descriptor, target)).map(|(descriptor, _)| descriptor)
    };
    let is_allowed =
        asking().any(|descriptor| overrides.allowing(domain, &descriptor.entries, now_ms).is_some());
    // Patterns can take a while on long values, so what denies is looked for once.
    let denying = |(descriptor, target): (&Descriptor<'_>, &Target<'_>)| match gives_back(descriptor, target)
    {
        true => None,
        false => overrides.denying(domain, &descriptor.entries, now_ms).map(|entry| still(entry, now_ms)),
    };
    let denied: SmallVec<[Option<Duration>; 2]> = match is_allowed {
        true => SmallVec::new(),
        false => descriptors.iter().zip(&*targets).map(denying).collect(),
    };
    let listed = match is_allowed {
        true => Listed::Allowed,
        false => Listed::Denied { still: denied.iter().copied().flatten().max()? },
    };
    let is_denied = denied.iter().map(Option::is_some).chain(repeat(false));
    for ((descriptor, target), is_denied) in descriptors.iter().zip(targets).zip(is_denied) {
        if !gives_back(descriptor, target) {
            *target = match is_denied {
                true => Target::Denied,
                false => Target::Nothing,
            };
        }
    }
    Some(listed)
}

/// For how long the entry denies, as far as a client is told.
fn still(entry: &Listing, now_ms: u64) -> Duration {
    let left = |end: u64| Duration::from_millis(end.saturating_sub(now_ms));
    entry.expires_at_ms().map_or(LONGEST, |end| left(end).min(LONGEST))
}

impl Limiter {
    /// Decides a request for a domain that has no rules.
    pub(super) fn decide_without_rules<'r>(
        &self,
        overrides: &Overrides,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Decision<'r> {
        metrics::unknown_domain();
        let mut targets = descriptors.iter().map(|_| Target::Nothing).collect();
        let listed = decide(overrides, &self.clock, domain, descriptors, &mut targets);
        if let Some(listed) = listed {
            metrics::listed_without_rules(listed.list());
        }
        let statuses: Statuses<'r> = targets.iter().map(Target::status_without_counter).collect();
        Decision { code: self.overall(&statuses), degraded: None, listed, statuses }
    }
}
