//! A connection to one server, and the background task that maintains it.

use std::time::{Duration, Instant};
use std::{convert::Infallible, future::pending, sync::Arc};

use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, Value, aio::MultiplexedConnection, cmd};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tollgate_runtime::{backoff::Backoff, log_budget::LogBudget, outage::OutageLog, redact};

use super::error::{SendError, needs_reconnect};
use super::script::{self, check_error};
use super::servers::{Counted, Server};
use super::targets::Target;

/// Pause after a first failed attempt to connect.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);

/// Longest pause between attempts to connect: the delay with which a recovered server may be noticed.
const MAX_BACKOFF: Duration = Duration::from_millis(200);

/// Time that a connection has to last before its recovery is logged.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Interval of the probes of an open connection.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// Deadline of a probe. Probes detect a peer that vanished without closing the connection, however few the requests
/// and however short their deadlines are.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Log lines on connections that fail at once.
const MAX_FAILURE_LINES: u32 = 16;

/// Time after which one more is logged.
const FAILURE_LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A handle on the connection; clones share it. The task ends with the last handle.
#[derive(Clone)]
pub(super) struct Connection {
    state: watch::Receiver<ConnectionState>,
    /// Generation of the latest connection that was found broken.
    broken: watch::Sender<u64>,
}

/// One of the successive connections, each of which may lead to another server.
#[derive(Clone)]
pub(super) struct LiveConnection {
    connection: MultiplexedConnection,
    pub(super) generation: u64,
}

/// State published by the task.
#[derive(Clone)]
pub(super) enum ConnectionState {
    /// First attempt in progress: requests wait for it.
    Connecting,
    /// Connected, with the generation of the connection.
    Up(MultiplexedConnection, u64),
    /// Attempts fail, for this reason: requests fail at once.
    Down(String),
}

impl Connection {
    /// Connects in the background and reconnects when necessary.
    pub(super) fn open(target: Target, server: Arc<Server>, failure_lines: Arc<LogBudget>) -> Self {
        let (report, state) = watch::channel(ConnectionState::Connecting);
        let (broken, breaks) = watch::channel(0);
        let gauge = Counted::new(server, |entry| &mut entry.connecting);
        let (generation, outage) = (0, OutageLog::default());
        let task = Reconnector { target, report, breaks, generation, outage, failure_lines, gauge };
        tokio::spawn(task.run());
        Self { state, broken }
    }

    /// Sends a command once and awaits its reply.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, SendError> {
        let LiveConnection { mut connection, generation } = self.connection().await?;
        // An error reply arrives as a value.
        let reply = connection.send_packed_command(command).await.and_then(check_error);
        self.replied(reply, generation)
    }

    /// A reply on the connection `generation`, which is replaced if the reply shows that it has to be.
    fn replied(&self, reply: Result<Value, RedisError>, generation: u64) -> Result<Value, SendError> {
        if reply.as_ref().map_or_else(needs_reconnect, reply_needs_reconnect) {
            self.mark_broken(generation);
        }
        reply.map_err(SendError::Failed)
    }

    /// Sends a command that runs a script, and again once `load` has loaded the script if the server lacks it.
    pub(super) async fn send_script(&self, command: &Cmd, load: &Cmd) -> Result<Value, SendError> {
        match self.send(command).await {
            Err(error) if error.is_unknown_script() => {
                self.send(load).await?;
                self.send(command).await
            }
            reply => reply,
        }
    }

    /// Sends a command once, preceded by `ASKING`, which lets a node execute it while it imports the keys, and awaits
    /// its reply.
    pub(super) async fn send_asking(&self, command: &Cmd) -> Result<Value, SendError> {
        let LiveConnection { mut connection, generation } = self.connection().await?;
        let mut commands = Pipeline::with_capacity(2);
        commands.cmd("ASKING").add_command(command.clone());
        let reply = connection.send_packed_commands(&commands, 0, 2).await.and_then(asking_reply);
        self.replied(reply, generation)
    }

    /// Sends commands in one write, once, and awaits their replies; an error among these is a value.
    pub(super) async fn send_all(
        &self,
        live: &mut LiveConnection,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, SendError> {
        let replies = live.connection.send_packed_commands(commands, 0, commands.len()).await;
        if replies.as_ref().is_err_and(needs_reconnect) {
            self.mark_broken(live.generation);
        }
        replies.map_err(SendError::Failed)
    }

    /// Waits for any response on a connection: the server first answers all earlier commands. Returns the generation of
    /// the connection.
    ///
    /// # Errors
    /// The generation as well, when the connection broke.
    pub(super) async fn probe(&self, mut live: LiveConnection) -> Result<u64, u64> {
        match live.connection.send_packed_command(&script::probe()).await {
            Ok(_) => Ok(live.generation),
            Err(_) => {
                self.mark_broken(live.generation);
                Err(live.generation)
            }
        }
    }

    /// Records an error reply on the connection `generation`: a connection to a server that takes no writes is
    /// replaced.
    pub(super) fn record_error(&self, error: &RedisError, generation: u64) {
        if needs_reconnect(error) {
            self.mark_broken(generation);
        }
    }

    /// The states of the connection, now and later. Not a handle.
    pub(super) fn states(&self) -> watch::Receiver<ConnectionState> {
        self.state.clone()
    }

    /// Waits until the first attempt to connect has ended.
    pub(super) async fn first_attempt(&self) {
        // Fails when the task has ended, and waiting is useless.
        let _ = self.state.clone().wait_for(|state| !matches!(state, ConnectionState::Connecting)).await;
    }

    /// Whether a command would be sent at once.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), ConnectionState::Up(..))
    }

    /// Waits until there is a connection (true), or no handle any more (false). The future is not a handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut state = self.state.clone();
        async move { state.wait_for(|state| matches!(state, ConnectionState::Up(..))).await.is_ok() }
    }

    /// Has the task replace the connection `generation`, unless it was replaced already.
    fn mark_broken(&self, generation: u64) {
        self.broken.send_if_modified(|broken| {
            let is_new = generation > *broken;
            *broken = generation.max(*broken);
            is_new
        });
    }

    /// The connection, after the first attempt to connect.
    async fn connection(&self) -> Result<LiveConnection, SendError> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, ConnectionState::Connecting)).await;
        let current = settled.ok().and_then(|state| state.current());
        current.unwrap_or_else(|| Err(SendError::NotConnected("shutting down".into())))
    }
}

impl ConnectionState {
    /// The current connection, or the reason for its absence; `None` before the end of the first attempt.
    pub(super) fn current(&self) -> Option<Result<LiveConnection, SendError>> {
        match self {
            Self::Connecting => None,
            Self::Up(connection, generation) => {
                Some(Ok(LiveConnection { connection: connection.clone(), generation: *generation }))
            }
            Self::Down(reason) => Some(Err(SendError::NotConnected(reason.clone()))),
        }
    }
}

/// The second of two replies, unless the first explains an error in it.
fn asking_reply(replies: Vec<Value>) -> Result<Value, RedisError> {
    let mut replies = replies.into_iter().map(check_error);
    match (replies.next(), replies.next()) {
        // If the node owns the keys by now, `ASKING` may fail and the command succeed.
        (_, Some(Ok(reply))) => Ok(reply),
        (Some(Err(error)), Some(Err(_))) => Err(error),
        (_, Some(Err(error))) => Err(error),
        (_, None) => Err((ErrorKind::UnexpectedReturnType, "one reply to two commands").into()),
    }
}

/// Whether the reply contains such an error for one of several requests.
fn reply_needs_reconnect(reply: &Value) -> bool {
    let Value::Array(parts) = reply else { return false };
    parts
        .iter()
        .any(|part| matches!(part, Value::ServerError(error) if needs_reconnect(&error.clone().into())))
}

/// Log lines on connections that fail, for all connections of a store: nodes of a cluster can name others without end.
pub(super) fn failure_lines() -> Arc<LogBudget> {
    Arc::new(LogBudget::new(MAX_FAILURE_LINES, FAILURE_LINE_INTERVAL))
}

/// Background task of a connection.
struct Reconnector {
    target: Target,
    report: watch::Sender<ConnectionState>,
    breaks: watch::Receiver<u64>,
    /// Number of connections made so far.
    generation: u64,
    outage: OutageLog,
    failure_lines: Arc<LogBudget>,
    gauge: Counted,
}

impl Reconnector {
    /// Connects, and reconnects whenever the connection is found broken, until the last handle is dropped.
    async fn run(mut self) {
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        loop {
            match self.target.connect().await {
                Ok(connection) => {
                    let started = Instant::now();
                    let Ok(reason) = self.serve(connection).await else { return };
                    self.report.send_replace(ConnectionState::Down("connection closed".into()));
                    if self.outage.failed()
                        && let Some(suppressed) = self.failure_lines.take()
                    {
                        tracing::warn!(server = %self.target, reason, suppressed, "Redis connection lost");
                    }
                    // A connection that breaks at once, as to a server that takes no writes, does not reset the
                    // backoff.
                    if started.elapsed() > MAX_BACKOFF {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    let error = redact::bounded(&error.to_string());
                    if self.outage.failed()
                        && let Some(suppressed) = self.failure_lines.take()
                    {
                        tracing::warn!(server = %self.target, %error, suppressed, "Redis connection failed");
                    }
                    self.report.send_replace(ConnectionState::Down(error));
                }
            }
            self.gauge.set(|entry| &mut entry.down);
            tokio::select! {
                () = sleep(backoff.pause()) => {}
                // Ends when no handle is left.
                () = async { while self.breaks.changed().await.is_ok() {} } => return,
            }
        }
    }

    /// Publishes the connection, and those that replace it, until one breaks. Returns the reason.
    ///
    /// # Errors
    /// The last handle was dropped.
    async fn serve(
        &mut self,
        mut connection: MultiplexedConnection,
    ) -> Result<&'static str, watch::error::RecvError> {
        loop {
            let server = self.target.to_string();
            self.gauge.set(|entry| &mut entry.up);
            let Self { target, report, breaks, generation, outage, .. } = &mut *self;
            *generation = generation.saturating_add(1);
            report.send_replace(ConnectionState::Up(connection.clone(), *generation));
            let recovery = async {
                sleep(SETTLE_TIME).await;
                if outage.recovered() {
                    tracing::info!(%server, "Redis connection recovered");
                }
                pending::<Infallible>().await
            };
            tokio::select! {
                disconnected = breaks.wait_for(|broken| broken >= generation) => {
                    return disconnected.map(|_| "broken");
                }
                reason = probe_until_broken(connection.clone()) => return Ok(reason),
                other = target.wait_for_failover() => connection = other,
                never = recovery => match never {},
            }
        }
    }
}

/// Probes the connection until a response is overdue, or is that to another command: every later reply would then be too.
/// Returns the reason, for logs.
async fn probe_until_broken(mut connection: MultiplexedConnection) -> &'static str {
    let mut number = 0_u64;
    loop {
        sleep(PROBE_INTERVAL).await;
        number = number.wrapping_add(1);
        let text = number.to_string();
        let mut ping = cmd("PING");
        ping.arg(&text);
        match timeout(PROBE_TIMEOUT, connection.send_packed_command(&ping)).await {
            Ok(Ok(reply)) if is_reply_of_another(&reply, &text) => return "replies out of order",
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return "broken",
            Err(_) => return "no response to a probe",
        }
    }
}

/// Whether a reply is not that to `PING` with a text. An error is: it shows that the server responds. A proxy may answer
/// without the text.
fn is_reply_of_another(reply: &Value, text: &str) -> bool {
    match reply {
        Value::BulkString(bytes) => bytes != text.as_bytes(),
        Value::SimpleString(word) => word != "PONG" && word != text,
        Value::ServerError(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_to_another_command_is_recognized() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let error = ::redis::parse_redis_value(b"-LOADING dataset\r\n").expect("a reply");
        for reply in [bulk("7"), Value::SimpleString("PONG".into()), error] {
            assert!(!is_reply_of_another(&reply, "7"), "{reply:?}");
        }
        for reply in [
            bulk("6"),
            bulk("\0\x01"),
            bulk(""),
            Value::Array(vec![]),
            Value::Int(7),
            Value::Nil,
            Value::Okay,
        ] {
            assert!(is_reply_of_another(&reply, "7"), "{reply:?}");
        }
    }
}
