//! Rules that shed by the utilization of the service behind them.
//!
//! A request compares a random number with a snapshot of its rule's pass rates. [`share_utilization`] runs twice a second
//! beside the requests: it adds the reports up with those of the other instances, and sets the rates.

mod share;

use std::time::Duration;

use tollgate_core::descriptor::Descriptor;

pub(super) use self::share::share_utilization;
use crate::{Match, Matches, Modes, matched::Signal};

/// Retry times of requests that were shed, in seconds; at random, so that they do not return together.
const RETRY_AFTER_S: std::ops::RangeInclusive<u64> = 1..=5;

/// Takes reports, and decides requests by their rules' gates. Returns the time to retry if the request is shed: then
/// nothing else of it is charged.
pub(super) fn apply(
    modes: Modes,
    descriptors: &[Descriptor<'_>],
    matches: &mut Matches<'_>,
) -> Option<Duration> {
    let mut is_denied = false;
    for (descriptor, matched) in descriptors.iter().zip(&mut *matches) {
        let Match::Shedding { rule, signal, is_shadow } = matched else { continue };
        let Some(shedding) = &rule.shedding else { continue };
        match signal {
            Signal::Report(utilization) => utilization.iter().for_each(|one| shedding.gate().report(*one)),
            Signal::Request { priority, is_shed } => {
                let hits = descriptor.hits.charged();
                *is_shed = hits > 0 && !shedding.gate().admit(*priority, hits, || fastrand::u16(..));
                is_denied |= *is_shed && !*is_shadow && !modes.shadow;
            }
        }
    }
    is_denied.then(|| {
        withhold(descriptors, matches);
        Duration::from_secs(fastrand::u64(RETRY_AFTER_S))
    })
}

/// Makes the other descriptors skip their limits, unless they return what was charged before.
fn withhold(descriptors: &[Descriptor<'_>], matches: &mut Matches<'_>) {
    for (descriptor, matched) in descriptors.iter().zip(matches) {
        let is_refund = matched.hits().unwrap_or(descriptor.hits).is_refund();
        if !is_refund && !matches!(matched, Match::Shedding { .. } | Match::Denied) {
            *matched = Match::None;
        }
    }
}

#[cfg(test)]
mod tests;
