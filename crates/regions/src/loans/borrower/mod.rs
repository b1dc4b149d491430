//! Requests loans from other regions.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio::{select, sync::Notify};
use tollgate_core::RecordId;
use tollgate_core::clock::micros;
use tollgate_limiter::Replicas;
use tollgate_proto::tollgate::region::v1::counter_reply::Result as Outcome;
use tollgate_store::loans::regions::policy::{self, Demand};
use tollgate_store::loans::regions::{message::LoanRequest, protocol, table::RegionName};
use tollgate_store::loans::{Loans, ShareWatch, SharedCounter};
use tollgate_store::{Store, key::CellKey};

use super::LEDGER_TIMEOUT;
use crate::{Regions, announcements::OWN_LOAN_REQUESTS, loans, metrics};

/// Time for which hits do not wait while no other region is connected.
const UNCONNECTED_PAUSE: Duration = Duration::from_millis(200);

/// Interval of reading whether the loan request of another instance has ended.
const CLAIM_INTERVAL: Duration = Duration::from_millis(25);

/// Time limit of the replies to a loan request: those of the nearest regions take effect when they arrive.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests loans for counters whose share does not suffice.
#[derive(Clone, Debug)]
pub(crate) struct Borrower {
    pub(super) regions: Regions,
    pub(super) store: Store,
    pub(super) watch: ShareWatch,
    replicas: Replicas,
    renewals: Arc<Mutex<Renewals>>,
    /// Notified at the end of a loan request, after which loans may have to be prolonged sooner.
    ended: Arc<Notify>,
}

/// Loan requests of one counter.
enum Prepared {
    /// Requests to be sent.
    Requests { requests: Vec<(RegionName, LoanRequest)>, wanted: u32 },
    /// A request of another instance is in flight, until a time at most.
    Claimed { until: Duration },
    /// The share suffices, or the last request brought too little just now, so that none follows in the pause.
    Nothing { pause: Duration },
}

impl Borrower {
    pub(crate) fn new(regions: Regions, store: Store, watch: ShareWatch, replicas: Replicas) -> Self {
        Self { regions, store, watch, replicas, renewals: Arc::default(), ended: Arc::default() }
    }

    /// Takes shortages as they come, and prolongs loans before they end. Never completes.
    pub(crate) async fn run(self) -> Infallible {
        loop {
            let due = self.renewals.lock().next();
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            select! {
                shortage = self.watch.shortage() => {
                    self.watch.set_instances(self.replicas.known());
                    self.begin(shortage.counter, shortage.denied, Some(shortage.demand));
                }
                () = is_due => {
                    let counter = self.renewals.lock().take_due(Instant::now());
                    counter.into_iter().for_each(|counter| self.begin(counter, 0, None));
                }
                () = self.ended.notified() => {}
            }
        }
    }

    /// Requests a loan for a counter in a task, unless a request of this instance is in flight, whose end its hits wait for.
    fn begin(&self, counter: SharedCounter, denied: u32, demand: Option<Demand>) {
        match self.renewals.lock().begin(&counter) {
            Begun::Request => {}
            Begun::InFlight => return,
            Begun::Full => return self.regions.shares.awaited.conclude(&counter, Duration::ZERO),
        }
        let borrower = self.clone();
        tokio::spawn(async move {
            let is_renewal = demand.is_none();
            let demand = demand.unwrap_or_else(|| borrower.watch.demand(&counter.cell, counter.record));
            let pause = borrower.borrow(&counter, denied, &demand).await;
            // Loans that are not in demand any more end.
            let renewal = match pause {
                Some(_) if is_renewal => None,
                _ => borrower.until_renewal(&counter).await,
            };
            let due = renewal.map(|renewal| Instant::now() + renewal);
            borrower.renewals.lock().end(counter.clone(), due);
            // After its end, so that a hit that begins to wait now leads to a further request.
            borrower.regions.shares.awaited.conclude(&counter, pause.unwrap_or_default());
            borrower.ended.notify_one();
        });
    }

    /// Requests a loan for a counter. If it sends no request, returns the time for which none follows.
    async fn borrow(&self, counter: &SharedCounter, denied: u32, demand: &Demand) -> Option<Duration> {
        let peers = self.regions.lenders();
        if peers.is_empty() {
            return Some(UNCONNECTED_PAUSE);
        }
        let round_trip = self.regions.longest_round_trip();
        let step = |loans: &mut Loans| prepare(loans, denied, demand, &peers, round_trip);
        match self.store.with_loans(counter, LEDGER_TIMEOUT, step).await {
            Ok(Prepared::Requests { requests, wanted }) => {
                self.send(counter, requests, wanted).await;
                None
            }
            Ok(Prepared::Claimed { until }) => {
                self.await_claim(counter, until).await;
                Some(Duration::ZERO)
            }
            Ok(Prepared::Nothing { pause }) => Some(pause),
            Err(_) => Some(Duration::ZERO),
        }
    }

    /// Waits until the loan request of another instance of the region has ended, for hits that wait for its loan.
    async fn await_claim(&self, counter: &SharedCounter, until: Duration) {
        let end = Instant::now() + until.min(REPLY_TIMEOUT);
        while Instant::now() < end && self.regions.shares.awaited.is_awaited(counter) {
            sleep(CLAIM_INTERVAL).await;
            let step = |loans: &mut Loans| {
                let is_in_flight =
                    loans.ledger.has_outstanding_request() && !policy::may_request(&loans.ledger, loans.now);
                (is_in_flight, loans.ledger.effective(&loans.terms, loans.now.label) > loans.used)
            };
            match self.store.with_loans(counter, LEDGER_TIMEOUT, step).await {
                Ok((true, false)) => {}
                _ => return,
            }
        }
    }

    /// Time until the loans of a counter have to be prolonged, if they have to be.
    async fn until_renewal(&self, counter: &SharedCounter) -> Option<Duration> {
        let step = |loans: &mut Loans| {
            let Loans { ledger, terms, now, .. } = loans;
            policy::until_renewal(ledger, terms, *now)
        };
        let micros = self.store.with_loans(counter, LEDGER_TIMEOUT, step).await.ok()??;
        Some(Duration::from_micros(micros.clamp(100_000, 60_000_000)))
    }

    /// Sends loan requests, and takes the replies.
    pub(super) async fn send(
        &self,
        counter: &SharedCounter,
        requests: Vec<(RegionName, LoanRequest)>,
        wanted: u32,
    ) {
        let exchanges = requests.iter().map(|(peer, request)| self.exchange(counter, peer, request));
        let gained = join_all(exchanges).await.into_iter().fold(0, u32::saturating_add);
        let step = |loans: &mut Loans| policy::conclude(&mut loans.ledger, loans.now, wanted, gained);
        // Without it the claim ends by itself.
        let _ = self.store.with_loans(counter, LEDGER_TIMEOUT, step).await;
    }

    /// Requests a loan from one region, and returns the amount gained.
    async fn exchange(&self, counter: &SharedCounter, peer: &RegionName, request: &LoanRequest) -> u32 {
        let started = Instant::now();
        let message = loans::request_of(counter, request);
        let receiver = match self.regions.admits(peer.as_str(), OWN_LOAN_REQUESTS, started.into()) {
            true => self.regions.request_loan(peer.as_str(), message),
            false => None,
        };
        let reply = match receiver {
            Some(receiver) => timeout(REPLY_TIMEOUT, receiver).await.ok().and_then(Result::ok),
            None => None,
        };
        let Some(message) = reply else {
            metrics::loan_requested(peer.as_str(), "timeout", 0, started.elapsed());
            return 0;
        };
        let (result, gained) = match loans::read_reply(&message) {
            None if message.result() == Outcome::Generation => ("generation", 0),
            None => ("refused", 0),
            Some(reply) => {
                let step = |loans: &mut Loans| {
                    let usage = loans.usage(0);
                    let Loans { ledger, terms, now, .. } = &mut *loans;
                    let taken = protocol::take(ledger, terms, *now, usage, peer, &reply).ok()?;
                    loans.full_at = taken.full_at;
                    Some(taken.gained)
                };
                match self.store.with_loans(counter, LEDGER_TIMEOUT, step).await.ok().flatten() {
                    Some(gained @ 1..) if gained >= request.want => ("granted", gained),
                    Some(gained @ 1..) => ("part", gained),
                    Some(0) | None => ("refused", 0),
                }
            }
        };
        if gained > 0 {
            self.regions.shares.awaited.arrive(counter);
        }
        metrics::loan_requested(peer.as_str(), result, gained, started.elapsed());
        gained
    }
}

/// Prepares the loan requests of a counter, unless one is in flight, or its share suffices after all.
fn prepare(
    loans: &mut Loans,
    denied: u32,
    demand: &Demand,
    peers: &[RegionName],
    round_trip: Duration,
) -> Prepared {
    let usage = loans.usage(0);
    let Loans { ledger, terms, now, used, .. } = &mut *loans;
    // A loan is prolonged even in the pause after a request that brought too little.
    let renews = policy::must_renew(ledger, terms, *now);
    if !renews && !policy::may_request(ledger, *now) {
        let until = Duration::from_micros(ledger.claim_until.saturating_sub(now.micros));
        let is_claimed = ledger.has_outstanding_request();
        return if is_claimed { Prepared::Claimed { until } } else { Prepared::Nothing { pause: until } };
    }
    let effective = ledger.effective(terms, now.label);
    let lacking = policy::shortage(terms, *now, effective, *used, denied, demand);
    let target = match lacking {
        Some(lacking) => effective.saturating_add(lacking),
        None if renews => policy::range(terms, *now, *used, demand).target,
        None => return Prepared::Nothing { pause: Duration::ZERO },
    };
    let shares = policy::shares(ledger, terms, *now, target, peers.iter());
    if shares.is_empty() {
        return Prepared::Nothing { pause: Duration::ZERO };
    }
    let (requests, full_at) = protocol::request_loans(ledger, terms, *now, usage, &shares);
    policy::claim(ledger, *now, micros(round_trip));
    loans.full_at = full_at;
    Prepared::Requests { requests, wanted: lacking.unwrap_or(0) }
}

/// Maximum number of counters whose loans are prolonged; the shares of others fall at the end of their loans, and they
/// request loans again.
const MAX_RENEWALS: usize = 4_096;

/// Maximum number of counters for which loan requests are in flight.
const MAX_IN_FLIGHT: usize = 1_024;

type CounterName = (CellKey, RecordId);

/// Counters for which this instance requests loans.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    due: BTreeMap<(Instant, u64), SharedCounter>,
    /// The place in `due` of each counter; `None` while a request is in flight.
    places: HashMap<CounterName, Option<(Instant, u64)>>,
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
        let (name, in_flight) = (name(counter), self.places.len() - self.due.len());
        match self.places.get(&name) {
            Some(None) => return Begun::InFlight,
            _ if in_flight >= MAX_IN_FLIGHT => return Begun::Full,
            Some(Some(at)) => _ = self.due.remove(at),
            None => {}
        }
        self.places.insert(name, None);
        Begun::Request
    }

    /// Ends a loan request of a counter, whose loans have to be prolonged at a time, if any.
    pub(super) fn end(&mut self, counter: SharedCounter, due: Option<Instant>) {
        let name = name(&counter);
        self.places.remove(&name);
        let Some(due) = due.filter(|_| self.due.len() < MAX_RENEWALS) else { return };
        self.last = self.last.wrapping_add(1);
        self.places.insert(name, Some((due, self.last)));
        self.due.insert((due, self.last), counter);
    }

    /// When the next loans have to be prolonged.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|(due, _)| *due)
    }

    /// Takes a counter whose loans have to be prolonged at `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<SharedCounter> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let counter = first.remove();
        self.places.remove(&name(&counter));
        Some(counter)
    }
}

fn name(counter: &SharedCounter) -> CounterName {
    (counter.cell.clone(), counter.record)
}
