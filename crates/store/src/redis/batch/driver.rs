//! The task that sends what waits, and hands the answers out (`landing`).

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ::redis::Pipeline;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{
    RequestOptions, Shared,
    breaker::{Breaker, BreakerEvent, OpenCause},
    group::{BoxedGroup, Group},
    responses::InFlight,
};
use crate::redis::{
    ScriptClock,
    connection::{Connection, ConnectionState, LiveConnection, SendError},
    local::LocalCache,
    metrics,
    script::{self, Run},
};

/// Writes that may await their answers at the same time. With one, the server has nothing to do while its answers are
/// handed out; with more, less travels in each.
const MAX_BATCHES_IN_FLIGHT: usize = 2;

/// Calls in a write at the most: about a millisecond of the server's time.
const MAX_BATCH_REQUESTS: usize = 512;

/// How late a caller may be told that its time is over.
const TICK_INTERVAL: Duration = Duration::from_millis(1);

/// How much longer than the longest silence an answer is awaited over a connection that is not the present one.
const STALE_RESPONSE_FACTOR: u32 = 2;

/// What is to be sent.
struct Batch {
    number: u64,
    pipeline: Pipeline,
    live: LiveConnection,
}

pub(super) struct Driver {
    /// The server, for people.
    pub(super) server: String,
    pub(super) shared: Arc<Shared>,
    options: RequestOptions,
    pub(super) local: Arc<LocalCache>,
    pub(super) breaker: Breaker,
    /// The connection that there is now.
    pub(super) live: Option<LiveConnection>,
    /// The one over which all was learned that is known. Another one may lead to another server, of which nothing is.
    pub(super) generation: u64,
    /// What is under way, oldest first.
    pub(super) in_flight: Vec<InFlight>,
    /// Calls that a server did nothing about because it does not know the script.
    pub(super) retries: Vec<BoxedGroup>,
    batches_sent: u64,
}

impl Driver {
    pub(super) fn new(
        server: String,
        shared: Arc<Shared>,
        options: RequestOptions,
        local: Arc<LocalCache>,
    ) -> Self {
        let breaker = Breaker::new(options.timeout);
        let (in_flight, retries) = (Vec::new(), Vec::new());
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
            batches_sent: 0,
        }
    }

    /// Sends and answers until no handle is left.
    pub(super) async fn drive(mut self, connection: Connection) {
        let shared = Arc::clone(&self.shared);
        // An answer that comes too late for its callers is awaited all the same, in its place: else ever more would be
        // sent to a server that can't answer, which it would still obey later.
        let (mut responses, mut probes) = (FuturesUnordered::new(), FuturesUnordered::new());
        let response_timeout = self.breaker.max_silence().saturating_mul(STALE_RESPONSE_FACTOR);
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut states = connection.states();
        states.mark_changed();
        while !shared.is_closed.load(Ordering::Acquire) {
            if let Some(Batch { number, pipeline, mut live }) = self.next_batch() {
                let connection = connection.clone();
                responses.push(async move {
                    let response = timeout(response_timeout, connection.send_all(&mut live, &pipeline)).await;
                    (number, response.unwrap_or(Err(SendError::Timeout)))
                });
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
                Some(probe) = probes.next(), if !probes.is_empty() => match probe {
                    Ok(number) => self.recovered(number),
                    Err(number) => self.disconnected(number),
                },
                changed = states.changed() => {
                    // One that waits for a sign on another connection would wait for long.
                    probes.clear();
                    match changed {
                        Ok(()) => self.connection_changed(&states.borrow_and_update()),
                        Err(_) => break,
                    }
                }
                () = shared.wakeup.notified() => {}
                _ = ticks.tick(), if self.needs_ticks() => {
                    let now = Instant::now();
                    self.expire(now);
                    if self.check_health(now) {
                        responses.clear();
                    }
                }
            }
        }
        shared.queue.lock().close(&SendError::NotConnected("closing".into()));
    }

    fn needs_ticks(&self) -> bool {
        let is_awaited = !self.in_flight.is_empty() || !self.retries.is_empty();
        is_awaited || self.breaker.is_recovering() || !self.shared.queue.lock().is_empty()
    }

    /// Takes off with what waits.
    fn next_batch(&mut self) -> Option<Batch> {
        if self.live.is_none()
            || self.breaker.cause().is_some()
            || self.batches_in_flight() >= MAX_BATCHES_IN_FLIGHT
        {
            return None;
        }
        let now = Instant::now();
        let loads_script = !self.retries.is_empty();
        let mut groups = mem::take(&mut self.retries);
        groups.retain_mut(|group| group.retain_waiting());
        while groups.len() < MAX_BATCH_REQUESTS {
            let mut taken = self.shared.queue.lock().take(MAX_BATCH_REQUESTS.saturating_sub(groups.len()));
            if taken.is_empty() {
                break;
            }
            taken.retain_mut(|group| self.prepare(group, now));
            groups.append(&mut taken);
        }
        let live = self.live.clone().filter(|_| !groups.is_empty())?;
        let commands = self.split_into_commands(groups);
        let mut pipeline = Pipeline::with_capacity(commands.len().saturating_add(1));
        if loads_script {
            pipeline.add_command(script::load());
        }
        for groups in &commands {
            let clock = groups.first().map(|group| group.clock).unwrap_or_default();
            pipeline.add_command(self.options.command(groups.iter().map(|group| run(group)), clock));
        }
        let callers = commands.iter().flatten().map(|group| group.waiters.len()).sum::<usize>();
        let requests = commands.iter().map(Vec::len).sum::<usize>();
        metrics::sent(commands.iter().map(Vec::len), callers.saturating_sub(requests));
        self.shared.queue.lock().latency.sent(requests);
        self.batches_sent = self.batches_sent.wrapping_add(1);
        let (number, generation) = (self.batches_sent, self.generation);
        self.in_flight.push(InFlight { number, generation, sent_at: now, commands, loads_script });
        Some(Batch { number, pipeline, live })
    }

    /// Answers those for whom there are tokens by now; says whether there are others, with what is charged ahead for
    /// them.
    fn prepare(&self, group: &mut Group, now: Instant) -> bool {
        if group.clock != ScriptClock::Server {
            return true;
        }
        let mut served = 0;
        for waiter in &mut group.waiters {
            let Some(verdicts) = self.local.decide_again(&group.request, now) else { break };
            waiter.respond(Ok(verdicts));
            served = usize::saturating_add(served, 1);
        }
        group.waiters.drain(..served);
        if !group.waiters.is_empty() {
            group.prefetches = self.local.prefetches(&group.request, now);
        }
        !group.waiters.is_empty()
    }

    /// Distributes calls over commands: those of a command are decided by the same clock.
    fn split_into_commands(&self, groups: Vec<BoxedGroup>) -> Vec<Vec<BoxedGroup>> {
        let mut commands: Vec<Vec<BoxedGroup>> =
            Vec::with_capacity(groups.len().div_ceil(self.options.requests_per_command.max(1)));
        for group in groups {
            match commands.last_mut() {
                Some(command)
                    if command.len() < self.options.requests_per_command
                        && command.first().is_some_and(|first| first.clock == group.clock) =>
                {
                    command.push(group);
                }
                _ => commands.push(vec![group]),
            }
        }
        commands
    }

    /// Tells those whose time is over so.
    fn expire(&mut self, now: Instant) {
        let in_flight = self.in_flight.iter_mut().flat_map(|batch| &mut batch.commands).flatten();
        in_flight.for_each(|group| group.expire(now, &SendError::Timeout));
        self.retries.iter_mut().for_each(|group| group.expire(now, &SendError::QueueTimeout));
        self.shared.queue.lock().expire(now);
    }

    /// Takes note of what the connection has become.
    pub(super) fn connection_changed(&mut self, state: &ConnectionState) {
        self.live = None;
        match state.current() {
            // The breaker sees how long this lasts.
            None => {}
            Some(Ok(current)) => {
                if self.generation != current.generation {
                    self.generation = current.generation;
                    self.local.forget_all();
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
                self.fail_queued(&error);
            }
        }
    }

    /// Takes note of the time; says whether the server was found silent.
    pub(super) fn check_health(&mut self, now: Instant) -> bool {
        let is_awaited = match self.live {
            Some(_) => self.batches_in_flight() > 0,
            None => !self.shared.queue.lock().is_empty(),
        };
        match self.breaker.tick(now, is_awaited) {
            BreakerEvent::Unchanged => false,
            BreakerEvent::OutageEnded => {
                tracing::info!(server = %self.server, "Redis answers again");
                false
            }
            event @ (BreakerEvent::Reopened | BreakerEvent::OutageBegan) => {
                self.breaker_tripped(event);
                true
            }
        }
    }

    /// Takes note that an answer was awaited for longer than any silence may last.
    pub(super) fn response_timed_out(&mut self) {
        let event = self.breaker.trip();
        self.breaker_tripped(event);
    }

    fn breaker_tripped(&mut self, event: BreakerEvent) {
        if event == BreakerEvent::OutageBegan {
            let (server, silence) = (&self.server, self.breaker.max_silence());
            tracing::warn!(%server, ?silence, "Redis is silent; calls fail at once until it answers");
        }
        self.fail_queued(&SendError::BreakerOpen);
        for batch in mem::take(&mut self.in_flight) {
            self.fail_batch(batch, &SendError::Timeout);
        }
    }

    /// The connection to listen on for a sign of life, if one is missed.
    pub(super) fn connection_to_probe(&self) -> Option<LiveConnection> {
        self.live.clone().filter(|_| self.breaker.cause() == Some(OpenCause::Silence))
    }

    /// Takes note of a sign of life on the connection `number`.
    pub(super) fn recovered(&mut self, number: u64) {
        if self.live.as_ref().is_some_and(|current| current.generation == number) {
            self.close_breaker();
        }
    }

    /// Takes note that the connection `number` broke: calls wait until it is known what comes of it, which is soon.
    pub(super) fn disconnected(&mut self, number: u64) {
        self.live.take_if(|current| current.generation == number);
    }

    /// How many flights await an answer on the present connection.
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

    /// Tells everybody who waits, or comes, that the server is not asked.
    fn fail_queued(&mut self, error: &SendError) {
        self.retries.drain(..).for_each(|mut group| group.fail(error));
        self.shared.queue.lock().close(error);
    }
}

pub(super) fn run(group: &Group) -> Run<'_> {
    Run { request: &group.request, times: group.times(), prefetches: &group.prefetches }
}
