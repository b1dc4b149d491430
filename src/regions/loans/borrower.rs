//! Asks for a part of the shares of other regions.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tollgate_core::clock::Clock;
use tollgate_limiter::Replicas;
use tollgate_store::{
    Store,
    loans::{
        Loans, ShareWatch, SharedCounter,
        regions::{
            message::Ask,
            policy::{self, AskBudget, Demand},
            protocol,
            table::RegionName,
        },
    },
};

use super::{LEDGER_TIMEOUT, wire};
use crate::regions::{
    Regions,
    metrics::{self, AskResult},
};

/// Maximum number of counters for which asks are out, or whose loans are to be prolonged.
const MAX_ASKING: usize = 1_024;

/// Time limit of the replies to an ask: those of the nearest regions take effect when they arrive.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks for counters whose share does not suffice.
#[derive(Clone, Debug)]
pub(in crate::regions) struct Borrower {
    regions: Regions,
    store: Store,
    watch: ShareWatch,
    replicas: Replicas,
    budget: Arc<Mutex<AskBudget>>,
}

/// Asks of one counter.
struct Asked {
    asks: Vec<(RegionName, Ask)>,
    wanted: u32,
}

impl Borrower {
    pub(in crate::regions) fn new(
        regions: Regions,
        store: Store,
        watch: ShareWatch,
        replicas: Replicas,
    ) -> Self {
        let budget = Arc::new(Mutex::new(AskBudget::new(Clock::System.now().as_micros())));
        Self { regions, store, watch, replicas, budget }
    }

    /// Takes shortages as they come. Never completes.
    pub(in crate::regions) async fn run(self) -> Infallible {
        let places = Arc::new(Semaphore::new(MAX_ASKING));
        loop {
            let shortage = self.watch.shortage().await;
            self.watch.set_instances(self.replicas.known());
            // With too many asks out, shares stand.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let borrower = self.clone();
            tokio::spawn(async move {
                borrower.borrow(&shortage.counter, shortage.denied, shortage.demand).await;
                drop(place);
            });
        }
    }

    /// Asks for a counter, and again before its loans end, as long as it is in demand.
    async fn borrow(&self, counter: &SharedCounter, mut denied: u32, mut demand: Demand) {
        loop {
            let peers = self.regions.lenders();
            if peers.is_empty() {
                return;
            }
            let round_trip = self.regions.longest_round_trip();
            let step = |loans: &mut Loans| prepare(loans, (denied, &demand), &peers, round_trip);
            let asked = self.store.with_loans(counter, LEDGER_TIMEOUT, step).await;
            let Ok(Some(Asked { asks, wanted })) = asked else { return };
            self.send(counter, asks, wanted).await;
            let Some(pause) = self.until_renewal(counter).await else { return };
            sleep(pause).await;
            (denied, demand) = (0, self.watch.demand(&counter.cell, counter.record));
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

    /// Sends asks, and takes the replies.
    pub(super) async fn send(&self, counter: &SharedCounter, asks: Vec<(RegionName, Ask)>, wanted: u32) {
        let exchanges = asks.iter().map(|(peer, ask)| self.exchange(counter, peer, ask));
        let gained = join_all(exchanges).await.into_iter().fold(0, u32::saturating_add);
        let step = |loans: &mut Loans| policy::conclude(&mut loans.ledger, loans.now, wanted, gained);
        // Without it the claim ends by itself.
        let _ = self.store.with_loans(counter, LEDGER_TIMEOUT, step).await;
    }

    /// Asks one region, and returns the amount gained.
    async fn exchange(&self, counter: &SharedCounter, peer: &RegionName, ask: &Ask) -> u32 {
        let started = Instant::now();
        let is_within_budget = self.budget.lock().take(Clock::System.now().as_micros());
        let message = wire::ask_of(counter, ask);
        let receiver = if is_within_budget { self.regions.ask(peer.as_str(), message) } else { None };
        let reply = match receiver {
            Some(receiver) => timeout(REPLY_TIMEOUT, receiver).await.ok().and_then(Result::ok),
            None => None,
        };
        let Some(message) = reply else {
            metrics::asked(peer.as_str(), AskResult::Timeout, 0, started.elapsed());
            return 0;
        };
        let (result, gained) = match wire::read_reply(&message) {
            None => (AskResult::of_refusal(message.result()), 0),
            Some(reply) => {
                let step = |loans: &mut Loans| {
                    let usage = loans.usage(0);
                    let Loans { ledger, terms, now, .. } = &mut *loans;
                    let taken = protocol::take(ledger, terms, *now, usage, peer, &reply).ok()?;
                    loans.full_at = taken.full_at;
                    Some(taken.gained)
                };
                match self.store.with_loans(counter, LEDGER_TIMEOUT, step).await.ok().flatten() {
                    Some(gained) if gained >= ask.want => (AskResult::Granted, gained),
                    Some(gained @ 1..) => (AskResult::Part, gained),
                    Some(0) | None => (AskResult::Refused, 0),
                }
            }
        };
        metrics::asked(peer.as_str(), result, gained, started.elapsed());
        gained
    }
}

/// Prepares the asks of a counter, unless one is out, or its share suffices after all.
fn prepare(
    loans: &mut Loans,
    (denied, demand): (u32, &Demand),
    peers: &[RegionName],
    round_trip: Duration,
) -> Option<Asked> {
    let usage = loans.usage(0);
    let Loans { ledger, terms, now, used, .. } = &mut *loans;
    // A loan is prolonged even in the pause after an ask that brought too little.
    let renews = policy::must_renew(ledger, terms, *now);
    if !renews && !policy::may_ask(ledger, *now) {
        return None;
    }
    let effective = ledger.effective(terms, now.label);
    let lacking = policy::shortage(terms, *now, effective, *used, denied, demand);
    let target = match lacking {
        Some(lacking) => effective.saturating_add(lacking),
        None if renews => policy::range(terms, *now, *used, demand).target,
        None => return None,
    };
    let shares = policy::shares(ledger, terms, *now, target, peers.iter());
    if shares.is_empty() {
        return None;
    }
    let (asks, full_at) = protocol::ask(ledger, terms, *now, usage, &shares);
    policy::claim(ledger, *now, u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX));
    loans.full_at = full_at;
    Some(Asked { asks, wanted: lacking.unwrap_or(0) })
}
