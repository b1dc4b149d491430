//! The distribution of the responses to a write: each caller gets the verdict of its repetition, or an error.

use ::redis::{RedisError, Value};
use tokio::time::Instant;

use super::Command;
use super::driver::{Batch, Driver};
use super::queue::{BoxedRequest, PendingRequest};
use crate::key::CellKey;
use crate::redis::error::{self, SendError};
use crate::redis::script::{self, CommandKeys};
use crate::redis::{connection::Connection, metrics, store_clock};

/// Maximum number of times a request is sent to a server without the script, which may be loaded and flushed again, or with
/// the windows of another time.
const MAX_ATTEMPTS: u32 = 3;

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
                    // Replies of another server, or at another time, are not cached for this one.
                    let is_cached = pending.first().is_none_or(|first| first.fixed.is_none());
                    let sent_at = (is_cached && generation == self.generation).then_some(sent_at);
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
        let runs = pending.iter().map(|pending| pending.run());
        let mut outcomes = script::read_replies(runs, response).unwrap_or_default().into_iter();
        let (calls, mut unreached) = (pending.len(), Vec::new());
        for mut pending in pending {
            match outcomes.next() {
                Some(Ok(outcome)) => {
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
