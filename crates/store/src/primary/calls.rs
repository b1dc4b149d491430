//! Calls on their way to the primary region.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    LateOutcome, LateReply, StoreError,
    request::{TagRequest, Verdicts},
};

/// Maximum number of calls that wait to be sent.
const MAX_WAITING: usize = 4_096;

/// Maximum number of calls whose replies are awaited beyond their deadline, to correct what was decided without them.
const MAX_LATE: usize = 1_024;

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
