//! The trait of a store of counters, and the handle by which one is used.
//!
//! A new store is a type with [`CounterStore`], and passes the contract suite (`tests/contract/`). One whose decisions are
//! calls to a server has a [`LocalCache`](crate::local::LocalCache) for each server, which saves most calls for counters
//! that are denied or leased.

use std::{fmt, future::Ready, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, Either, FutureExt as _, join_all};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tollgate_core::algorithm::{LastVerdict, Verdict};
use tollgate_core::{RecordId, clock::Timestamp};
use tollgate_runtime::backoff;
use tollgate_shedding::{SheddingPolicy, SheddingReading, UtilizationSums};

use crate::loans::{Change, Loans, SharedCounter, Snapshot};
use crate::request::{Cell, Check, Requests, TagRequest, Verdicts};
use crate::{BackgroundQueue, Decisions, StoreError, after, key::CellKey, local::OutageCache, metrics};

/// A decision that is ready, or the call that brings it. The one that is ready costs no allocation.
pub type PendingDecision<'a> =
    Either<Ready<Result<Verdicts, StoreError>>, BoxFuture<'a, Result<Verdicts, StoreError>>>;

/// A step on the loans of a counter: from the state that a store read to the one that it writes, if any.
pub type LoanStep<'a> = dyn FnMut(&Snapshot) -> Result<Option<Change>, StoreError> + Send + 'a;

/// A store of counters, as one worker uses it.
pub trait CounterStore: fmt::Debug + Send + Sync {
    /// Decides a request in one atomic step, until `deadline`. It is sent at most once, unless nothing was charged.
    fn decide_by<'a>(&'a self, request: &'a TagRequest, deadline: Option<Instant>) -> PendingDecision<'a>;

    /// Time limits of decisions; `None` for a store whose decisions are ready at once: each is then [`Either::Left`].
    fn time_limits(&self) -> Option<TimeLimits>;

    /// Reads a counter with its loans, runs a step, and writes what the step returns, all in one atomic step. If the counter
    /// changed in the meantime, the step runs again, and what it returned before is void.
    fn with_loans<'a>(
        &'a self,
        counter: &'a SharedCounter,
        time_limit: Duration,
        step: &'a mut LoanStep<'a>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Decides a request as [`Self::decide_by`] does, with its charges, if that needs no call to a server.
    fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts>;

    /// Whether [`Self::decide_by`] decides the request at once, without a call.
    fn decides_at_once(&self, _request: &TagRequest) -> bool {
        self.time_limits().is_none()
    }

    /// Replies of the store by which counters are decided while it fails.
    fn outage_cache(&self) -> Option<&OutageCache> {
        None
    }

    /// Adds the utilization that this instance saw in an interval to the sums of all instances under `key`, and returns
    /// these; `None` if it fails, or if the store is of this instance alone.
    fn add_utilization<'a>(
        &'a self,
        _key: &'a CellKey,
        _policy: &'a SheddingPolicy,
        _interval: &'a UtilizationSums,
        _time_limit: Duration,
    ) -> BoxFuture<'a, Option<SheddingReading>> {
        async { None }.boxed()
    }
}

/// Time limits of a store's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Time for a decision whose caller states none.
    pub usual: Duration,
    /// Longest time for a decision.
    pub longest: Duration,
}

impl TimeLimits {
    /// The deadline of a decision that begins now, given the timeout of its caller, if known.
    pub fn deadline(&self, caller_timeout: Option<Duration>) -> Instant {
        after(Instant::now(), caller_timeout.unwrap_or(self.usual).min(self.longest))
    }
}

/// Pauses between attempts to refund, before jitter: they outlast a short outage. Jitter spreads them, so that the
/// refunds held up by an outage do not arrive at once.
const REFUND_RETRY_PAUSES: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// A handle on a store; clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    /// The store itself.
    pub counters: Arc<dyn CounterStore>,
    /// Capacity for refunds.
    pub(crate) background: BackgroundQueue,
}

impl Store {
    /// A handle on `counters`, whose refunds have a queue of their own.
    pub fn new(counters: impl CounterStore + 'static) -> Self {
        Self::with_background(Arc::new(counters), BackgroundQueue::default())
    }

    /// A handle on `counters`, whose refunds wait in `background`.
    pub fn with_background(counters: Arc<dyn CounterStore>, background: BackgroundQueue) -> Self {
        Self { counters, background }
    }

    /// Whether every decision is ready at once.
    pub fn decides_at_once(&self) -> bool {
        self.counters.time_limits().is_none()
    }

    /// Deadline of a decision that begins now, given the timeout of its caller, if known. `None` where decisions take
    /// no time.
    pub fn deadline(&self, caller_timeout: Option<Duration>) -> Option<Instant> {
        self.counters.time_limits().map(|limits| limits.deadline(caller_timeout))
    }

    /// Decides every request until `deadline`, each in one atomic step, all of them in flight together.
    pub async fn decide(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
        match requests {
            [request] => SmallVec::from_buf([self.counters.decide_by(request, deadline).await]),
            requests if self.decides_at_once() => {
                let decide = |request| self.counters.decide_by(request, deadline).now_or_never();
                requests.iter().filter_map(decide).collect()
            }
            requests => {
                let pending = requests.iter().map(|request| self.counters.decide_by(request, deadline));
                join_all(pending).await.into()
            }
        }
    }

    /// Decides every request without a call to a server; [`StoreError::Overloaded`] for those of which that is not possible.
    pub fn decide_from_cache(&self, requests: &[TagRequest]) -> Decisions {
        let decide = |request| self.counters.decide_from_cache(request).ok_or(StoreError::Overloaded);
        requests.iter().map(decide).collect()
    }

    /// Takes the last verdict of a counter that was in use, and the time at which a counter was decided last.
    pub fn take_last_verdict(&self, cell: &CellKey, record: RecordId) -> Option<(LastVerdict, Timestamp)> {
        self.counters.outage_cache()?.last_verdicts.take(cell, record)
    }

    /// The denial of a check that the store did not decide, if its counter has a cached ban.
    pub fn cached_ban(&self, cell: &Cell, check: &Check) -> Option<Verdict> {
        self.counters.outage_cache()?.bans.verdict(cell, check, Instant::now())
    }

    /// Runs a step on the loans of a counter, and stores what it leaves. The step runs again if the counter changes in the
    /// meantime; what it returned before is void.
    ///
    /// # Errors
    /// [`StoreError::Declined`] for a counter that changes too often, others as for a decision. After
    /// [`StoreError::Timeout`] and [`StoreError::Disconnected`] it is unknown whether the step was stored; it may run again
    /// nevertheless, since the ledger shows it.
    pub async fn with_loans<T: Send>(
        &self,
        counter: &SharedCounter,
        time_limit: Duration,
        mut step: impl FnMut(&mut Loans) -> T + Send,
    ) -> Result<T, StoreError> {
        let mut last = None;
        let mut run = |snapshot: &Snapshot| {
            let (result, change) = counter.run(snapshot, &mut step)?;
            last = Some(result);
            Ok(change)
        };
        self.counters.with_loans(counter, time_limit, &mut run).await?;
        last.ok_or(StoreError::MalformedReply)
    }

    /// Executes requests whose outcome has no waiter: refunds. Where a store takes time, a task of its own does so.
    /// Failed requests are retried for some seconds, unless that could refund twice.
    pub fn refund_in_background(&self, requests: Requests) {
        let mut calls = Requests::new();
        for request in requests {
            if self.counters.decides_at_once(&request) {
                let decided = self.counters.decide_by(&request, None).now_or_never();
                metrics::refund(decided.is_some_and(|decision| decision.is_ok()));
            } else {
                calls.push(request);
            }
        }
        if !calls.is_empty() {
            self.spawn_refund(calls);
        }
    }

    /// Executes refunds in a task of its own.
    fn spawn_refund(&self, requests: Requests) {
        // Without a runtime, the process is shutting down.
        let runtime = Handle::try_current().ok();
        match runtime.and_then(|runtime| Some((runtime, self.background.acquire(requests.len())?))) {
            Some((runtime, slot)) => {
                let store = self.clone();
                runtime.spawn(async move {
                    refund(&store, requests).await;
                    drop(slot);
                });
            }
            None => requests.iter().for_each(|_| metrics::refund(false)),
        }
    }
}

/// Executes refunds, and retries those that failed, with growing pauses.
async fn refund(store: &Store, mut requests: Requests) {
    for pause in REFUND_RETRY_PAUSES.into_iter().map(Some).chain([None]) {
        let decisions = store.decide(&requests, None).await;
        let mut failed = Requests::new();
        for (request, decision) in requests.into_iter().zip(decisions) {
            match decision {
                Ok(_) => metrics::refund(true),
                Err(error) if pause.is_some() && is_retryable(&request, &error) => failed.push(request),
                Err(_) => metrics::refund(false),
            }
        }
        requests = failed;
        match pause {
            Some(pause) if !requests.is_empty() => sleep(backoff::around(pause, 50)).await,
            Some(_) | None => return,
        }
    }
}

/// Whether a failed request may be sent again: it had no effect, or is idempotent.
fn is_retryable(request: &TagRequest, error: &StoreError) -> bool {
    error.charged_nothing() || request.checks().all(|check| check.hits.is_idempotent())
}
