//! Renewals of loans.

use std::time::Duration;

use tollgate_core::algorithm::{Algorithm, Parameters, Policy, RegionShare};
use tollgate_core::descriptor::Entry;
use tollgate_core::quota::{Quota, Unit, Window};

use super::*;

fn counter(number: usize) -> SharedCounter {
    let quota = Quota { limit: 600, window: Window::of(Unit::Minute) };
    let value = number.to_string();
    SharedCounter {
        cell: CellKey::open("d", [Entry { key: "k", value: &value }].into_iter()),
        record: RecordId::alone(Algorithm::SlidingWindow),
        policy: Policy::nearest(Algorithm::SlidingWindow, quota, &Parameters::default()),
        share: RegionShare::new(quota, 200).expect("a limit"),
    }
}

#[tokio::test]
async fn a_counter_has_one_request_at_a_time_and_is_prolonged_once_however_often_it_is_short() {
    let (mut renewals, now) = (Renewals::default(), Instant::now());
    let at = |seconds| now + Duration::from_secs(seconds);
    for round in 1..100 {
        assert_eq!(renewals.begin(&counter(1)), Begun::Request);
        assert_eq!(renewals.begin(&counter(1)), Begun::InFlight);
        renewals.end(counter(1), Some(at(round)));
        assert_eq!((renewals.due.len(), renewals.places.len()), (1, 1));
    }
    renewals.begin(&counter(2));
    renewals.end(counter(2), Some(at(50)));
    assert_eq!((renewals.next(), renewals.take_due(at(49))), (Some(at(50)), None));
    assert_eq!(renewals.take_due(at(100)), Some(counter(2)), "in the order of their ends");
    assert_eq!([renewals.take_due(at(100)), renewals.take_due(at(100))], [Some(counter(1)), None]);
    assert!(renewals.due.is_empty() && renewals.places.is_empty());
}

#[tokio::test]
async fn renewals_and_requests_are_bounded_and_a_counter_in_renewal_leaves_others_their_requests() {
    let (mut renewals, now) = (Renewals::default(), Instant::now());
    for number in 0..10_000 {
        assert_eq!(renewals.begin(&counter(number)), Begun::Request);
        renewals.end(counter(number), Some(now));
    }
    assert_eq!((renewals.due.len(), renewals.places.len()), (MAX_RENEWALS, MAX_RENEWALS));
    let begun = (20_000..30_000).filter(|number| renewals.begin(&counter(*number)) == Begun::Request).count();
    assert_eq!(begun, MAX_IN_FLIGHT);
}
