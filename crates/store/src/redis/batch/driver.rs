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
    Shared, Terms,
    breaker::Breaker,
    group::{Group, Waiting},
    responses::InFlight,
};
use crate::redis::{
    ScriptClock,
    connection::{Connection, Current, SendError},
    local::Local,
    metrics,
    script::{self, Run},
};

/// Writes that may await their answers at the same time. With one, the server has nothing to do while its answers are
/// handed out; with more, less travels in each.
const MAX_BATCHES_IN_FLIGHT: usize = 2;

/// Calls in a write at the most: about a millisecond of the server's time.
const MAX_BATCH_CALLS: usize = 512;

/// How late a caller may be told that its time is over.
const TICK: Duration = Duration::from_millis(1);

/// How much longer than the longest silence an answer is awaited over a connection that is not the present one.
const OTHERWISE: u32 = 2;

/// What is to be sent.
struct Batch {
    number: u64,
    pipeline: Pipeline,
    over: Current,
}

pub(super) struct Driver {
    /// The server, for people.
    pub(super) server: String,
    pub(super) shared: Arc<Shared>,
    terms: Terms,
    pub(super) local: Arc<Local>,
    pub(super) breaker: Breaker,
    /// The connection that there is now.
    pub(super) way: Option<Current>,
    /// The one over which all was learned that is known. Another one may lead to another server, of which nothing is.
    pub(super) connection: u64,
    /// What is under way, oldest first.
    pub(super) in_flight: Vec<InFlight>,
    /// Calls that a server did nothing about because it does not know the script.
    pub(super) again: Vec<Waiting>,
    sent: u64,
}

impl Driver {
    pub(super) fn new(server: String, shared: Arc<Shared>, terms: Terms, local: Arc<Local>) -> Self {
        let breaker = Breaker::new(terms.timeout);
        let (in_flight, again) = (Vec::new(), Vec::new());
        Self { server, shared, terms, local, breaker, way: None, connection: 0, in_flight, again, sent: 0 }
    }

    /// Sends and answers until no handle is left.
    pub(super) async fn drive(mut self, connection: Connection) {
        let shared = Arc::clone(&self.shared);
        // An answer that comes too late for its callers is awaited all the same, in its place: else ever more would be
        // sent to a server that can't answer, which it would still obey later.
        let (mut answers, mut signs) = (FuturesUnordered::new(), FuturesUnordered::new());
        let longest = self.breaker.most_silence().saturating_mul(OTHERWISE);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut states = connection.states();
        states.mark_changed();
        while !shared.is_closed.load(Ordering::Acquire) {
            if let Some(Batch { number, pipeline, mut over }) = self.next_batch() {
                let connection = connection.clone();
                answers.push(async move {
                    let answer = timeout(longest, connection.send_all(&mut over, &pipeline)).await;
                    (number, answer.unwrap_or(Err(SendError::Late)))
                });
                continue;
            }
            if signs.is_empty()
                && let Some(over) = self.missed()
            {
                signs.push(connection.hear(over));
            }
            tokio::select! {
                Some((number, answer)) = answers.next(), if !answers.is_empty() => {
                    self.complete(number, answer, &connection);
                }
                Some(sign) = signs.next(), if !signs.is_empty() => match sign {
                    Ok(number) => self.recovered(number),
                    Err(number) => self.disconnected(number),
                },
                changed = states.changed() => {
                    // One that waits for a sign on another connection would wait for long.
                    signs.clear();
                    match changed {
                        Ok(()) => self.reconsider(&states.borrow_and_update()),
                        Err(_) => break,
                    }
                }
                () = shared.news.notified() => {}
                _ = ticks.tick(), if self.is_waited_for() => {
                    let now = Instant::now();
                    self.expire(now);
                    if self.look(now) {
                        answers.clear();
                    }
                }
            }
        }
        shared.queue.lock().shut(&SendError::NotConnected("closing".into()));
    }

    fn is_waited_for(&self) -> bool {
        let is_owed = !self.in_flight.is_empty() || !self.again.is_empty();
        is_owed || self.breaker.is_calming() || !self.shared.queue.lock().is_empty()
    }

    /// Takes off with what waits.
    fn next_batch(&mut self) -> Option<Batch> {
        if self.way.is_none() || self.breaker.cause().is_some() || self.under_way() >= MAX_BATCHES_IN_FLIGHT {
            return None;
        }
        let now = Instant::now();
        let tells_script = !self.again.is_empty();
        let mut groups = mem::take(&mut self.again);
        groups.retain_mut(|group| group.keep_waiting());
        while groups.len() < MAX_BATCH_CALLS {
            let mut taken = self.shared.queue.lock().take(MAX_BATCH_CALLS.saturating_sub(groups.len()));
            if taken.is_empty() {
                break;
            }
            taken.retain_mut(|group| self.prepare(group, now));
            groups.append(&mut taken);
        }
        let over = self.way.clone().filter(|_| !groups.is_empty())?;
        let commands = self.arrange(groups);
        let mut pipeline = Pipeline::with_capacity(commands.len().saturating_add(1));
        if tells_script {
            pipeline.add_command(script::load());
        }
        for groups in &commands {
            let clock = groups.first().map(|group| group.clock).unwrap_or_default();
            pipeline.add_command(self.terms.command(groups.iter().map(|group| run(group)), clock));
        }
        let callers = commands.iter().flatten().map(|group| group.waiters.len()).sum::<usize>();
        let calls = commands.iter().map(Vec::len).sum::<usize>();
        metrics::sent(commands.iter().map(Vec::len), callers.saturating_sub(calls));
        self.shared.queue.lock().latency.sent(calls);
        self.sent = self.sent.wrapping_add(1);
        let (number, connection) = (self.sent, self.connection);
        self.in_flight.push(InFlight { number, connection, sent_at: now, commands, tells_script });
        Some(Batch { number, pipeline, over })
    }

    /// Answers those for whom there are tokens by now; says whether there are others, with what is charged ahead for
    /// them.
    fn prepare(&self, group: &mut Group, now: Instant) -> bool {
        if group.clock != ScriptClock::Server {
            return true;
        }
        let mut served = 0;
        for waiter in &mut group.waiters {
            let Some(verdicts) = self.local.decide_again(&group.call, now) else { break };
            waiter.answer(Ok(verdicts));
            served = usize::saturating_add(served, 1);
        }
        group.waiters.drain(..served);
        if !group.waiters.is_empty() {
            group.prefetches = self.local.prefetches(&group.call, now);
        }
        !group.waiters.is_empty()
    }

    /// Distributes calls over commands: those of a command are decided by the same clock.
    fn arrange(&self, groups: Vec<Waiting>) -> Vec<Vec<Waiting>> {
        let mut commands: Vec<Vec<Waiting>> =
            Vec::with_capacity(groups.len().div_ceil(self.terms.calls_in_command.max(1)));
        for group in groups {
            match commands.last_mut() {
                Some(command)
                    if command.len() < self.terms.calls_in_command
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
        let under_way = self.in_flight.iter_mut().flat_map(|batch| &mut batch.commands).flatten();
        under_way.for_each(|group| group.expire(now, &SendError::Late));
        self.again.iter_mut().for_each(|group| group.expire(now, &SendError::Unsent));
        self.shared.queue.lock().expire(now);
    }
}

pub(super) fn run(group: &Group) -> Run<'_> {
    Run { call: &group.call, times: group.times(), prefetches: &group.prefetches }
}
