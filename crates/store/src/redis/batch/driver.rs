//! The task that sends queued requests and tracks the health of the server.

use std::sync::{Arc, atomic::Ordering};
use std::{mem, time::Duration};

use ::redis::{Pipeline, Value};
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use tokio::task::yield_now;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::across_slots::{self, AcrossSlots};
use super::breaker::{Breaker, BreakerEvent, OpenCause};
use super::queue::{BoxedRequest, PendingRequest};
use super::{Command, RequestOptions, SharedQueue, split};
use crate::redis::connection::{Connection, ConnectionState, LiveConnection};
use crate::redis::{error::SendError, metrics, script, servers::Server};
use crate::{key::CellKey, local::LocalCache};

/// Maximum number of writes that await their responses. With one, the server would idle while its responses are
/// distributed; with more, batches would be smaller.
const MAX_BATCHES_IN_FLIGHT: usize = 2;

/// Maximum number of requests in a write: about a millisecond of the server's time.
const MAX_BATCH_REQUESTS: usize = 512;

/// Interval of the checks for expired requests: the delay with which a caller may be notified.
const TICK_INTERVAL: Duration = Duration::from_millis(1);

/// Factor, over the longest tolerated silence, by which a response is awaited on a connection that has been replaced.
const STALE_RESPONSE_FACTOR: u32 = 2;

/// Number of a write, and the response to it.
pub(super) type Response = (u64, Result<Vec<Value>, SendError>);

/// Requests sent in one write, which await their responses.
pub(super) struct Batch {
    pub(super) number: u64,
    /// Generation of the connection.
    pub(super) generation: u64,
    pub(super) sent_at: Instant,
    pub(super) commands: Vec<Command>,
    /// Number of scripts that the write loads before.
    pub(super) loads: usize,
}

impl Batch {
    pub(super) fn requests(&self) -> usize {
        self.commands.iter().map(|command| command.pending.len()).sum()
    }
}

pub(super) struct Driver {
    /// Name of the server in logs.
    pub(super) server: Arc<Server>,
    pub(super) shared: Arc<SharedQueue>,
    pub(super) options: RequestOptions,
    pub(super) local: Arc<LocalCache>,
    pub(super) breaker: Breaker,
    /// The current connection.
    pub(super) live: Option<LiveConnection>,
    /// Generation of the connection from which the cache was filled. Another one may lead to another server, with other
    /// counters.
    pub(super) generation: u64,
    /// Sent writes, oldest first.
    pub(super) in_flight: Vec<Batch>,
    /// Requests that had no effect because the server lacked the script.
    pub(super) retries: Vec<BoxedRequest>,
    pub(super) across_slots: AcrossSlots,
    /// Keys of two slots that are to be probed with the batch that was sent last.
    slots_to_probe: Option<[CellKey; 2]>,
    batches_sent: u64,
}

impl Driver {
    pub(super) fn new(
        server: Arc<Server>,
        shared: Arc<SharedQueue>,
        options: RequestOptions,
        local: Arc<LocalCache>,
    ) -> Self {
        let breaker = Breaker::new(Arc::clone(&server), options.timeout);
        let (in_flight, retries) = (Vec::new(), Vec::new());
        let across_slots = AcrossSlots::new(options.command_keys);
        Self {
            server,
            shared,
            options,
            local,
            breaker,
            live: None,
            generation: 0,
            in_flight,
            retries,
            across_slots,
            slots_to_probe: None,
            batches_sent: 0,
        }
    }

    /// Probes, on a live connection, whether a command may have keys of several slots.
    fn slot_probe(
        &self,
        connection: &Connection,
        keys: [CellKey; 2],
    ) -> Option<impl Future<Output = (u64, Result<(), SendError>)> + use<>> {
        let prefix = Arc::clone(&self.options.key_prefix);
        Some(across_slots::probe(connection.clone(), self.live.clone()?, prefix, keys))
    }

    /// Sends and responds until no handle is left.
    pub(super) async fn drive(mut self, connection: Connection) {
        // Each write has a handle.
        let connection = Arc::new(connection);
        let shared = Arc::clone(&self.shared);
        // A response too late for its callers is awaited nevertheless and occupies its place: otherwise ever more would
        // be sent to an overloaded server, which would still execute it later.
        let (mut responses, mut probes) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut slot_probes = FuturesUnordered::new();
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut states = connection.states();
        states.mark_changed();
        while !shared.is_closed.load(Ordering::Acquire) {
            if let Some(response) = self.send_batch(&connection) {
                responses.push(response);
                if let Some(keys) = self.slots_to_probe.take() {
                    slot_probes.extend(self.slot_probe(&connection, keys));
                }
                continue;
            }
            if probes.is_empty()
                && let Some(live) = self.connection_to_probe()
            {
                probes.push(connection.probe(live));
            }
            tokio::select! {
                Some((number, response)) = responses.next(), if !responses.is_empty() => {
                    self.complete(number, response, &connection);
                }
                Some(probe) = probes.next(), if !probes.is_empty() => self.probed(probe),
                Some((of, result)) = slot_probes.next(), if !slot_probes.is_empty() => self.slots_probed(of, result),
                changed = states.changed() => {
                    // A pending probe of an earlier connection would take long to fail.
                    probes.clear();
                    slot_probes.clear();
                    match changed {
                        Ok(()) => self.connection_changed(&states.borrow_and_update()),
                        Err(_) => break,
                    }
                }
                () = shared.wakeup.notified() => {}
                _ = ticks.tick(), if self.needs_ticks() => {
                    if self.tick(&mut responses, &connection).await {
                        responses.clear();
                    }
                }
            }
        }
        shared.queue.lock().close(&SendError::NotConnected("shutting down".into()));
    }

    /// Fails requests whose time has passed, and advances the breaker; returns whether it tripped.
    async fn tick(
        &mut self,
        responses: &mut (impl Stream<Item = Response> + Unpin),
        connection: &Connection,
    ) -> bool {
        let now = Instant::now();
        // What arrived while this thread was delayed comes before calls expire: a decision that is here is better than a
        // substitute for it, however late it is read.
        if self.is_overdue(now) {
            // Meanwhile the task of the connection reads.
            yield_now().await;
            while let Some(Some((number, response))) = responses.next().now_or_never() {
                self.complete(number, response, connection);
            }
        }
        self.expire(now);
        self.check_health(now)
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let mut in_flight = self.in_flight.iter().flat_map(|batch| &batch.commands);
        in_flight.any(|command| command.pending.iter().any(|pending| pending.is_overdue(now)))
    }

    fn needs_ticks(&self) -> bool {
        let is_awaited = !self.in_flight.is_empty() || !self.retries.is_empty();
        is_awaited || self.breaker.is_recovering() || !self.shared.queue.lock().is_empty()
    }

    /// Sends the next batch of queued requests, if there is one and it need not wait; returns its response.
    fn send_batch(&mut self, connection: &Arc<Connection>) -> Option<impl Future<Output = Response> + use<>> {
        if self.breaker.cause().is_some() || self.batches_in_flight() >= MAX_BATCHES_IN_FLIGHT {
            return None;
        }
        let mut live = self.live.clone()?;
        let now = Instant::now();
        let loads = if self.retries.is_empty() { &[] } else { self.across_slots.scripts() };
        let pending = self.take_pending(now);
        if pending.is_empty() {
            return None;
        }
        self.slots_to_probe = self.across_slots.keys_to_probe(&pending, now);
        let callers = pending.iter().map(|pending| pending.waiters.len()).sum::<usize>();
        let requests = pending.len();
        let commands = split(&mut self.across_slots, pending, now);
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for keys in loads {
            pipeline.add_command(script::load(*keys));
        }
        for command in &commands {
            let runs = command.pending.iter().map(|pending| pending.run());
            pipeline.add_command(self.options.command(runs, command.keys, command.fixed()));
        }
        metrics::sent(commands.iter().map(|command| command.pending.len()), callers.saturating_sub(requests));
        self.shared.queue.lock().latency.sent(requests);
        self.batches_sent = self.batches_sent.wrapping_add(1);
        let (number, generation, loads) = (self.batches_sent, self.generation, loads.len());
        self.in_flight.push(Batch { number, generation, sent_at: now, commands, loads });
        let (connection, max_silence) = (Arc::clone(connection), self.breaker.max_silence);
        Some(async move {
            let sent = connection.send_all(&mut live, &pipeline);
            let response = timeout(max_silence.saturating_mul(STALE_RESPONSE_FACTOR), sent).await;
            (number, response.unwrap_or(Err(SendError::Timeout)))
        })
    }

    /// Takes the requests of the next batch, those to be sent again first.
    fn take_pending(&mut self, now: Instant) -> Vec<BoxedRequest> {
        let mut pending = mem::take(&mut self.retries);
        pending.retain_mut(|pending| pending.retain_waiting());
        while pending.len() < MAX_BATCH_REQUESTS {
            let mut taken = self.shared.queue.lock().take(MAX_BATCH_REQUESTS.saturating_sub(pending.len()));
            if taken.is_empty() {
                break;
            }
            taken.retain_mut(|pending| self.prepare(pending, now));
            pending.append(&mut taken);
        }
        pending
    }

    /// Responds to the callers for whom there are tokens by now. Returns whether others remain; if so, sets the tokens
    /// to charge ahead for them.
    fn prepare(&self, pending: &mut PendingRequest, now: Instant) -> bool {
        pending.expire(now, &SendError::QueueTimeout);
        if !pending.retain_waiting() || pending.fixed.is_some() {
            return !pending.waiters.is_empty();
        }
        let mut served = 0;
        for waiter in &mut pending.waiters {
            let Some(decision) = self.local.decide_again(&pending.request, now) else { break };
            waiter.respond(Ok(metrics::decided_locally(decision)));
            served = usize::saturating_add(served, 1);
        }
        pending.waiters.drain(..served);
        if !pending.waiters.is_empty() {
            pending.attachment = self.local.attachment(&pending.request, now);
        }
        !pending.waiters.is_empty()
    }

    /// Fails the requests of callers whose deadline has passed.
    fn expire(&mut self, now: Instant) {
        let in_flight = self.in_flight.iter_mut().flat_map(|batch| &mut batch.commands);
        in_flight.flat_map(|command| &mut command.pending).for_each(|pending| pending.time_out(now));
        self.retries.iter_mut().for_each(|pending| pending.expire(now, &SendError::QueueTimeout));
        self.shared.queue.lock().expire(now);
    }

    /// Records whether the server permits commands on several slots.
    fn slots_probed(&mut self, generation: u64, result: Result<(), SendError>) {
        if generation != self.generation {
            return;
        }
        if let Some(error) = self.across_slots.probed(result, Instant::now()) {
            let server = &self.server;
            tracing::info!(%server, %error, "Redis refuses commands on several slots");
        }
    }

    /// Records a change of the connection.
    pub(super) fn connection_changed(&mut self, state: &ConnectionState) {
        self.live = None;
        match state.current() {
            // The breaker limits how long this may last.
            None => {}
            Some(Ok(current)) => {
                if self.generation != current.generation {
                    self.generation = current.generation;
                    self.local.forget_all();
                    self.across_slots.connected();
                }
                self.live = Some(current);
                if self.breaker.reconnected() {
                    self.fail_queued(&SendError::BreakerOpen);
                } else {
                    self.close_breaker();
                }
            }
            Some(Err(error)) => {
                self.breaker.disconnected();
                self.across_slots.disconnected();
                self.fail_queued(&error);
            }
        }
    }

    /// Advances the breaker; returns whether it tripped.
    pub(super) fn check_health(&mut self, now: Instant) -> bool {
        let is_awaited = match self.live {
            Some(_) => self.batches_in_flight() > 0,
            None => !self.shared.queue.lock().is_empty(),
        };
        match self.breaker.tick(now, is_awaited) {
            BreakerEvent::Unchanged => false,
            BreakerEvent::OutageEnded => {
                tracing::info!(server = %self.server, "Redis responds again");
                false
            }
            event @ (BreakerEvent::Reopened | BreakerEvent::OutageBegan) => {
                self.breaker_tripped(event);
                true
            }
        }
    }

    pub(super) fn breaker_tripped(&mut self, event: BreakerEvent) {
        if event == BreakerEvent::OutageBegan {
            let (server, silence) = (&self.server, self.breaker.max_silence);
            tracing::warn!(%server, ?silence, "Redis unresponsive; circuit breaker opened");
        }
        self.fail_queued(&SendError::BreakerOpen);
        for batch in mem::take(&mut self.in_flight) {
            self.fail_batch(batch, &SendError::Timeout);
        }
    }

    /// The connection to probe for responses, if the server is unresponsive.
    pub(super) fn connection_to_probe(&self) -> Option<LiveConnection> {
        self.live.clone().filter(|_| self.breaker.cause() == Some(OpenCause::Silence))
    }

    /// Records the outcome of a probe of the connection of a generation.
    fn probed(&mut self, probe: Result<u64, u64>) {
        match probe {
            Ok(generation) => self.recovered(generation),
            Err(generation) => self.disconnected(generation),
        }
    }

    /// Records a response on the connection `generation`.
    pub(super) fn recovered(&mut self, generation: u64) {
        if self.live.as_ref().is_some_and(|current| current.generation == generation) {
            self.close_breaker();
        }
    }

    /// Records that the connection `generation` broke: requests wait for the result of the reconnect, which comes soon.
    pub(super) fn disconnected(&mut self, generation: u64) {
        self.live.take_if(|current| current.generation == generation);
    }

    /// Number of batches that await a response on the current connection.
    pub(super) fn batches_in_flight(&self) -> usize {
        self.in_flight.iter().filter(|batch| batch.generation == self.generation).count()
    }

    fn close_breaker(&mut self) {
        let was_open = self.breaker.cause().is_some();
        self.breaker.responded(Instant::now());
        if was_open {
            self.shared.queue.lock().open();
        }
    }

    /// Fails all queued requests, and new ones from now on.
    fn fail_queued(&mut self, error: &SendError) {
        self.retries.drain(..).for_each(|mut pending| pending.fail(error));
        self.shared.queue.lock().close(error);
    }
}
