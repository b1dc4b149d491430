//! Hits that are held under the lease of a request, or settle one.

use tollgate_core::{RecordId, descriptor::Hits, lease::LeaseId};
use tollgate_store::{
    key::CellKey,
    request::{Check, Requests},
};

use crate::counter_match::CounterMatch;

/// Makes a charge of a concurrency limit an acquisition under the lease, and one of a budget a reservation.
///
/// A lease reserves once of a budget, and is settled once. The hits of several descriptors on one budget are added to those
/// of the first, so that `add` and `cap` apply to their sum. What is left reads the counter, or repeats the settlement, which
/// changes nothing.
pub(super) fn under_lease(
    calls: &mut Requests,
    counter: (&CellKey, RecordId),
    CounterMatch { hits, policy, .. }: &CounterMatch,
    lease: Option<LeaseId>,
) -> Hits {
    match (*hits, lease) {
        (Hits::Charge(amount), Some(lease)) if policy.algorithm().takes_leases() => {
            let Some(reserve) = policy.reserve_terms() else { return Hits::Acquire { amount, lease } };
            for Check { hits, policy, .. } in checks_of(calls, counter) {
                if let Hits::Acquire { amount: earlier, .. } = hits {
                    *earlier = reserve.capped(earlier.saturating_add(amount.get()), policy.limit());
                    return Hits::Peek;
                }
            }
            Hits::Acquire { amount: reserve.amount(amount, policy.limit()), lease }
        }
        (Hits::Settle { lease, used: more }, _) => {
            for Check { hits, .. } in checks_of(calls, counter) {
                if let Hits::Settle { lease: earlier, used } = hits
                    && *earlier == lease
                {
                    *used = used.saturating_add(more).min(Hits::MAX);
                    return Hits::Settle { lease, used: 0 };
                }
            }
            *hits
        }
        (hits, _) => hits,
    }
}

/// The checks of a counter so far.
fn checks_of<'c>(
    calls: &'c mut Requests,
    (key, record): (&'c CellKey, RecordId),
) -> impl Iterator<Item = &'c mut Check> {
    let cells = calls.iter_mut().flat_map(|call| &mut call.cells).filter(move |cell| cell.key == *key);
    cells.flat_map(|cell| &mut cell.checks).filter(move |check| check.record == record)
}
