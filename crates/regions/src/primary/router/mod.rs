//! Counters that one region, the primary one, decides for all regions: calls on their way to it, and the router of a region,
//! which passes requests about these counters to it, and the others to the region's own store.
//!
//! Only the names of the cells state where a counter is decided ([`CellKey::is_at_primary`]), so that
//! refunds, releases and deferred charges take the same way as the charge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, FutureExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tollgate_shedding::{SheddingPolicy, SheddingReading, UtilizationSums};
use tollgate_store::request::{TagRequest, Verdicts};
use tollgate_store::{
    CounterStore, LateOutcome, LateReply, LoanStep, PendingDecision, StoreError, TimeLimits, key::CellKey,
    loans::SharedCounter, local::OutageCache,
};

/// Maximum number of calls that wait to be sent.
const MAX_WAITING: usize = 4_096;

/// Time for a decision of the primary region: usually a round trip around the globe, and a pause of one of the two
/// instances.
const TIME_LIMITS: TimeLimits =
    TimeLimits { usual: Duration::from_millis(500), longest: Duration::from_secs(10) };

/// The primary region, as the own region has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PrimaryRole {
    /// The region table names no primary region.
    #[default]
    Absent,
    /// Another region.
    Other,
    /// The own region.
    Own,
    /// The own region, once no other region calls the former one.
    Pending,
}

/// A call to be sent to the primary region.
#[derive(Debug)]
pub struct PrimaryCall {
    /// The request, whose counters are all at the primary region.
    pub request: TagRequest,
    /// Time until which its caller waits.
    pub deadline: Instant,
    reply: oneshot::Sender<Result<Verdicts, StoreError>>,
    /// The reply after the deadline, by which the caller corrects what was decided without it.
    late: LateReply,
}

/// Calls to be sent, in their order.
pub(crate) type PrimaryQueue = mpsc::Receiver<PrimaryCall>;

/// Sender of calls to the primary region. Clones share the queue.
#[derive(Clone, Debug)]
pub struct PrimaryCalls {
    role: Arc<AtomicU8>,
    queue: mpsc::Sender<PrimaryCall>,
}

impl PrimaryCall {
    /// Answers the call. A caller whose time is over corrects what was decided meanwhile.
    pub fn answer(self, decision: Result<Verdicts, StoreError>) {
        match self.reply.send(decision) {
            Err(Ok(verdicts)) => self.late.arrived(LateOutcome::Decided(verdicts)),
            Err(Err(error)) if error.charged_nothing() => self.late.arrived(LateOutcome::NotCharged),
            Ok(()) | Err(Err(_)) => {}
        }
    }
}

impl PrimaryCalls {
    /// Returns a sender, and the queue of what it sends.
    pub fn new() -> (Self, PrimaryQueue) {
        let (queue, calls) = mpsc::channel(MAX_WAITING);
        (Self { role: Arc::default(), queue }, calls)
    }

    /// Sets the role of the own region for all later calls.
    pub fn set_role(&self, role: PrimaryRole) {
        self.role.store(role as u8, Ordering::Relaxed);
    }

    /// The role of the own region.
    pub fn role(&self) -> PrimaryRole {
        let roles = [PrimaryRole::Absent, PrimaryRole::Other, PrimaryRole::Own, PrimaryRole::Pending];
        roles.get(usize::from(self.role.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    /// Has the primary region decide a request. Sent at most once.
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Timeout`] without a reply until `deadline`.
    async fn decide(&self, request: &TagRequest, deadline: Instant) -> Result<Verdicts, StoreError> {
        let began = Instant::now();
        match self.role() {
            PrimaryRole::Other => {}
            PrimaryRole::Own | PrimaryRole::Pending => {
                return Err(StoreError::Declined("the primary region is changing".to_owned()));
            }
            PrimaryRole::Absent => {
                return Err(StoreError::Declined("the region table names no primary region".to_owned()));
            }
        }
        if began >= deadline {
            return Err(StoreError::QueueTimeout(Duration::ZERO));
        }
        let ((reply, mut replied), late) = (oneshot::channel(), LateReply::default());
        let call = PrimaryCall { request: request.clone(), deadline, reply, late: late.clone() };
        self.queue.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => {
                StoreError::Unreachable("no service between regions".to_owned())
            }
        })?;
        match timeout_at(deadline, &mut replied).await {
            Ok(decision) => decision
                .unwrap_or_else(|_| Err(StoreError::Disconnected("the call was abandoned".to_owned()))),
            Err(_) => {
                // Replies that are sent from now on are late.
                replied.close();
                replied.try_recv().unwrap_or_else(|_| Err(StoreError::Timeout(began.elapsed(), Some(late))))
            }
        }
    }
}

/// Store of a region that has the primary region decide its counters, and the region's own store all others.
#[derive(Debug)]
pub(crate) struct PrimaryRouter {
    own: Arc<dyn CounterStore>,
    primary: PrimaryCalls,
}

impl PrimaryRouter {
    /// Decides in `own` all counters but those of another primary region.
    pub(crate) fn new(own: Arc<dyn CounterStore>, primary: PrimaryCalls) -> Self {
        Self { own, primary }
    }

    /// Whether another region decides the request.
    fn is_remote(&self, request: &TagRequest) -> bool {
        request.is_at_primary() && self.primary.role() != PrimaryRole::Own
    }
}

impl CounterStore for PrimaryRouter {
    fn decide_by<'a>(&'a self, request: &'a TagRequest, deadline: Option<Instant>) -> PendingDecision<'a> {
        if self.is_remote(request) {
            let deadline = deadline.unwrap_or_else(|| TIME_LIMITS.deadline(None));
            return Either::Right(self.primary.decide(request, deadline).boxed());
        }
        let own = self.own.time_limits().map(|limits| limits.deadline(None));
        self.own.decide_by(request, own.into_iter().chain(deadline).min())
    }

    fn time_limits(&self) -> Option<TimeLimits> {
        Some(TIME_LIMITS)
    }

    fn decides_at_once(&self, request: &TagRequest) -> bool {
        !self.is_remote(request) && self.own.decides_at_once(request)
    }

    fn decide_from_cache(&self, request: &TagRequest) -> Option<Verdicts> {
        if self.is_remote(request) { None } else { self.own.decide_from_cache(request) }
    }

    fn with_loans<'a>(
        &'a self,
        counter: &'a SharedCounter,
        time_limit: Duration,
        step: &'a mut LoanStep<'a>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.own.with_loans(counter, time_limit, step)
    }

    fn outage_cache(&self) -> Option<&OutageCache> {
        self.own.outage_cache()
    }

    fn add_utilization<'a>(
        &'a self,
        key: &'a CellKey,
        policy: &'a SheddingPolicy,
        interval: &'a UtilizationSums,
        time_limit: Duration,
    ) -> BoxFuture<'a, Option<SheddingReading>> {
        self.own.add_utilization(key, policy, interval, time_limit)
    }
}

#[cfg(test)]
mod tests;
