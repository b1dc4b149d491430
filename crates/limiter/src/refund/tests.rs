//! Refunds and releases by charge and result.

use tollgate_store::request::Veto;

use super::*;
use crate::test_prelude::*;

const LEASE: LeaseId = LeaseId::new(NonZeroU64::MIN);

const ACQUIRE: Hits = Hits::Acquire { amount: NonZeroU64::MIN, lease: LEASE };

const OVERDRAW: Hits = Hits::Overdraw(NonZeroU64::MIN);

/// A call to one counter, and its verdict.
fn call(charging: Charging, hits: Hits, admitted: bool) -> (TagRequest, Verdicts) {
    let quota = Quota { limit: 10, window: Window::of(Unit::Hour) };
    let policy = Policy::nearest(Algorithm::Concurrency, quota, &Parameters::default());
    let record = RecordId::alone(Algorithm::Concurrency);
    let check = Check { veto: Veto::Alone, ..Check::own(record, policy, hits) };
    let verdict = Verdict {
        admitted,
        reset_after: Duration::ZERO,
        used: 1,
        ..Verdict::empty(Timestamp::from_micros(1))
    };
    (TagRequest::new(charging, CellKey::global("d", record), check), Verdicts::from_iter([(0, verdict)]))
}

fn hits(calls: &Requests) -> Vec<Hits> {
    calls.iter().flat_map(TagRequest::checks).map(|check| check.hits).collect()
}

/// Refunds, requests sent again later without and with refunds, and uncertain releases.
fn all(charging: Charging, charged: Hits, decision: Result<bool, StoreError>) -> [Vec<Hits>; 4] {
    let (call, verdicts) = call(charging, charged, decision.clone().unwrap_or(false));
    let (calls, decisions) =
        (Requests::from_iter([call]), Decisions::from_iter([decision.map(|_| verdicts)]));
    [
        hits(&refunds(&calls, &decisions)),
        hits(&missed(&calls, &decisions, |_| false)),
        hits(&missed(&calls, &decisions, |_| true)),
        hits(&uncertain_releases(&calls, &decisions)),
    ]
}

#[test]
fn unsent_charges_are_not_refunded_and_unknown_ones_only_if_that_is_idempotent() {
    let unsent = || Err(StoreError::BreakerOpen);
    let unknown = || Err(StoreError::Timeout(Duration::ZERO, None));
    let release = Hits::Release(LEASE);
    let refund = Hits::RefundCharge { amount: NonZeroU64::MIN, made_at: Timestamp::from_micros(1) };
    let none = || vec![];
    for (charging, charged, decision, expected) in [
        (Charging::Independent, Hits::ONE, Ok(true), [none(), none(), none(), none()]),
        (Charging::AllOrNone, Hits::ONE, Ok(true), [vec![refund], none(), none(), none()]),
        (Charging::AllOrNone, Hits::ONE, Ok(false), [none(), none(), none(), none()]),
        (Charging::AllOrNone, Hits::ONE, unknown(), [none(), none(), none(), none()]),
        (Charging::Independent, ACQUIRE, Ok(true), [vec![release], none(), none(), none()]),
        (Charging::Independent, ACQUIRE, Ok(false), [none(), none(), none(), none()]),
        (Charging::Independent, ACQUIRE, unsent(), [none(), none(), none(), none()]),
        (Charging::AllOrNone, ACQUIRE, unknown(), [vec![release], none(), none(), vec![release]]),
        (Charging::Independent, release, Ok(true), [none(), none(), none(), none()]),
        (Charging::Independent, release, unsent(), [none(), vec![release], vec![release], none()]),
        (Charging::Independent, release, unknown(), [none(), vec![release], vec![release], none()]),
        (Charging::AllOrNone, OVERDRAW, Ok(true), [none(), none(), none(), none()]),
        (Charging::AllOrNone, OVERDRAW, unsent(), [none(), none(), vec![OVERDRAW], none()]),
        (Charging::Independent, OVERDRAW, unknown(), [none(), none(), none(), none()]),
        (Charging::Independent, Hits::refund(1), unsent(), [none(), none(), vec![Hits::refund(1)], none()]),
        (Charging::Independent, Hits::refund(1), unknown(), [none(), none(), none(), none()]),
    ] {
        assert_eq!(
            all(charging, charged, decision.clone()),
            expected,
            "{charging:?} {charged:?} {decision:?}"
        );
    }
}
