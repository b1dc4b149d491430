//! Counters that one region, the primary one, decides for all regions: calls on their way to it, and the router of a region,
//! which passes requests about these counters to it, and the others to the region's own store.
//!
//! Only the names of the cells state where a counter is decided ([`CellKey::is_at_primary`](crate::key::CellKey)), so that
//! refunds, releases and deferred charges take the same way as the charge.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    BackgroundQueue, Decisions, LateOutcome, LateReply, Store, StoreError, after,
    request::{Requests, TagRequest, Verdicts},
};

/// Maximum number of calls that wait to be sent.
const MAX_WAITING: usize = 4_096;

/// Maximum number of calls whose replies are awaited beyond their deadline, to correct what was decided without them.
const MAX_LATE: usize = 1_024;

/// Time for a decision of the primary region where the caller states none: a round trip around the globe, and a pause of
/// one of the two instances.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

/// Longest time for a decision of the primary region.
const MAX_TIMEOUT: Duration = Duration::from_secs(10);

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
}

/// Calls to be sent, in their order.
pub type PrimaryQueue = mpsc::Receiver<PrimaryCall>;

/// Sender of calls to the primary region. Clones share the queue.
#[derive(Clone, Debug)]
pub struct PrimaryCalls {
    role: Arc<AtomicU8>,
    queue: mpsc::Sender<PrimaryCall>,
    /// Places for replies that are awaited beyond their deadline.
    late: Arc<Semaphore>,
}

impl PrimaryCall {
    /// Answers the call. A caller whose time is over corrects what was decided meanwhile.
    pub fn answer(self, result: Result<Verdicts, StoreError>) {
        // A caller that was dropped needs no reply.
        let _ = self.reply.send(result);
    }
}

impl PrimaryCalls {
    /// Returns a sender, and the queue of what it sends.
    pub fn new() -> (Self, PrimaryQueue) {
        let (queue, calls) = mpsc::channel(MAX_WAITING);
        (Self { role: Arc::default(), queue, late: Arc::new(Semaphore::new(MAX_LATE)) }, calls)
    }

    /// Sets the role of the own region for all later calls.
    pub fn set_role(&self, role: PrimaryRole) {
        self.role.store(role as u8, Ordering::Relaxed);
    }

    /// The role of the own region.
    pub fn role(&self) -> PrimaryRole {
        let role = self.role.load(Ordering::Relaxed);
        let known = [PrimaryRole::Other, PrimaryRole::Own, PrimaryRole::Pending];
        known.into_iter().find(|known| *known as u8 == role).unwrap_or_default()
    }

    /// Has the primary region decide a request. Sent at most once.
    ///
    /// # Errors
    /// [`StoreError`]: [`StoreError::Timeout`] without a reply until `deadline`.
    pub(super) async fn decide(
        &self,
        request: &TagRequest,
        deadline: Instant,
    ) -> Result<Verdicts, StoreError> {
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
        let (reply, mut replied) = oneshot::channel();
        self.queue.try_send(PrimaryCall { request: request.clone(), deadline, reply }).map_err(|error| {
            match error {
                mpsc::error::TrySendError::Full(_) => StoreError::Overloaded,
                mpsc::error::TrySendError::Closed(_) => {
                    StoreError::Unreachable("no service between regions".to_owned())
                }
            }
        })?;
        match timeout_at(deadline, &mut replied).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreError::Disconnected("the call was abandoned".to_owned())),
            Err(_) => Err(StoreError::Timeout(began.elapsed(), self.await_late(replied))),
        }
    }

    /// Waits for a reply after the deadline, in a task of its own. `None` if too many do.
    fn await_late(&self, replied: oneshot::Receiver<Result<Verdicts, StoreError>>) -> Option<LateReply> {
        let runtime = Handle::try_current().ok()?;
        let place = Arc::clone(&self.late).try_acquire_owned().ok()?;
        let late = LateReply::default();
        let awaited = late.clone();
        runtime.spawn(async move {
            match replied.await {
                Ok(Ok(verdicts)) => awaited.arrived(LateOutcome::Decided(verdicts)),
                Ok(Err(error)) if error.charged_nothing() => awaited.arrived(LateOutcome::NotCharged),
                Ok(Err(_)) | Err(_) => {}
            }
            drop(place);
        });
        Some(late)
    }
}

/// Whether another region decides, by request.
type Remote = SmallVec<[bool; 4]>;

/// Router between a region's own store and the primary region. Clones are handles on the same counters.
#[derive(Clone, Debug)]
pub struct PrimaryRouter(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    own: Store,
    primary: PrimaryCalls,
    /// Refunds that are sent to the primary region.
    background: BackgroundQueue,
}

impl PrimaryRouter {
    /// Decides in `own` all counters but those of another primary region.
    pub fn new(own: Store, primary: PrimaryCalls, background: BackgroundQueue) -> Self {
        Self(Arc::new(Parts { own, primary, background }))
    }

    /// The region's own store.
    pub fn own(&self) -> &Store {
        &self.0.own
    }

    pub(crate) fn background(&self) -> &BackgroundQueue {
        &self.0.background
    }

    /// Whether another region decides the request.
    fn is_remote(&self, request: &TagRequest) -> bool {
        request.is_at_primary() && self.0.primary.role() != PrimaryRole::Own
    }

    /// Deadline of a decision that begins now, given the timeout of its caller, if known: that of the primary region's. The
    /// own store has its own, if that is earlier.
    pub(crate) fn deadline(caller_timeout: Option<Duration>) -> Instant {
        after(Instant::now(), caller_timeout.unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT))
    }

    /// Decides every request, as [`Store::decide`].
    pub(crate) async fn decide(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
        // Once, since the role may change meanwhile.
        let remote: Remote = if requests.iter().any(TagRequest::is_at_primary) {
            requests.iter().map(|request| self.is_remote(request)).collect()
        } else {
            Remote::new()
        };
        if remote.contains(&true) {
            self.decide_both(requests, &remote, deadline).await
        } else {
            self.decide_here(requests, deadline).await
        }
    }

    /// Decides requests in the own store.
    async fn decide_here(&self, requests: &[TagRequest], deadline: Option<Instant>) -> Decisions {
        let own = self.own();
        let own_deadline = own.deadline(None);
        let earlier = deadline.and_then(|deadline| own_deadline.map(|own| own.min(deadline)));
        own.decide_here(requests, earlier.or(own_deadline)).await
    }

    /// Decides requests here and, as `remote` states, at the primary region, at the same time.
    async fn decide_both(
        &self,
        requests: &[TagRequest],
        remote: &[bool],
        deadline: Option<Instant>,
    ) -> Decisions {
        let deadline = deadline.unwrap_or_else(|| Self::deadline(None));
        let of = |is_remote: bool| {
            let requests = requests.iter().zip(remote).filter(move |(_, remote)| **remote == is_remote);
            requests.map(|(request, _)| request)
        };
        let here: Requests = of(false).cloned().collect();
        let there = join_all(of(true).map(|request| self.0.primary.decide(request, deadline)));
        let here = async {
            if here.is_empty() { Decisions::new() } else { self.decide_here(&here, Some(deadline)).await }
        };
        let (there, here) = join(there, here).await;
        let (mut there, mut here) = (there.into_iter(), here.into_iter());
        let decision = |is_remote: &bool| if *is_remote { there.next() } else { here.next() };
        // There is a decision for each.
        remote
            .iter()
            .map(decision)
            .map(|decision| decision.unwrap_or(Err(StoreError::MalformedReply)))
            .collect()
    }

    /// Decides from the cache of the own store.
    pub(crate) fn decide_from_cache(&self, requests: &[TagRequest]) -> Decisions {
        let of = |request: &TagRequest| {
            if self.is_remote(request) {
                Err(StoreError::Overloaded)
            } else {
                self.own().decide_one_from_cache(request)
            }
        };
        requests.iter().map(of).collect()
    }

    /// The requests that the own store decides, and those of the primary region.
    pub(crate) fn split(&self, requests: Requests) -> (Requests, Requests) {
        requests.into_iter().partition(|request| !self.is_remote(request))
    }
}

#[cfg(test)]
mod tests;
