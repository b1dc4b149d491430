//! Counters for which asks are out, and those whose loans have to be prolonged.
//!
//! Each counter is in one of the two at most once, however often it is short. Loans are prolonged in the order in which
//! they end.

use std::collections::{BTreeMap, HashMap, HashSet};

use tokio::time::Instant;
use tollgate_core::RecordId;
use tollgate_store::{key::CellKey, loans::SharedCounter};

/// Maximum number of counters whose loans are prolonged; the shares of others fall at the end of their loans, and they ask
/// again.
const MAX_RENEWALS: usize = 4_096;

/// Maximum number of counters for which asks are out.
const MAX_ASKING: usize = 1_024;

type CounterName = (CellKey, RecordId);

/// Counters of which this instance asks.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    asking: HashSet<CounterName>,
    due: BTreeMap<(Instant, u64), SharedCounter>,
    due_at: HashMap<CounterName, (Instant, u64)>,
    /// Number of the last renewal, so that several of one time differ.
    last: u64,
}

/// Outcome of the attempt to begin an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// The ask begins.
    Ask,
    /// One of the counter is out.
    IsOut,
    /// Too many are out; shares stay.
    Full,
}

impl Renewals {
    /// Begins an ask of a counter, which takes the place of its renewal, if none is out and there is room.
    pub(super) fn begin(&mut self, counter: &SharedCounter) -> Begun {
        let name = name(counter);
        if self.asking.contains(&name) {
            return Begun::IsOut;
        }
        if self.asking.len() >= MAX_ASKING {
            return Begun::Full;
        }
        if let Some(at) = self.due_at.remove(&name) {
            self.due.remove(&at);
        }
        self.asking.insert(name);
        Begun::Ask
    }

    /// Ends an ask of a counter, whose loans have to be prolonged at a time, if any.
    pub(super) fn end(&mut self, counter: SharedCounter, due: Option<Instant>) {
        let name = name(&counter);
        self.asking.remove(&name);
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
    async fn a_counter_asks_once_at_a_time_and_is_prolonged_once_however_often_it_is_short() {
        let (mut renewals, now) = (Renewals::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        for round in 1..100 {
            assert_eq!(renewals.begin(&counter(1)), Begun::Ask);
            assert_eq!(renewals.begin(&counter(1)), Begun::IsOut);
            renewals.end(counter(1), Some(at(round)));
            assert_eq!((renewals.due.len(), renewals.due_at.len()), (1, 1));
        }
        renewals.begin(&counter(2));
        renewals.end(counter(2), Some(at(50)));
        assert_eq!((renewals.next(), renewals.take_due(at(49))), (Some(at(50)), None));
        assert_eq!(renewals.take_due(at(100)), Some(counter(2)), "in the order of their ends");
        assert_eq!([renewals.take_due(at(100)), renewals.take_due(at(100))], [Some(counter(1)), None]);
        assert!(renewals.due_at.is_empty() && renewals.asking.is_empty());
    }

    #[tokio::test]
    async fn renewals_and_asks_are_bounded_and_a_counter_in_renewal_leaves_others_their_asks() {
        let (mut renewals, now) = (Renewals::default(), Instant::now());
        for number in 0..10_000 {
            assert_eq!(renewals.begin(&counter(number)), Begun::Ask);
            renewals.end(counter(number), Some(now));
        }
        assert_eq!(
            (renewals.due.len(), renewals.due_at.len(), renewals.asking.len()),
            (MAX_RENEWALS, MAX_RENEWALS, 0)
        );
        let begun = (20_000..30_000).filter(|number| renewals.begin(&counter(*number)) == Begun::Ask).count();
        assert_eq!(begun, MAX_ASKING);
    }
}
