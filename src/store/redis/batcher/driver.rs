//! The task that sends what waits, and hands the answers out.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ::redis::{Pipeline, RedisError, Value};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::{Shared, Terms, queue::Group};
use crate::{
    metrics,
    store::redis::{
        ScriptClock,
        connection::{Connection, SendError},
        script::{self, Run},
    },
};

/// Writes that may await their answers at the same time. With one, the server has nothing to do while its answers are
/// handed out; with more, less travels in each.
const MOST_FLIGHTS: usize = 2;

/// Calls in a write at the most: about a millisecond of the server's time.
const MOST_IN_FLIGHT: usize = 512;

/// How late a caller may be told that its time is over.
const TICK: Duration = Duration::from_millis(1);

/// How often a call may meet a server that does not know the script: it may be told it and made to forget it again.
const MOST_ATTEMPTS: u32 = 3;

/// What was sent in one write.
struct Flight {
    number: u64,
    sent_at: Instant,
    /// What each command has.
    commands: Vec<Vec<Box<Group>>>,
    /// Whether the write began with the script itself.
    tells_script: bool,
}

struct Driver {
    shared: Arc<Shared>,
    terms: Terms,
    /// What is under way, oldest first.
    flights: Vec<Flight>,
    /// Calls that a server did nothing about because it does not know the script.
    again: Vec<Box<Group>>,
    sent: u64,
}

/// Sends and answers until no handle is left.
pub(super) async fn drive(shared: Arc<Shared>, connection: Connection, terms: Terms) {
    let mut driver =
        Driver { shared: Arc::clone(&shared), terms, flights: Vec::new(), again: Vec::new(), sent: 0 };
    let mut answers = FuturesUnordered::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !shared.is_closed.load(Ordering::Acquire) {
        if answers.len() < MOST_FLIGHTS
            && let Some((number, pipeline, deadline)) = driver.depart(&connection)
        {
            let connection = connection.clone();
            answers.push(async move {
                let answer = timeout_at(deadline, connection.send_all(&pipeline)).await;
                (number, answer.unwrap_or(Err(SendError::Late)))
            });
            continue;
        }
        tokio::select! {
            Some((number, answer)) = answers.next(), if !answers.is_empty() => driver.land(number, answer, &connection),
            () = shared.news.notified() => {}
            _ = ticks.tick(), if driver.is_waited_for() => driver.expire(Instant::now()),
        }
    }
}

impl Driver {
    fn is_waited_for(&self) -> bool {
        !self.flights.is_empty() || !self.again.is_empty() || !self.shared.queue.lock().is_empty()
    }

    /// Takes off with what waits, if there is a way to the server; where there is none, who waits is told so.
    fn depart(&mut self, connection: &Connection) -> Option<(u64, Pipeline, Instant)> {
        if let Err(error) = connection.readiness()? {
            self.terms.local.forget_all();
            self.again.drain(..).for_each(|mut group| group.fail(&error));
            self.shared.queue.lock().fail(&error);
            return None;
        }
        let tells_script = !self.again.is_empty();
        let mut groups = mem::take(&mut self.again);
        groups.retain_mut(|group| group.keep_waiting());
        groups.extend(self.shared.queue.lock().take(MOST_IN_FLIGHT.saturating_sub(groups.len())));
        let now = Instant::now();
        groups.retain_mut(|group| self.prepare(group, now));
        let deadline = groups.iter().filter_map(|group| group.deadline()).max()?;
        let commands = self.arrange(groups);
        let mut pipeline = Pipeline::with_capacity(commands.len().saturating_add(1));
        if tells_script {
            pipeline.add_command(script::load());
        }
        for groups in &commands {
            let clock = groups.first().map(|group| group.clock).unwrap_or_default();
            pipeline.add_command(script::command(
                &self.terms.key_prefix,
                groups.iter().map(|group| run(group)),
                clock,
            ));
        }
        let callers = commands.iter().flatten().map(|group| group.riders.len()).sum::<usize>();
        let calls = commands.iter().map(Vec::len).sum::<usize>();
        metrics::redis_sent(commands.len(), calls, callers.saturating_sub(calls));
        self.sent = self.sent.wrapping_add(1);
        self.flights.push(Flight { number: self.sent, sent_at: now, commands, tells_script });
        Some((self.sent, pipeline, deadline))
    }

    /// Answers those for whom there are tokens by now; says whether there are others, with what is charged ahead for
    /// them.
    fn prepare(&self, group: &mut Group, now: Instant) -> bool {
        if group.clock != ScriptClock::Server {
            return true;
        }
        let local = &self.terms.local;
        let mut served = 0;
        for rider in &mut group.riders {
            let Some(verdicts) = local.decide_again(&group.call, now) else { break };
            rider.answer(Ok(verdicts));
            served = usize::saturating_add(served, 1);
        }
        group.riders.drain(..served);
        if !group.riders.is_empty() {
            group.wishes = local.wishes(&group.call, now);
        }
        !group.riders.is_empty()
    }

    /// Distributes calls over commands: those of a command are decided by the same clock.
    fn arrange(&self, groups: Vec<Box<Group>>) -> Vec<Vec<Box<Group>>> {
        let mut commands: Vec<Vec<Box<Group>>> =
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

    /// Hands out what came of a flight.
    fn land(&mut self, number: u64, answer: Result<Vec<Value>, SendError>, connection: &Connection) {
        let Some(at) = self.flights.iter().position(|flight| flight.number == number) else { return };
        let flight = self.flights.remove(at);
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => return self.lost(flight, &error),
        };
        // Whether the server took the script shows in what it answers to the calls.
        let mut answers = answers.into_iter().skip(usize::from(flight.tells_script));
        for groups in flight.commands {
            match answers.next() {
                Some(Value::ServerError(error)) => self.refused(groups, RedisError::from(error), connection),
                Some(answer) => self.answered(groups, answer, flight.sent_at, connection),
                None => groups.into_iter().for_each(|mut group| self.fail(&mut group, &SendError::Garbled)),
            }
        }
    }

    /// Nobody knows what came of a flight.
    fn lost(&self, flight: Flight, error: &SendError) {
        // The next answers may be those of another server, which knows less.
        if !matches!(error, SendError::Late) {
            self.terms.local.forget_all();
        }
        for mut group in flight.commands.into_iter().flatten() {
            self.fail(&mut group, error);
        }
    }

    fn fail(&self, group: &mut Group, error: &SendError) {
        self.terms.local.forget(&group.call);
        group.fail(error);
    }

    /// A server refused a command, and did nothing, or nothing that is known.
    fn refused(&mut self, groups: Vec<Box<Group>>, error: RedisError, connection: &Connection) {
        connection.note(&error);
        let error = SendError::Failed(error);
        let may_repeat = error.is_unknown_script();
        for mut group in groups {
            group.attempts = group.attempts.saturating_add(1);
            match may_repeat && group.attempts < MOST_ATTEMPTS {
                true => self.again.push(group),
                false => self.fail(&mut group, &error),
            }
        }
    }

    fn answered(&self, groups: Vec<Box<Group>>, answer: Value, sent_at: Instant, connection: &Connection) {
        let outcomes =
            script::read_replies(groups.iter().map(|group| run(group)), answer).unwrap_or_default();
        let mut outcomes = outcomes.into_iter();
        for mut group in groups {
            match outcomes.next() {
                Some(Ok(outcome)) => {
                    if group.clock == ScriptClock::Server {
                        self.terms.local.learn(&group.call, sent_at, &outcome);
                    }
                    for (rider, verdicts) in group.riders.iter_mut().zip(outcome.verdicts) {
                        rider.answer(Ok(verdicts));
                    }
                }
                Some(Err(error)) => {
                    connection.note(&error);
                    self.fail(&mut group, &SendError::Failed(error));
                }
                None => self.fail(&mut group, &SendError::Garbled),
            }
        }
    }

    /// Tells those whose time is over so.
    fn expire(&mut self, now: Instant) {
        let under_way = self.flights.iter_mut().flat_map(|flight| &mut flight.commands).flatten();
        under_way.for_each(|group| group.expire(now, &SendError::Late));
        self.again.iter_mut().for_each(|group| group.expire(now, &SendError::Unsent));
        self.shared.queue.lock().expire(now);
    }
}

fn run(group: &Group) -> Run<'_> {
    Run { call: &group.call, times: group.times(), wishes: &group.wishes }
}
