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
        connection::{Connection, Current, SendError},
        local::Local,
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
    /// Over which connection.
    connection: u64,
    sent_at: Instant,
    /// What each command has.
    commands: Vec<Vec<Box<Group>>>,
    /// Whether the write began with the script itself.
    tells_script: bool,
}

/// What is to be sent.
struct Departure {
    number: u64,
    pipeline: Pipeline,
    /// When nobody waits for an answer any more.
    deadline: Instant,
}

struct Driver {
    shared: Arc<Shared>,
    terms: Terms,
    local: Arc<Local>,
    /// The connection over which all was learned that is known. Another one may lead to another server, of which
    /// nothing is.
    connection: u64,
    /// What is under way, oldest first.
    flights: Vec<Flight>,
    /// Calls that a server did nothing about because it does not know the script.
    again: Vec<Box<Group>>,
    sent: u64,
}

/// Sends and answers until no handle is left.
pub(super) async fn drive(shared: Arc<Shared>, connection: Connection, terms: Terms, local: Arc<Local>) {
    let (flights, again) = (Vec::new(), Vec::new());
    let mut driver =
        Driver { shared: Arc::clone(&shared), terms, local, connection: 0, flights, again, sent: 0 };
    let mut answers = FuturesUnordered::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !shared.is_closed.load(Ordering::Acquire) {
        if answers.len() < MOST_FLIGHTS
            && let Some(mut over) = driver.way(&connection)
            && let Some(Departure { number, pipeline, deadline }) = driver.depart()
        {
            let connection = connection.clone();
            answers.push(async move {
                let answer = timeout_at(deadline, connection.send_all(&mut over, &pipeline)).await;
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

    /// The way to the server; where there is none, who waits is told so.
    fn way(&mut self, connection: &Connection) -> Option<Current> {
        match connection.current()? {
            Ok(current) => {
                if self.connection != current.number {
                    self.connection = current.number;
                    self.local.forget_all();
                }
                Some(current)
            }
            Err(error) => {
                self.again.drain(..).for_each(|mut group| group.fail(&error));
                self.shared.queue.lock().fail(&error);
                None
            }
        }
    }

    /// Takes off with what waits.
    fn depart(&mut self) -> Option<Departure> {
        let now = Instant::now();
        let tells_script = !self.again.is_empty();
        let mut groups = mem::take(&mut self.again);
        groups.retain_mut(|group| group.keep_waiting());
        while groups.len() < MOST_IN_FLIGHT {
            let mut taken = self.shared.queue.lock().take(MOST_IN_FLIGHT.saturating_sub(groups.len()));
            if taken.is_empty() {
                break;
            }
            taken.retain_mut(|group| self.prepare(group, now));
            groups.append(&mut taken);
        }
        let deadline = groups.iter().filter_map(|group| group.deadline()).max()?;
        let commands = self.arrange(groups);
        let mut pipeline = Pipeline::with_capacity(commands.len().saturating_add(1));
        if tells_script {
            pipeline.add_command(script::load());
        }
        for groups in &commands {
            let clock = groups.first().map(|group| group.clock).unwrap_or_default();
            pipeline.add_command(self.terms.command(groups.iter().map(|group| run(group)), clock));
        }
        let callers = commands.iter().flatten().map(|group| group.riders.len()).sum::<usize>();
        let calls = commands.iter().map(Vec::len).sum::<usize>();
        metrics::redis_sent(commands.len(), calls, callers.saturating_sub(calls));
        self.sent = self.sent.wrapping_add(1);
        let (number, connection) = (self.sent, self.connection);
        self.flights.push(Flight { number, connection, sent_at: now, commands, tells_script });
        Some(Departure { number, pipeline, deadline })
    }

    /// Answers those for whom there are tokens by now; says whether there are others, with what is charged ahead for
    /// them.
    fn prepare(&self, group: &mut Group, now: Instant) -> bool {
        if group.clock != ScriptClock::Server {
            return true;
        }
        let mut served = 0;
        for rider in &mut group.riders {
            let Some(verdicts) = self.local.decide_again(&group.call, now) else { break };
            rider.answer(Ok(verdicts));
            served = usize::saturating_add(served, 1);
        }
        group.riders.drain(..served);
        if !group.riders.is_empty() {
            group.wishes = self.local.wishes(&group.call, now);
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
        let Flight { connection: number, sent_at, commands, .. } = flight;
        for groups in commands {
            match answers.next() {
                Some(Value::ServerError(error)) => {
                    let error = RedisError::from(error);
                    connection.note(&error, number);
                    self.refused(groups, error);
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
    fn lost(&self, flight: Flight, error: &SendError) {
        for mut group in flight.commands.into_iter().flatten() {
            self.fail(&mut group, error);
        }
    }

    fn fail(&self, group: &mut Group, error: &SendError) {
        self.local.forget(&group.call);
        group.fail(error);
    }

    /// A server refused a command, and did nothing, or nothing that is known.
    fn refused(&mut self, groups: Vec<Box<Group>>, error: RedisError) {
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

    /// Hands out what came of a command, and learns from it if that is told when it was sent.
    fn answered(
        &self,
        groups: Vec<Box<Group>>,
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
                    for (rider, verdicts) in group.riders.iter_mut().zip(outcome.verdicts) {
                        rider.answer(Ok(verdicts));
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
