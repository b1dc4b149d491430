//! Hits that wait for a loan of another region.
//!
//! A hit that its share denies registers for its counter before the shortage is reported, so that no end of an ask is missed.
//! It is decided again when a loan arrives, and once more when the ask has ended.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};
use tollgate_core::RecordId;
use tollgate_store::{Decisions, Store, key::CellKey, loans::SharedCounter, request::TagRequest};

use super::Requests;

/// Maximum number of hits that wait; further ones are denied.
const MAX_WAITING: usize = 1_024;

/// Pause before a further decision: a worker caches a denial for 20 ms.
const CACHE_PAUSE: Duration = Duration::from_millis(25);

/// Time for which a hit waits at most.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Loans that hits wait for. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AwaitedLoans(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    hits: usize,
    counters: HashMap<(CellKey, RecordId), (usize, Arc<Asks>)>,
    /// Counters for which no ask follows until a time.
    paused: HashMap<(CellKey, RecordId), Instant>,
}

/// Asks of one counter.
#[derive(Debug, Default)]
struct Asks {
    changed: Notify,
    /// Number of asks that have ended.
    concluded: AtomicU64,
}

impl AwaitedLoans {
    /// Whether hits of a counter wait.
    pub fn is_awaited(&self, counter: &SharedCounter) -> bool {
        self.asks(counter).is_some()
    }

    /// Lets the hits of a counter that wait be decided again: a loan has arrived.
    pub fn arrive(&self, counter: &SharedCounter) {
        if let Some(asks) = self.asks(counter) {
            asks.changed.notify_waiters();
        }
    }

    /// Ends the wait for a counter, after a last decision: no ask is out, and none follows in the pause.
    pub fn conclude(&self, counter: &SharedCounter, pause: Duration) {
        if let Some(asks) = self.asks(counter) {
            if let Some(until) = Instant::now().checked_add(pause).filter(|_| !pause.is_zero()) {
                self.0.lock().pause((counter.cell.clone(), counter.record), until);
            }
            asks.concluded.fetch_add(1, Ordering::Release);
            asks.changed.notify_waiters();
        }
    }

    /// Registers a denied hit to wait for a loan of its counter; `None` if too many wait, or if no ask follows just now.
    pub(super) fn register(&self, counter: (&CellKey, RecordId)) -> Option<AwaitedLoan> {
        let name = (counter.0.clone(), counter.1);
        let mut waiting = self.0.lock();
        if waiting.hits >= MAX_WAITING || waiting.is_paused(&name) {
            return None;
        }
        waiting.hits = waiting.hits.saturating_add(1);
        let (count, asks) = waiting.counters.entry(name.clone()).or_default();
        *count = count.saturating_add(1);
        let asks = Arc::clone(asks);
        let concluded = asks.concluded.load(Ordering::Acquire);
        drop(waiting);
        Some(AwaitedLoan { all: self.clone(), name, asks, concluded })
    }

    fn asks(&self, counter: &SharedCounter) -> Option<Arc<Asks>> {
        let waiting = self.0.lock();
        if waiting.counters.is_empty() {
            return None;
        }
        waiting.counters.get(&(counter.cell.clone(), counter.record)).map(|(_, asks)| Arc::clone(asks))
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

/// Wait of one hit, until it is dropped.
#[derive(Debug)]
pub(super) struct AwaitedLoan {
    all: AwaitedLoans,
    name: (CellKey, RecordId),
    asks: Arc<Asks>,
    /// Number of asks that had ended before.
    concluded: u64,
}

impl AwaitedLoan {
    /// Decides the hit again when a loan arrives, for at most `wait`, and when no ask is out. Returns the last decision.
    pub(super) async fn decide_again(
        self,
        store: &Store,
        calls: &Requests,
        mut decided: Decisions,
        wait: Duration,
    ) -> Decisions {
        let Some(until) = Instant::now().checked_add(wait.min(MAX_WAIT)) else { return decided };
        loop {
            let mut changed = std::pin::pin!(self.asks.changed.notified());
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
                if Instant::now().checked_add(pause).is_none_or(|then| then >= until) {
                    return decided;
                }
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                let left = until.saturating_duration_since(Instant::now());
                decided = store.decide(calls, store.deadline(Some(left))).await;
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
        self.asks.concluded.load(Ordering::Acquire) != self.concluded
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
