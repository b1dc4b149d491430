//! Getting calls to one server together: what asks at about the same time travels in one write.
//!
//! A call waits in a `queue` while others are under way, and goes out with all that came meanwhile. Calls that ask the
//! same of the same counters are one *run* there: the script makes the call so many times in a row, and each caller
//! gets the verdict of its turn. So a busy counter costs Redis one call for each round trip, whatever its load.
//!
//! What is known of counters (`local`) saves calls altogether; `leftover` gives back what it does not need. A task, the
//! `driver`, sends, and hands the answers out (`landing`). It also keeps the callers' deadlines, all by one timer: a
//! timer for each request would cost more than all the rest of this.
//!
//! While a server is silent (`breaker`) or there is no connection, nothing is queued: calls fail at once, until the
//! server is heard of again (`health`).

mod breaker;
mod driver;
mod group;
mod responses;
mod return_unused;
mod latency_estimate;
mod queue;

use std::{
    fmt, iter,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{Cmd, Value};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use self::{driver::Driver, queue::Queue};
use super::{
    ScriptClock,
    connection::{Connection, SendError},
    local::LocalCache,
    script::{self, Run},
    target::Target,
};
use crate::{
    self as store, BackgroundQueue,
    redis::metrics,
    request::{TagRequest, Verdicts},
};

/// What all calls of a store have in common.
#[derive(Clone, Debug)]
pub(super) struct RequestOptions {
    /// What goes before every key.
    pub(super) key_prefix: Arc<[u8]>,
    /// How many calls one command may have: one where keys must be of one slot.
    pub(super) requests_per_command: usize,
    /// How long a decision may take.
    pub(super) timeout: Duration,
    /// Turns for calls that nobody waits for.
    pub(super) background: BackgroundQueue,
}

impl RequestOptions {
    /// The command that decides runs, and nothing else.
    pub(super) fn command<'a>(&self, runs: impl Iterator<Item = Run<'a>> + Clone, clock: ScriptClock) -> Cmd {
        script::command(&self.key_prefix, runs, clock)
    }

    /// What a command was answered that decides one call, once.
    pub(super) fn read(request: &TagRequest, response: Value) -> DecisionResult {
        let mut outcomes =
            script::read_replies(iter::once(Run::once(request)), response).unwrap_or_default().into_iter();
        match outcomes.next() {
            Some(Ok(outcome)) => outcome.verdicts.into_iter().next().ok_or(SendError::MalformedReply),
            Some(Err(error)) => Err(SendError::Failed(error)),
            None => Err(SendError::MalformedReply),
        }
    }
}

/// A call with what else decides about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submission<'a> {
    pub(super) request: &'a TagRequest,
    pub(super) clock: ScriptClock,
    pub(super) made_at: Instant,
    /// When its caller no longer waits.
    pub(super) deadline: Instant,
}

type DecisionResult = Result<Verdicts, SendError>;

/// A handle on the way to one server; clones share it. Its tasks end when the last one is gone.
#[derive(Clone)]
pub(super) struct Batcher {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    connection: Connection,
    local: Arc<LocalCache>,
}

/// What callers share with the driver.
struct Shared {
    queue: Mutex<Queue>,
    /// Tells the driver that something waits, or that it may end.
    wakeup: Notify,
    is_closed: AtomicBool,
}

impl metrics::Queues for Shared {
    fn waiting(&self) -> (usize, usize) {
        self.queue.lock().waiting()
    }
}

impl fmt::Debug for Batcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batcher")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.wakeup.notify_one();
        self.local.wakeup.notify_one();
    }
}

impl Batcher {
    /// Connects in the background, and stays connected.
    pub(super) fn open(target: Target, options: RequestOptions) -> Self {
        let server = target.to_string();
        let connection = Connection::open(target);
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wakeup: Notify::new(),
            is_closed: AtomicBool::new(false),
        });
        let queues: Weak<Shared> = Arc::downgrade(&shared);
        metrics::add_queues(queues);
        let local = Arc::new(LocalCache::new(options.background.clone()));
        let timeout = options.timeout;
        let driver = Driver::new(server, Arc::clone(&shared), options, Arc::clone(&local));
        tokio::spawn(driver.drive(connection.clone()));
        let handle = Arc::new(Handle { shared, connection, local: Arc::clone(&local) });
        tokio::spawn(return_unused::run(Arc::downgrade(&handle), local, timeout));
        Self { handle }
    }

    /// Has a call decided, by what is known if that suffices, else once and in its turn. It is dropped unsent when the
    /// caller no longer waits for it.
    pub(super) async fn decide(&self, submission: Submission<'_>) -> DecisionResult {
        // What a test says of the time is not about now.
        if submission.clock == ScriptClock::Server
            && let Some(verdicts) = self.decide_from_cache(submission.request, submission.made_at)
        {
            return Ok(verdicts);
        }
        if submission.deadline <= submission.made_at {
            return Err(SendError::QueueTimeout);
        }
        let response = self.submit(submission)?.await;
        store::metrics::DURATION.observe_time(submission.made_at.elapsed());
        // The driver ends after the last handle.
        response.unwrap_or_else(|_| Err(SendError::NotConnected("closing".into())))
    }

    /// What a call comes to by what is known at this time.
    pub(super) fn decide_from_cache(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        self.handle.local.decide(request, now)
    }

    fn submit(&self, submission: Submission<'_>) -> Result<oneshot::Receiver<DecisionResult>, SendError> {
        let shared = &self.handle.shared;
        let (response, receiver) = oneshot::channel();
        let was_empty = shared.queue.lock().push(submission, response)?;
        if was_empty {
            shared.wakeup.notify_one();
        }
        Ok(receiver)
    }

    /// Whether a call could be decided now.
    ///
    /// # Errors
    /// Why a call would fail at once.
    pub(super) fn ensure_available(&self) -> Result<(), SendError> {
        self.handle.shared.queue.lock().ensure_available()
    }

    /// Whether a call would be sent at once.
    pub(super) fn is_usable(&self) -> bool {
        self.connection().is_up() && self.ensure_available().is_ok()
    }

    /// Forgets what is known of a call's counters, which another one changed.
    pub(super) fn forget(&self, request: &TagRequest) {
        self.handle.local.forget(request);
    }

    /// The connection itself, for what can't go with other calls.
    pub(super) fn connection(&self) -> &Connection {
        &self.handle.connection
    }
}

#[cfg(test)]
impl RequestOptions {
    /// RequestOptions for what is never asked.
    pub(super) fn for_tests() -> Self {
        Self {
            key_prefix: Arc::default(),
            requests_per_command: 1,
            timeout: Duration::ZERO,
            background: BackgroundQueue::default(),
        }
    }
}
