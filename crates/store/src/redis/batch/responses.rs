//! What comes back: each caller gets the verdict of its turn, or the reason why there is none.

use ::redis::{RedisError, Value};
use tokio::time::Instant;

use super::{
    driver::{Driver, run},
    group::{Group, Waiting},
};
use crate::redis::{
    ScriptClock,
    connection::{Connection, SendError},
    script,
};

/// How often a call may meet a server that does not know the script: it may be told it and made to forget it again.
const MAX_ATTEMPTS: u32 = 3;

/// What was sent in one write.
pub(super) struct InFlight {
    pub(super) number: u64,
    /// Over which connection.
    pub(super) connection: u64,
    pub(super) sent_at: Instant,
    /// What each command has.
    pub(super) commands: Vec<Vec<Waiting>>,
    /// Whether the write began with the script itself.
    pub(super) tells_script: bool,
}

impl InFlight {
    fn calls(&self) -> usize {
        self.commands.iter().map(Vec::len).sum()
    }
}

impl Driver {
    /// Hands out what came of a flight.
    pub(super) fn complete(
        &mut self,
        number: u64,
        answer: Result<Vec<Value>, SendError>,
        connection: &Connection,
    ) {
        let Some(at) = self.in_flight.iter().position(|batch| batch.number == number) else { return };
        let batch = self.in_flight.remove(at);
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => {
                if error.is_lasting() {
                    self.disconnected(batch.connection);
                }
                let is_present = batch.connection == self.connection;
                self.fail_batch(batch, &error);
                if is_present && matches!(error, SendError::Late) && self.breaker.cause().is_none() {
                    self.missed_answer();
                }
                return;
            }
        };
        self.recovered(batch.connection);
        self.shared.queue.lock().latency.landed(batch.calls(), batch.sent_at, Instant::now());
        let mut answers = answers.into_iter();
        let InFlight { connection: number, sent_at, commands, tells_script, .. } = batch;
        // Why the server does not know the script, if it was not taken.
        let reason = match tells_script.then(|| answers.next()).flatten() {
            Some(Value::ServerError(error)) => Some(RedisError::from(error)),
            Some(_) | None => None,
        };
        for groups in commands {
            match answers.next() {
                Some(Value::ServerError(error)) => {
                    let error = RedisError::from(error);
                    connection.note(&error, number);
                    self.refused(groups, error, reason.as_ref());
                }
                Some(answer) => {
                    let note = |error: &RedisError| connection.note(error, number);
                    // What another server said is not true of this one.
                    let sent_at = (number == self.connection).then_some(sent_at);
                    self.answered(groups, answer, sent_at, note);
                }
                None => groups.into_iter().for_each(|mut group| self.fail(&mut group, &SendError::Garbled)),
            }
        }
    }

    /// Nobody knows what came of a flight.
    pub(super) fn fail_batch(&self, batch: InFlight, error: &SendError) {
        self.shared.queue.lock().latency.fail_batch(batch.calls());
        for mut group in batch.commands.into_iter().flatten() {
            self.fail(&mut group, error);
        }
    }

    fn fail(&self, group: &mut Group, error: &SendError) {
        self.local.forget(&group.call);
        group.fail(error);
    }

    /// A server refused a command, and did nothing, or nothing that is known. If it refused the script itself, that is
    /// the reason.
    fn refused(&mut self, groups: Vec<Waiting>, error: RedisError, reason: Option<&RedisError>) {
        let (error, may_repeat) = match (SendError::Failed(error), reason) {
            (error, Some(reason)) if error.is_unknown_script() => (SendError::Failed(reason.clone()), false),
            (error, _) => {
                let is_unknown = error.is_unknown_script();
                (error, is_unknown)
            }
        };
        for mut group in groups {
            group.attempts = group.attempts.saturating_add(1);
            match may_repeat && group.attempts < MAX_ATTEMPTS {
                true => self.again.push(group),
                false => self.fail(&mut group, &error),
            }
        }
    }

    /// Hands out what came of a command, and learns from it if that is told when it was sent.
    fn answered(
        &self,
        groups: Vec<Waiting>,
        answer: Value,
        sent_at: Option<Instant>,
        note: impl Fn(&RedisError),
    ) {
        let runs = groups.iter().map(|group| run(group));
        let mut outcomes = script::read_replies(runs, answer).unwrap_or_default().into_iter();
        for mut group in groups {
            match outcomes.next() {
                Some(Ok(outcome)) => {
                    if let Some(sent_at) = sent_at.filter(|_| group.clock == ScriptClock::Server) {
                        self.local.learn(&group.call, sent_at, &outcome);
                    }
                    for (waiter, verdicts) in group.waiters.iter_mut().zip(outcome.verdicts) {
                        waiter.answer(Ok(verdicts));
                    }
                }
                Some(Err(error)) => {
                    note(&error);
                    self.fail(&mut group, &SendError::Failed(error));
                }
                None => self.fail(&mut group, &SendError::Garbled),
            }
        }
    }
}
