//! Hits that wait for a loan of another region.
//!
//! A hit that its share denies registers for its counter before the shortage is reported, so that no end of a loan request
//! is missed. It is decided again when a loan arrives, and once more when the loan request has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::RecordId;
use tollgate_store::{Decisions, Store, key::CellKey, loans::SharedCounter, request::TagRequest};

use super::Requests;

/// Maximum number of hits that wait, and of those of one counter; further ones are denied.
const MAX_WAITING: usize = 1_024;
const MAX_WAITING_FOR_COUNTER: usize = 64;

/// Pause before a further decision: a worker caches a denial for 20 ms.
const CACHE_PAUSE: Duration = Duration::from_millis(25);

/// Shortest time for a further decision. With less, its result might not arrive in time.
const MIN_DECISION_TIME: Duration = Duration::from_millis(20);

/// Time for which a hit waits at most.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Loans that hits wait for. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AwaitedLoans(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    hits: usize,
    counters: HashMap<(CellKey, RecordId), (usize, Arc<LoanRequests>)>,
    /// Counters for which no loan request follows until a time.
    paused: HashMap<(CellKey, RecordId), Instant>,
}

/// Loan requests of one counter.
#[derive(Debug, Default)]
struct LoanRequests {
    changed: Notify,
    /// Number of loan requests that have ended.
    concluded: AtomicU64,
}

impl AwaitedLoans {
    /// Whether hits of a counter wait.
    pub fn is_awaited(&self, counter: &SharedCounter) -> bool {
        self.loan_requests(counter).is_some()
    }

    /// Lets the hits of a counter that wait be decided again: a loan has arrived.
    pub fn arrive(&self, counter: &SharedCounter) {
        if let Some(loan_requests) = self.loan_requests(counter) {
            loan_requests.changed.notify_waiters();
        }
    }

    /// Ends the wait for a counter, after a last decision: no loan request is in flight, and none follows in the
    /// pause.
    pub fn conclude(&self, counter: &SharedCounter, pause: Duration) {
        if let Some(loan_requests) = self.loan_requests(counter) {
            if let Some(until) = Instant::now().checked_add(pause).filter(|_| !pause.is_zero()) {
                self.0.lock().pause((counter.cell.clone(), counter.record), until);
            }
            loan_requests.concluded.fetch_add(1, Ordering::Release);
            loan_requests.changed.notify_waiters();
        }
    }

    /// Registers a denied hit to wait for a loan of its counter; `None` if too many wait, of this counter or of all, or if
    /// no loan request follows just now.
    pub(super) fn register(&self, cell: &CellKey, record: RecordId) -> Option<AwaitedLoan> {
        let name = (cell.clone(), record);
        let mut waiting = self.0.lock();
        if waiting.hits >= MAX_WAITING || waiting.is_paused(&name) {
            return None;
        }
        if waiting.counters.get(&name).is_some_and(|(count, _)| *count >= MAX_WAITING_FOR_COUNTER) {
            return None;
        }
        waiting.hits = waiting.hits.saturating_add(1);
        let (count, loan_requests) = waiting.counters.entry(name.clone()).or_default();
        *count = count.saturating_add(1);
        let loan_requests = Arc::clone(loan_requests);
        let concluded = loan_requests.concluded.load(Ordering::Acquire);
        drop(waiting);
        Some(AwaitedLoan { all: self.clone(), name, loan_requests, concluded })
    }

    fn loan_requests(&self, counter: &SharedCounter) -> Option<Arc<LoanRequests>> {
        let waiting = self.0.lock();
        if waiting.counters.is_empty() {
            return None;
        }
        waiting
            .counters
            .get(&(counter.cell.clone(), counter.record))
            .map(|(_, loan_requests)| Arc::clone(loan_requests))
    }
}

impl Waiting {
    fn pause(&mut self, counter: (CellKey, RecordId), until: Instant) {
        if self.paused.len() >= MAX_WAITING {
            let now = Instant::now();
            self.paused.retain(|_, until| *until > now);
        }
        // Without room, hits wait in vain.
        if self.paused.len() < MAX_WAITING {
            self.paused.insert(counter, until);
        }
    }

    fn is_paused(&mut self, counter: &(CellKey, RecordId)) -> bool {
        let Some(until) = self.paused.get(counter) else { return false };
        let is_paused = *until > Instant::now();
        if !is_paused {
            self.paused.remove(counter);
        }
        is_paused
    }
}

/// Makes decisions within a time.
pub(super) trait Decide: Sync {
    /// Decides calls within `left`.
    fn decide_within(&self, calls: &Requests, left: Duration) -> impl Future<Output = Decisions> + Send;
}

impl Decide for Store {
    async fn decide_within(&self, calls: &Requests, left: Duration) -> Decisions {
        self.decide(calls, self.deadline(Some(left))).await
    }
}

/// Wait of one hit, until it is dropped.
#[derive(Debug)]
pub(super) struct AwaitedLoan {
    all: AwaitedLoans,
    name: (CellKey, RecordId),
    loan_requests: Arc<LoanRequests>,
    /// Number of loan requests that had ended before.
    concluded: u64,
}

impl AwaitedLoan {
    /// Decides the hit again when a loan arrives, `until` a time at most, and when no loan request is in flight. Returns
    /// the last decision. One that fails changes nothing: the hit was denied, and what decides while the store fails might
    /// admit it.
    pub(super) async fn decide_again(
        self,
        store: &impl Decide,
        calls: &Requests,
        mut decided: Decisions,
        until: Instant,
    ) -> Decisions {
        let until = Instant::now().checked_add(MAX_WAIT).map_or(until, |last| until.min(last));
        loop {
            let mut changed = std::pin::pin!(self.loan_requests.changed.notified());
            // From here on, no notification is missed.
            changed.as_mut().enable();
            let mut has_ended = self.has_ended();
            if !has_ended {
                if timeout_at(until, changed).await.is_err() {
                    return decided;
                }
                has_ended = self.has_ended();
            }
            for pause in [Duration::ZERO, CACHE_PAUSE] {
                let needed = pause.saturating_add(MIN_DECISION_TIME);
                if Instant::now().checked_add(needed).is_none_or(|then| then > until) {
                    return decided;
                }
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                let next = store.decide_within(calls, until.saturating_duration_since(Instant::now())).await;
                if next.iter().any(Result::is_err) {
                    return decided;
                }
                decided = next;
                if waiting_hit(calls, &decided).is_none() {
                    return decided;
                }
            }
            if has_ended {
                return decided;
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.loan_requests.concluded.load(Ordering::Acquire) != self.concluded
    }
}

impl Drop for AwaitedLoan {
    fn drop(&mut self) {
        let mut waiting = self.all.0.lock();
        waiting.hits = waiting.hits.saturating_sub(1);
        let is_last = waiting.counters.get_mut(&self.name).is_some_and(|(count, _)| {
            *count = count.saturating_sub(1);
            *count == 0
        });
        if is_last {
            waiting.counters.remove(&self.name);
        }
    }
}

/// The counter of a request with one hit, which a share denies without charging it.
pub(super) fn waiting_hit<'a>(calls: &'a Requests, decided: &Decisions) -> Option<(&'a CellKey, RecordId)> {
    let ([call], [Ok(verdicts)]) = (calls.as_slice(), decided.as_slice()) else { return None };
    let mut checks = TagRequest::checks_with_cells(call);
    let (cell, check) = checks.next()?;
    let (_, verdict) = verdicts.first()?;
    let is_waiting = !verdict.admitted && check.share.is_some();
    (is_waiting && checks.next().is_none()).then_some((&cell.key, check.record))
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::{Charging, RegionShare};
    use tollgate_store::request::Check;

    use super::*;
    use crate::test_prelude::*;

    const RECORD: RecordId = RecordId::alone(Algorithm::FixedWindow);

    fn cell(value: &str) -> CellKey {
        CellKey::open("d", [Entry { key: "k", value }].into_iter())
    }

    /// A call with one hit on a counter that regions share, and its decision.
    fn denied() -> (Requests, Decisions) {
        let quota = Quota { limit: 9, window: Window::of(Unit::Hour) };
        let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
        let share = RegionShare::new(quota, 3);
        let check = Check { share, ..Check::own(RECORD, policy, Hits::ONE) };
        let calls = Requests::from_iter([TagRequest::new(Charging::Independent, cell("v"), check)]);
        (calls, decision(false))
    }

    fn decision(admitted: bool) -> Decisions {
        let verdict = Verdict {
            admitted,
            reset_after: Duration::from_secs(9),
            used: 3,
            ..Verdict::empty(Timestamp::from_micros(1_700_000_000_000_000))
        };
        Decisions::from_iter([Ok([(0, verdict)].into_iter().collect())])
    }

    /// A store that makes the same decision each time, and counts them.
    struct Always(Decisions, AtomicU64);

    impl Decide for Always {
        async fn decide_within(&self, _: &Requests, _: Duration) -> Decisions {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.clone()
        }
    }

    /// The decision on a hit for whose counter a loan request has just ended, and the number of further decisions.
    async fn decided_by(next: Decisions, wait: Duration) -> (Decisions, u64) {
        let (calls, first) = denied();
        let loan = AwaitedLoans::default().register(&cell("v"), RECORD).expect("registered");
        loan.loan_requests.concluded.fetch_add(1, Ordering::Release);
        let store = Always(next, AtomicU64::new(0));
        let until = Instant::now() + wait;
        let decided = loan.decide_again(&store, &calls, first, until).await;
        (decided, store.1.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn the_denial_stays_if_a_further_decision_fails() {
        let wait = Duration::from_secs(1);
        for error in [StoreError::Timeout(wait, None), StoreError::BreakerOpen] {
            let failed = Decisions::from_iter([Err(error)]);
            assert_eq!(decided_by(failed, wait).await, (decision(false), 1));
        }
        assert_eq!(decided_by(decision(true), wait).await, (decision(true), 1));
        assert_eq!(decided_by(decision(false), wait).await, (decision(false), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn no_further_decision_is_made_without_time_for_it() {
        let too_short = MIN_DECISION_TIME - Duration::from_millis(1);
        assert_eq!(decided_by(decision(true), too_short).await, (decision(false), 0));
        assert_eq!(decided_by(decision(true), MIN_DECISION_TIME).await, (decision(true), 1));
        let of_one = CACHE_PAUSE + too_short;
        assert_eq!(decided_by(decision(false), of_one).await, (decision(false), 1));
    }

    #[tokio::test]
    async fn one_counter_takes_a_part_of_the_places_only() {
        let all = AwaitedLoans::default();
        let register = |value: &str| all.register(&cell(value), RECORD);
        let busy: Vec<_> = std::iter::from_fn(|| register("busy")).collect();
        assert_eq!(busy.len(), MAX_WAITING_FOR_COUNTER);
        let values: Vec<_> = (0..MAX_WAITING).map(|at| at.to_string()).collect();
        let others: Vec<_> = values.iter().map_while(|value| register(value)).collect();
        assert_eq!(others.len(), MAX_WAITING - MAX_WAITING_FOR_COUNTER);
        drop(others);
        assert!(register("busy").is_none());
        drop(busy);
        assert!(register("busy").is_some());
    }
}
