//! Writes, and the distribution of their responses: each caller gets the verdict of its repetition, or an error.

use ::redis::{RedisError, Value};
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::{
    DecisionResult,
    across_slots::Command,
    driver::{Driver, run},
};
use crate::{
    LateOutcome, LateReply,
    key::CellKey,
    local::Attachment,
    redis::{
        ScriptClock,
        connection::Connection,
        error::{self, SendError},
        metrics,
        script::{self, CommandKeys},
        store_clock,
    },
    request::TagRequest,
};

/// Maximum number of times a request is sent to a server without the script, which may be loaded and flushed again, or with
/// the windows of another time.
const MAX_ATTEMPTS: u32 = 3;

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
    fn requests(&self) -> usize {
        self.commands.iter().map(|command| command.pending.len()).sum()
    }
}

impl Driver {
    /// Distributes the responses to a batch.
    pub(super) fn complete(
        &mut self,
        number: u64,
        response: Result<Vec<Value>, SendError>,
        connection: &Connection,
    ) {
        let Some(at) = self.in_flight.iter().position(|batch| batch.number == number) else { return };
        let batch = self.in_flight.remove(at);
        let responses = match response {
            Ok(responses) => responses,
            Err(error) => return self.batch_failed(batch, &error),
        };
        self.recovered(batch.generation);
        self.shared.queue.lock().latency.complete(batch.requests(), batch.sent_at, Instant::now());
        let mut responses = responses.into_iter();
        let Batch { generation, sent_at, commands, loads, .. } = batch;
        // The reason why a script could not be loaded.
        let reason = responses.by_ref().take(loads).fold(None, |reason, reply| match reply {
            Value::ServerError(error) => Some(RedisError::from(error)),
            _ => reason,
        });
        for Command { keys, pending } in commands {
            match responses.next() {
                Some(Value::ServerError(error)) if keys == CommandKeys::AnySlotOfNode => {
                    self.slots_failed(pending, error.into(), reason.as_ref());
                }
                Some(Value::ServerError(error)) => {
                    let error = RedisError::from(error);
                    connection.record_error(&error, generation);
                    self.command_failed(pending, error, reason.as_ref());
                }
                Some(response) => {
                    let record = |error: &RedisError| connection.record_error(error, generation);
                    // Replies of another server are not cached for this one.
                    let sent_at = (generation == self.generation).then_some(sent_at);
                    self.command_succeeded(Command { keys, pending }, response, sent_at, record);
                }
                None => {
                    pending
                        .into_iter()
                        .for_each(|mut pending| self.fail(&mut pending, &SendError::MalformedReply));
                }
            }
        }
    }

    /// Records that there is no response to a batch, and fails it.
    fn batch_failed(&mut self, batch: Batch, error: &SendError) {
        if error.needs_reconnect() {
            self.disconnected(batch.generation);
        }
        let is_current = batch.generation == self.generation;
        self.fail_batch(batch, error);
        if is_current && matches!(error, SendError::Timeout) && self.breaker.cause().is_none() {
            let event = self.breaker.trip();
            self.breaker_tripped(event);
        }
    }

    /// Fails a batch whose outcome is unknown.
    pub(super) fn fail_batch(&self, batch: Batch, error: &SendError) {
        self.shared.queue.lock().latency.remove(batch.requests());
        for mut pending in batch.commands.into_iter().flat_map(|command| command.pending) {
            self.fail(&mut pending, error);
        }
    }

    fn fail(&self, pending: &mut PendingRequest, error: &SendError) {
        self.local.forget(&pending.request);
        pending.fail(error);
    }

    /// Fails the requests of a command that the server refused, or retries them if it lacked the script or has another time.
    /// If loading the script failed, that error is the reason.
    fn command_failed(&mut self, pending: Vec<BoxedRequest>, error: RedisError, reason: Option<&RedisError>) {
        let is_outside_windows = self.options.store_clock.correct(&error);
        let (error, may_repeat) = match (SendError::Failed(error), reason) {
            (error, Some(reason)) if error.is_unknown_script() => (SendError::Failed(reason.clone()), false),
            (error, _) => {
                let may_repeat = error.is_unknown_script() || is_outside_windows;
                (error, may_repeat)
            }
        };
        for mut pending in pending {
            pending.attempts = pending.attempts.saturating_add(1);
            if may_repeat && pending.attempts < MAX_ATTEMPTS {
                self.retries.push(pending);
            } else {
                self.fail(&mut pending, &error);
            }
        }
    }

    /// Fails the requests of a command on several slots that the server refused. Those that another node decides, or that a
    /// command on one slot may decide, are sent again by their callers.
    fn slots_failed(&mut self, pending: Vec<BoxedRequest>, error: RedisError, reason: Option<&RedisError>) {
        let is_unknown = SendError::Failed(error.clone()).is_unknown_script();
        let is_unreached = script::is_unreached(&error) || error::is_demoted(&error);
        if !is_unknown && is_unreached {
            let error = SendError::Unreached(error);
            return pending.into_iter().for_each(|mut pending| self.fail(&mut pending, &error));
        }
        if !is_unknown && !error::is_of_state(&error) {
            self.across_slots.refuse(Instant::now());
        }
        self.command_failed(pending, error, reason);
    }

    /// Distributes the outcomes of a command, and caches them if `sent_at` is given.
    fn command_succeeded(
        &mut self,
        Command { keys, pending }: Command,
        response: Value,
        sent_at: Option<Instant>,
        record: impl Fn(&RedisError),
    ) {
        let runs = pending.iter().map(|pending| run(pending));
        let mut outcomes = script::read_replies(runs, response).unwrap_or_default().into_iter();
        let (calls, mut unreached) = (pending.len(), Vec::new());
        for mut pending in pending {
            match outcomes.next() {
                Some(Ok(outcome)) => {
                    let sent_at = sent_at.filter(|_| pending.clock == ScriptClock::Server);
                    self.local.replied(&pending.request, &outcome, sent_at);
                    for (waiter, verdicts) in pending.waiters.iter_mut().zip(outcome.verdicts) {
                        waiter.respond(Ok(verdicts));
                    }
                }
                Some(Err(error)) if keys == CommandKeys::AnySlotOfNode && script::is_unreached(&error) => {
                    unreached.extend(pending.request.key().map(CellKey::slot));
                    self.fail(&mut pending, &SendError::Unreached(error));
                }
                Some(Err(error)) if error.detail().and_then(store_clock::stated_time).is_some() => {
                    self.command_failed(vec![pending], error, None);
                }
                Some(Err(error)) => {
                    record(&error);
                    self.fail(&mut pending, &SendError::Failed(error));
                }
                None => self.fail(&mut pending, &SendError::MalformedReply),
            }
        }
        if keys == CommandKeys::AnySlotOfNode {
            metrics::UNREACHED.add(unreached.len() as u64);
            self.across_slots.decided(calls.saturating_sub(unreached.len()), &unreached, Instant::now());
        }
    }
}

/// A queued or sent request, boxed since it is moved several times.
pub(super) type BoxedRequest = Box<PendingRequest>;

/// A request and all callers that made it.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: TagRequest,
    pub(super) clock: ScriptClock,
    pub(super) waiters: SmallVec<[Waiter; 1]>,
    /// Number of times it was sent to a server without the script.
    pub(super) attempts: u32,
    /// Hash of the request, if it can be coalesced.
    pub(super) hash: Option<u64>,
    pub(super) attachment: Attachment,
}

/// A caller that waits for a response.
#[derive(Debug)]
pub(super) struct Waiter {
    sender: Option<oneshot::Sender<DecisionResult>>,
    deadline: Instant,
    /// Set when the deadline passed while the request was in flight.
    late: Option<LateReply>,
}

impl PendingRequest {
    pub(super) fn new(request: TagRequest, clock: ScriptClock, first: Waiter, hash: Option<u64>) -> Self {
        let waiters = SmallVec::from_iter([first]);
        Self { request, clock, waiters, attempts: 0, hash, attachment: Attachment::default() }
    }

    /// Number of repetitions of the request.
    pub(super) fn times(&self) -> u16 {
        u16::try_from(self.waiters.len()).unwrap_or(u16::MAX)
    }

    /// Sends an error to all callers.
    pub(super) fn fail(&mut self, error: &SendError) {
        self.waiters.iter_mut().for_each(|waiter| waiter.respond(Err(error.clone())));
    }

    /// Sends an error to the callers whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, error: &SendError) {
        let expired = self.waiters.iter_mut().filter(|waiter| waiter.deadline <= now);
        expired.for_each(|waiter| waiter.respond(Err(error.clone())));
    }

    /// Sends a time-out to the callers whose deadline has passed: the request is in flight, and its reply still awaited.
    pub(super) fn time_out(&mut self, now: Instant) {
        self.waiters.iter_mut().filter(|waiter| waiter.deadline <= now).for_each(Waiter::time_out);
    }

    /// Whether a caller waits whose deadline has passed.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.waiters.iter().any(|waiter| waiter.deadline <= now && waiter.is_waiting())
    }

    /// Earliest deadline of the waiting callers.
    pub(super) fn earliest_deadline(&self) -> Option<Instant> {
        self.waiters.iter().filter(|waiter| waiter.is_waiting()).map(|waiter| waiter.deadline).min()
    }

    /// Whether no caller waits any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.waiters.iter().all(|waiter| !waiter.is_waiting())
    }

    /// Drops callers that stopped waiting; returns whether others remain. Only for a request that is not in flight.
    pub(super) fn retain_waiting(&mut self) -> bool {
        self.waiters.retain(|waiter| {
            let is_waiting = waiter.is_waiting();
            if let Some(late) = waiter.late.take_if(|_| !is_waiting) {
                late.arrived(LateOutcome::NotCharged);
            }
            is_waiting
        });
        !self.waiters.is_empty()
    }
}

impl Waiter {
    pub(super) const fn new(sender: oneshot::Sender<DecisionResult>, deadline: Instant) -> Self {
        Self { sender: Some(sender), deadline, late: None }
    }

    pub(super) fn respond(&mut self, response: DecisionResult) {
        if let Some(sender) = self.sender.take() {
            // Fails when the caller is dropped.
            let _ = sender.send(response);
        } else if let Some(late) = self.late.take() {
            match response {
                Ok(verdicts) => late.arrived(LateOutcome::Decided(verdicts)),
                Err(error) if error.charged_nothing() => late.arrived(LateOutcome::NotCharged),
                Err(_) => {}
            }
        }
    }

    fn time_out(&mut self) {
        let late = LateReply::default();
        if let Some(sender) = self.sender.take()
            && sender.send(Err(SendError::Late(late.clone()))).is_ok()
        {
            self.late = Some(late);
        }
    }

    /// Whether the caller still waits.
    fn is_waiting(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }
}
