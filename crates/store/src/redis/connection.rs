//! A connection to one server, maintained by a background task (`reconnect`).

use std::{fmt, sync::Arc};

use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection};
use tokio::sync::watch;
use tollgate_runtime::log_budget::LogBudget;

use super::{
    error::{is_demoted, shown},
    reconnect::Reconnector,
    script::{self, check_error},
    servers::Server,
    target::Target,
};
use crate::LateReply;

/// A handle on the connection; clones share it. The task ends with the last handle.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<SharedConnection>,
}

struct SharedConnection {
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

/// Reason why a command has no reply.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SendError {
    /// Not sent: no connection.
    #[error("not connected: {0}")]
    NotConnected(String),
    /// Not sent: the deadline passed in the queue.
    #[error("timed out in the queue")]
    QueueTimeout,
    /// Not sent: the server owes responses.
    #[error("circuit breaker open")]
    BreakerOpen,
    /// Not sent: too many requests are queued.
    #[error("too many requests queued")]
    Overloaded,
    /// Sent; the reply is an error, or the connection broke.
    #[error("{}", shown(.0))]
    Failed(RedisError),
    /// Sent; the deadline passed before the response.
    #[error("no response in time")]
    Timeout,
    /// Sent; the deadline passed before the response, which is still awaited.
    #[error("no response in time")]
    Late(LateReply),
    /// Sent; the reply is not of the agreed form.
    #[error("malformed reply")]
    MalformedReply,
    /// Not executed: keys were migrating between nodes until the deadline.
    #[error("{}", shown(.0))]
    SlotMigrating(RedisError),
    /// Not executed: the node of a command on several slots does not serve this one, or did not have the keys.
    #[error("{}", shown(.0))]
    Unreached(RedisError),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects in the background and reconnects when necessary.
    pub(super) fn open(target: Target, server: Arc<Server>, failure_lines: Arc<LogBudget>) -> Self {
        let (report, state) = watch::channel(ConnectionState::Connecting);
        let (broken, breaks) = watch::channel(0);
        tokio::spawn(Reconnector::new(target, server, (report, breaks), failure_lines).run());
        Self { shared: Arc::new(SharedConnection { state, broken }) }
    }

    /// Sends a command once and awaits its reply.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, SendError> {
        let LiveConnection { mut connection, generation } = self.connection().await?;
        // An error reply arrives as a value.
        let reply = connection.send_packed_command(command).await.and_then(check_error);
        if reply.as_ref().map_or_else(needs_reconnect, reply_needs_reconnect) {
            self.mark_broken(generation);
        }
        reply.map_err(SendError::Failed)
    }

    /// Sends a command once, preceded by `ASKING`, which lets a node execute it while it imports the keys, and awaits
    /// its reply.
    pub(super) async fn send_asking(&self, command: &Cmd) -> Result<Value, SendError> {
        let LiveConnection { mut connection, generation } = self.connection().await?;
        let mut commands = Pipeline::with_capacity(2);
        commands.cmd("ASKING").add_command(command.clone());
        let reply = connection.send_packed_commands(&commands, 0, 2).await.and_then(asking_reply);
        if reply.as_ref().map_or_else(needs_reconnect, reply_needs_reconnect) {
            self.mark_broken(generation);
        }
        reply.map_err(SendError::Failed)
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
        self.shared.state.clone()
    }

    /// Waits until the first attempt to connect has ended.
    pub(super) async fn first_attempt(&self) {
        // Fails when the task has ended, and waiting is useless.
        let _ =
            self.shared.state.clone().wait_for(|state| !matches!(state, ConnectionState::Connecting)).await;
    }

    /// Whether a command would be sent at once.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), ConnectionState::Up(..))
    }

    /// Waits until there is a connection (true), or no handle any more (false). The future is not a handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut state = self.shared.state.clone();
        async move { state.wait_for(|state| matches!(state, ConnectionState::Up(..))).await.is_ok() }
    }

    /// Has the task replace the connection `generation`, unless it was replaced already.
    fn mark_broken(&self, generation: u64) {
        self.shared.broken.send_if_modified(|broken| {
            let is_new = generation > *broken;
            *broken = generation.max(*broken);
            is_new
        });
    }

    /// The connection, after the first attempt to connect.
    async fn connection(&self) -> Result<LiveConnection, SendError> {
        let mut state = self.shared.state.clone();
        let settled = state.wait_for(|state| !matches!(state, ConnectionState::Connecting)).await;
        let current = settled.ok().and_then(|state| state.current());
        current.unwrap_or_else(|| Err(SendError::NotConnected("shutting down".into())))
    }
}

impl SendError {
    /// Whether the error persists as long as the connection, which has to be replaced therefore.
    pub(super) fn needs_reconnect(&self) -> bool {
        matches!(self, Self::Failed(error) if needs_reconnect(error))
    }

    /// Whether the script has to be loaded first, in which case nothing was charged.
    pub(super) fn is_unknown_script(&self) -> bool {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        matches!(self, Self::Failed(error) if error.kind() == unknown)
    }

    /// This error, when there was no time for another attempt.
    pub(super) fn into_migrating(self) -> Self {
        match self {
            Self::Failed(error) => Self::SlotMigrating(error),
            other => other,
        }
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

/// Whether an error persists as long as the connection: the connection broke, or leads to a server that no longer takes
/// writes, such as a master demoted by a failover. Another connection may lead to the new master.
fn needs_reconnect(error: &RedisError) -> bool {
    // Before Redis 7, the error of a command within a script is nested in another error.
    let is_within = || error.detail().is_some_and(|detail| detail.contains("READONLY"));
    error.is_unrecoverable_error() || is_demoted(error) || is_within()
}
