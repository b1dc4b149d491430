//! One connection to one server, kept up by a task (`keeper`).

use std::{fmt, sync::Arc};

use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection};
use tokio::sync::watch;

use super::{
    reconnect::Reconnector,
    script::{self, check_error},
    target::Target,
};

/// A handle on the connection; clones share it. The task ends when the last handle is gone.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    state: watch::Receiver<ConnectionState>,
    /// The number of the latest connection that was found broken.
    broken: watch::Sender<u64>,
}

/// One of the connections that follow each other, each of which may lead to another server.
#[derive(Clone)]
pub(super) struct LiveConnection {
    connection: MultiplexedConnection,
    pub(super) generation: u64,
}

/// What the task says.
#[derive(Clone)]
pub(super) enum ConnectionState {
    /// The first attempt is under way: calls wait for it.
    Connecting,
    /// Connected, for the so-manieth time.
    Up(MultiplexedConnection, u64),
    /// Attempts fail, for this reason: calls fail at once.
    Down(String),
}

/// Why a command got no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SendError {
    /// It was not sent.
    #[error("not connected: {0}")]
    NotConnected(String),
    /// It was not sent, because time was over before its turn came.
    #[error("no turn in time")]
    QueueTimeout,
    /// It was not sent, because the server owes answers.
    #[error("the server is silent")]
    BreakerOpen,
    /// It was not sent, because too many wait.
    #[error("too many wait")]
    Overloaded,
    /// It was sent, and either the answer is an error or there was none.
    #[error(transparent)]
    Failed(RedisError),
    /// It was sent, and time was over before the answer came.
    #[error("no answer in time")]
    Timeout,
    /// It was sent, and what was answered makes no sense.
    #[error("the answer makes no sense")]
    MalformedReply,
    /// It was not obeyed, because keys are on their way between nodes, until time was over.
    #[error("{0}")]
    SlotMigrating(RedisError),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects in the background and stays connected.
    pub(super) fn open(target: Target) -> Self {
        let (report, state) = watch::channel(ConnectionState::Connecting);
        let (broken, breaks) = watch::channel(0);
        tokio::spawn(Reconnector::new(target, report, breaks).run());
        Self { shared: Arc::new(Shared { state, broken }) }
    }

    /// Sends a command once and awaits its answer.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, SendError> {
        let LiveConnection { mut connection, generation } = self.connection().await?;
        // An error that Redis answers arrives as a value.
        let reply = connection.send_packed_command(command).await.and_then(check_error);
        if reply.as_ref().map_or_else(needs_reconnect, reply_needs_reconnect) {
            self.mark_broken(generation);
        }
        reply.map_err(SendError::Failed)
    }

    /// Sends a command once, as one that the server shall obey although it is only about to own the keys, and
    /// awaits its answer.
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

    /// Sends commands in one write, once, and awaits their answers; an error among these is a value.
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

    /// Waits for a sign of life on a connection, any answer: the server first answers what was sent before. Tells the
    /// connection's number.
    ///
    /// # Errors
    /// It broke; the number as well.
    pub(super) async fn probe(&self, mut live: LiveConnection) -> Result<u64, u64> {
        match live.connection.send_packed_command(&script::probe()).await {
            Ok(_) => Ok(live.generation),
            Err(_) => {
                self.mark_broken(live.generation);
                Err(live.generation)
            }
        }
    }

    /// Takes note of an error that a server answered on the connection `number`, as one that takes no writes is to be
    /// left.
    pub(super) fn record_error(&self, error: &RedisError, generation: u64) {
        if needs_reconnect(error) {
            self.mark_broken(generation);
        }
    }

    /// What the task says, now and later. It is no handle.
    pub(super) fn states(&self) -> watch::Receiver<ConnectionState> {
        self.shared.state.clone()
    }

    /// Waits until the first attempt to connect is over.
    pub(super) async fn first_attempt(&self) {
        // Fails when the task is gone, and waiting is of no use.
        let _ =
            self.shared.state.clone().wait_for(|state| !matches!(state, ConnectionState::Connecting)).await;
    }

    /// Whether a command would be sent at once.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), ConnectionState::Up(..))
    }

    /// Waits until there is a connection, or no handle any more. The wait is no handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut state = self.shared.state.clone();
        async move { state.wait_for(|state| matches!(state, ConnectionState::Up(..))).await.is_ok() }
    }

    /// Has the task replace the connection `number`, unless it did already.
    fn mark_broken(&self, generation: u64) {
        self.shared.broken.send_if_modified(|broken| {
            let is_new = generation > *broken;
            *broken = generation.max(*broken);
            is_new
        });
    }

    /// The connection, once the first attempt to connect is over.
    async fn connection(&self) -> Result<LiveConnection, SendError> {
        let mut state = self.shared.state.clone();
        let first_attempt = state.wait_for(|state| !matches!(state, ConnectionState::Connecting)).await;
        let current = first_attempt.ok().and_then(|state| state.current());
        current.unwrap_or_else(|| Err(SendError::NotConnected("closing".into())))
    }
}

impl SendError {
    /// Whether it will stay for as long as the connection does, which is replaced therefore.
    pub(super) fn needs_reconnect(&self) -> bool {
        matches!(self, Self::Failed(error) if needs_reconnect(error))
    }

    /// Whether the server had to be told the script first, and so charged nothing.
    pub(super) fn is_unknown_script(&self) -> bool {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        matches!(self, Self::Failed(error) if error.kind() == unknown)
    }

    /// The same error when there was no time for another attempt.
    pub(super) fn into_migrating(self) -> Self {
        match self {
            Self::Failed(error) => Self::SlotMigrating(error),
            other => other,
        }
    }
}

impl ConnectionState {
    /// The connection as it is now, or why there is none; nothing before the first attempt to connect is over.
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

/// The second of two answers, unless the first is the reason for an error in it.
fn asking_reply(replies: Vec<Value>) -> Result<Value, RedisError> {
    let mut replies = replies.into_iter().map(check_error);
    match (replies.next(), replies.next()) {
        // If the server owns the keys by now, the command was obeyed all the same.
        (_, Some(Ok(reply))) => Ok(reply),
        (Some(Err(error)), Some(Err(_))) => Err(error),
        (_, Some(Err(error))) => Err(error),
        (_, None) => Err((ErrorKind::UnexpectedReturnType, "one answer to two commands").into()),
    }
}

/// Whether the reply has such an error for one of several calls.
fn reply_needs_reconnect(reply: &Value) -> bool {
    let Value::Array(parts) = reply else { return false };
    parts
        .iter()
        .any(|part| matches!(part, Value::ServerError(error) if needs_reconnect(&error.clone().into())))
}

/// Whether an error will stay for as long as the connection does: it broke, or leads to a server that takes no
/// writes any more, as one that was demoted in a failover. Another connection may lead to the new master.
fn needs_reconnect(error: &RedisError) -> bool {
    let demoted = [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown].map(ErrorKind::Server);
    // Before Redis 7, what a script met is told within another error.
    let is_within = || error.detail().is_some_and(|detail| detail.contains("READONLY"));
    error.is_unrecoverable_error() || demoted.contains(&error.kind()) || is_within()
}
