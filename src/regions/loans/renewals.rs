//! Counters for which loan requests are in flight, and those whose loans have to be prolonged.
//!
//! Each counter is in one of the two at most once, however often it is short. Loans are prolonged in the order in which
//! they end.

use std::collections::{BTreeMap, HashMap, HashSet};

use tokio::time::Instant;
use tollgate_core::RecordId;
use tollgate_store::{key::CellKey, loans::SharedCounter};

/// Maximum number of counters whose loans are prolonged; the shares of others fall at the end of their loans, and they
/// request loans again.
const MAX_RENEWALS: usize = 4_096;

/// Maximum number of counters for which loan requests are in flight.
const MAX_IN_FLIGHT: usize = 1_024;

type CounterName = (CellKey, RecordId);

/// Counters for which this instance requests loans.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    in_flight: HashSet<CounterName>,
    due: BTreeMap<(Instant, u64), SharedCounter>,
    due_at: HashMap<CounterName, (Instant, u64)>,
    /// Number of the last renewal, so that several of one time differ.
    last: u64,
}

/// Outcome of the attempt to begin a loan request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// The request begins.
    Request,
    /// One of the counter is in flight.
    InFlight,
    /// Too many are in flight; shares stay.
    Full,
}

impl Renewals {
    /// Begins a loan request of a counter, which takes the place of its renewal, if none is in flight and there is room.
    pub(super) fn begin(&mut self, counter: &SharedCounter) -> Begun {
        let name = name(counter);
        if self.in_flight.contains(&name) {
            return Begun::InFlight;
        }
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            return Begun::Full;
        }
        if let Some(at) = self.due_at.remove(&name) {
            self.due.remove(&at);
        }
        self.in_flight.insert(name);
        Begun::Request
    }

    /// Ends a loan request of a counter, whose loans have to be prolonged at a time, if any.
    pub(super) fn end(&mut self, counter: SharedCounter, due: Option<Instant>) {
        let name = name(&counter);
        self.in_flight.remove(&name);
        let Some(due) = due.filter(|_| self.due.len() < MAX_RENEWALS) else { return };
        self.last = self.last.wrapping_add(1);
        let at = (due, self.last);
        if let Some(before) = self.due_at.insert(name, at) {
            self.due.remove(&before);
        }
        self.due.insert(at, counter);
    }

    /// When the next loans have to be prolonged.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|(due, _)| *due)
    }

    /// Takes a counter whose loans have to be prolonged at `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<SharedCounter> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let counter = first.remove();
        self.due_at.remove(&name(&counter));
        Some(counter)
    }
}

fn name(counter: &SharedCounter) -> CounterName {
    (counter.cell.clone(), counter.record)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{
        algorithm::{Algorithm, Parameters, Policy, RegionShare},
        descriptor::Entry,
        quota::{Quota, Unit, Window},
    };

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
            assert_eq!((renewals.due.len(), renewals.due_at.len()), (1, 1));
        }
        renewals.begin(&counter(2));
        renewals.end(counter(2), Some(at(50)));
        assert_eq!((renewals.next(), renewals.take_due(at(49))), (Some(at(50)), None));
        assert_eq!(renewals.take_due(at(100)), Some(counter(2)), "in the order of their ends");
        assert_eq!([renewals.take_due(at(100)), renewals.take_due(at(100))], [Some(counter(1)), None]);
        assert!(renewals.due_at.is_empty() && renewals.in_flight.is_empty());
    }

    #[tokio::test]
    async fn renewals_and_requests_are_bounded_and_a_counter_in_renewal_leaves_others_their_requests() {
        let (mut renewals, now) = (Renewals::default(), Instant::now());
        for number in 0..10_000 {
            assert_eq!(renewals.begin(&counter(number)), Begun::Request);
            renewals.end(counter(number), Some(now));
        }
        assert_eq!(
            (renewals.due.len(), renewals.due_at.len(), renewals.in_flight.len()),
            (MAX_RENEWALS, MAX_RENEWALS, 0)
        );
        let begun =
            (20_000..30_000).filter(|number| renewals.begin(&counter(*number)) == Begun::Request).count();
        assert_eq!(begun, MAX_IN_FLIGHT);
    }
}
