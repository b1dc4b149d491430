//! Batches concurrent requests to one server into a single pipelined write.
//!
//! A request waits in a `queue` while others are in flight, and leaves with all that arrived meanwhile. Identical
//! requests are coalesced into one *run*: the script repeats the request, and each caller gets the verdict of one
//! repetition. A busy counter thus costs Redis one request per round trip, whatever its load.
//!
//! Several requests share a command where the server permits it (`across_slots`, for a node of a cluster).
//!
//! One task, the `driver`, sends batches and distributes the `responses`. It also enforces the deadlines of the callers
//! with a single timer: a timer for each request would cost more than all the rest.
//!
//! While a server is unresponsive (`breaker`) or disconnected, nothing is queued: requests fail at once, until the
//! server responds again.

mod across_slots;
mod breaker;
mod driver;
mod queue;
mod responses;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{iter, time::Duration};

use ::redis::{Cmd, Value};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tollgate_core::{RecordId, algorithm::Algorithm, clock::Timestamp};
use tollgate_metrics::Computed;
use tollgate_runtime::log_budget::LogBudget;

use self::queue::{BoxedRequest, PendingRequest, Queue};
use self::{across_slots::AcrossSlots, driver::Driver};
use super::script::{self, CommandKeys, Run};
use super::{
    connection::Connection, error::SendError, info, metrics, servers::Server, store_clock::StoreClock,
    targets::Target,
};
use crate::local::{LocalCache, OutageCache};
use crate::request::{Check, Requests, TagRequest, Verdicts};
use crate::{self as store, BackgroundQueue, metrics::LiveList};

/// Maximum number of calls in a command, where several are possible: they share the costs of a command, and none waits
/// long for the others.
const MAX_CALLS: usize = 64;

/// Maximum work of the calls of a command, in checks of some 2 to 20 µs: the server decides nothing else meanwhile. A call with
/// more is alone.
const MAX_WORK: u64 = 192;

/// Options that all requests of a store have in common.
#[derive(Clone, Debug)]
pub(super) struct RequestOptions {
    /// Prefix of every key.
    pub(super) key_prefix: Arc<[u8]>,
    /// Keys that a command may have on any connection.
    pub(super) command_keys: CommandKeys,
    /// Time limit of a decision.
    pub(super) timeout: Duration,
    /// Capacity for requests without a waiting caller.
    pub(super) background: BackgroundQueue,
    /// Replies of all servers by which counters are decided during an outage.
    pub(super) outage: OutageCache,
    /// Estimate of the servers' time.
    pub(super) store_clock: StoreClock,
    /// Log lines on failing connections.
    pub(super) failure_lines: Arc<LogBudget>,
    /// Whether servers are sampled for metrics.
    pub(super) samples_servers: bool,
}

impl RequestOptions {
    /// The command that decides runs, and nothing else.
    pub(super) fn command<'a>(
        &self,
        runs: impl Iterator<Item = Run<'a>> + Clone,
        keys: CommandKeys,
        fixed: Option<Timestamp>,
    ) -> Cmd {
        script::command(&self.key_prefix, runs, keys, fixed, &self.store_clock)
    }

    /// Reads the reply to a command that decides one request, once.
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

type DecisionResult = Result<Verdicts, SendError>;

/// Times of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTimes {
    pub(super) made_at: Instant,
    /// When the caller stops waiting.
    pub(super) deadline: Instant,
    /// Time that a test has set, by which the script decides in place of the server's.
    pub(super) fixed: Option<Timestamp>,
}

/// Calls of one command.
#[derive(Debug)]
struct Command {
    keys: CommandKeys,
    pending: Vec<BoxedRequest>,
}

impl Command {
    /// Time that a test has set for all of its calls.
    fn fixed(&self) -> Option<Timestamp> {
        self.pending.first().and_then(|first| first.fixed)
    }
}

/// Distributes calls over commands: one clock decides all calls of a command. In commands of several, calls with the same
/// checks follow each other, since the script reads the checks of such calls once; otherwise calls keep their order.
fn split(across_slots: &mut AcrossSlots, mut pending: Vec<BoxedRequest>, now: Instant) -> Vec<Command> {
    let keys = across_slots.keys(now);
    let max_calls = if keys == CommandKeys::OneSlot { 1 } else { MAX_CALLS };
    if max_calls > 1 {
        pending.sort_by_cached_key(|pending| checks(pending));
    }
    let mut commands: Vec<Command> = Vec::with_capacity(pending.len().div_ceil(max_calls));
    let (mut alone, mut work_left) = (Vec::new(), 0_u64);
    for call in pending {
        if across_slots.is_apart(&call.request) {
            alone.push(Command { keys: CommandKeys::OneSlot, pending: vec![call] });
            continue;
        }
        let work = work(&call);
        match commands.last_mut() {
            Some(last)
                if last.pending.len() < max_calls && work <= work_left && last.fixed() == call.fixed =>
            {
                work_left = work_left.saturating_sub(work);
                last.pending.push(call);
            }
            _ => {
                work_left = MAX_WORK.saturating_sub(work);
                commands.push(Command { keys, pending: vec![call] });
            }
        }
    }
    // A call alone is redirected by the server itself.
    if keys == CommandKeys::AnySlotOfNode {
        let single = commands.iter_mut().filter(|command| command.pending.len() == 1);
        single.for_each(|command| command.keys = CommandKeys::OneSlot);
    }
    commands.append(&mut alone);
    commands
}

/// Key of an order in which calls with the same checks follow each other.
fn checks(pending: &PendingRequest) -> (usize, Option<RecordId>, usize) {
    let mut checks = pending.request.checks();
    let first = checks.next().map(|check| check.record);
    (checks.count(), first, pending.waiters.len())
}

/// Work of a call, in checks: where hits are stored one by one, those of logs take a sixteenth of it, and permits as much each;
/// a release may return many.
fn work(pending: &PendingRequest) -> u64 {
    let times = u64::from(pending.run().times);
    let of_check = |check: &Check| match check.policy.algorithm() {
        Algorithm::Concurrency if check.hits.is_refund() => 3,
        Algorithm::Concurrency => check.hits.charged().saturating_mul(times),
        Algorithm::SlidingWindowLog => check.hits.charged().saturating_mul(times) >> 4,
        _ => 1,
    };
    pending.request.checks().map(|check| of_check(check).clamp(1, MAX_WORK)).sum()
}

/// The queue and the connection of one server, whose tasks end when it is dropped.
pub(super) struct Batcher {
    shared: Arc<SharedQueue>,
    /// The connection itself, for commands that are not batched.
    pub(super) connection: Connection,
    local: Arc<LocalCache>,
}

/// State shared by callers and driver.
struct SharedQueue {
    queue: Mutex<Queue>,
    /// Wakes the driver up when a request is queued, or when it may end.
    wakeup: Notify,
    is_closed: AtomicBool,
}

/// All queues of this process.
static QUEUES: LiveList<SharedQueue> = LiveList::new();

/// Callers in this process whose calls are not yet sent, and calls in flight.
fn waiting() -> (usize, usize) {
    let waiting = QUEUES.all().into_iter().map(|shared| shared.queue.lock().waiting());
    let (callers, calls): (Vec<_>, Vec<_>) = waiting.unzip();
    (callers.iter().sum(), calls.iter().sum())
}

pub(super) static QUEUED_CALLS: Computed<1> = Computed::gauge(
    "tollgate_redis_queued_calls",
    &[],
    "Calls waiting to be sent to Redis.",
    |[declared], page| {
        page.single(declared, waiting().0);
    },
);

pub(super) static CALLS_IN_FLIGHT: Computed<1> = Computed::gauge(
    "tollgate_redis_calls_in_flight",
    &[],
    "Calls sent to Redis and not yet answered.",
    |[declared], page| page.single(declared, waiting().1),
);

impl Drop for Batcher {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.wakeup.notify_one();
        self.local.wake();
    }
}

impl Batcher {
    /// Connects in the background and reconnects when necessary.
    pub(super) fn open(target: Target, options: RequestOptions) -> Arc<Self> {
        let server = Server::new(&target.to_string());
        let connection = Connection::open(target, Arc::clone(&server), Arc::clone(&options.failure_lines));
        let shared = Arc::new(SharedQueue {
            queue: Mutex::default(),
            wakeup: Notify::new(),
            is_closed: AtomicBool::new(false),
        });
        QUEUES.add(Arc::downgrade(&shared));
        let local = LocalCache::new(options.background.clone(), options.outage.clone());
        let (timeout, is_sampled) = (options.timeout, options.samples_servers);
        let driver = Driver::new(Arc::clone(&server), Arc::clone(&shared), options, Arc::clone(&local));
        tokio::spawn(driver.drive(connection.clone()));
        let batcher = Arc::new(Self { shared, connection, local: Arc::clone(&local) });
        let weak = Arc::downgrade(&batcher);
        tokio::spawn(local.refund_unused(move || {
            let batcher = weak.upgrade()?;
            Some(move |refunds| batcher.refund(refunds, timeout))
        }));
        if is_sampled {
            let weak = Arc::downgrade(&batcher);
            let live = move || weak.upgrade().map(|batcher| batcher.connection.clone());
            tokio::spawn(info::sample(server, live));
        }
        batcher
    }

    /// Decides a request by sending it once. It is dropped unsent when its caller stops waiting, which is at `deadline`.
    pub(super) async fn decide(&self, request: &TagRequest, times: CallTimes) -> DecisionResult {
        if times.deadline <= times.made_at {
            return Err(SendError::QueueTimeout);
        }
        let (sender, receiver) = oneshot::channel();
        let was_empty = self.shared.queue.lock().push(request, times, sender)?;
        if was_empty {
            self.shared.wakeup.notify_one();
        }
        let response = receiver.await;
        store::metrics::DURATION.observe_time(times.made_at.elapsed());
        // The driver ends after the last handle.
        response.unwrap_or_else(|_| Err(SendError::NotConnected("shutting down".into())))
    }

    /// Decides a request from the cache as of `now`, if that suffices.
    pub(super) fn decide_from_cache(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        self.local.decide(request, now).map(metrics::decided_locally)
    }

    /// Whether the server accepts requests at the moment.
    ///
    /// # Errors
    /// The error with which a request would fail at once.
    pub(super) fn ensure_available(&self) -> Result<(), SendError> {
        self.shared.queue.lock().ensure_available()
    }

    /// Whether a request would be sent at once.
    pub(super) fn is_usable(&self) -> bool {
        self.connection.is_up() && self.ensure_available().is_ok()
    }

    /// Invalidates the cached state of a request's counters, which another one changed.
    pub(super) fn forget(&self, request: &TagRequest) {
        self.local.forget(request);
    }

    /// Sends each refund of unused tokens once.
    async fn refund(self: Arc<Self>, refunds: Requests, timeout: Duration) {
        let made_at = Instant::now();
        let times = CallTimes { made_at, deadline: store::after(made_at, timeout), fixed: None };
        for reply in join_all(refunds.iter().map(|request| self.decide(request, times))).await {
            store::metrics::refund(reply.is_ok());
        }
    }
}

#[cfg(test)]
impl RequestOptions {
    /// Options for tests that send nothing.
    pub(super) fn for_tests() -> Self {
        Self {
            key_prefix: Arc::default(),
            command_keys: CommandKeys::OneSlot,
            timeout: Duration::ZERO,
            background: BackgroundQueue::default(),
            outage: OutageCache::default(),
            store_clock: StoreClock::default(),
            failure_lines: super::connection::failure_lines(),
            samples_servers: false,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
