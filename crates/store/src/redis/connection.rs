//! One connection to one server, kept up by a task (`keeper`).

use std::{fmt, sync::Arc};

use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection};
use tokio::sync::watch;

use super::{
    reconnect::Keeper,
    script::{self, unless_error},
    target::Target,
};

/// A handle on the connection; clones share it. The task ends when the last handle is gone.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    state: watch::Receiver<State>,
    /// The number of the latest connection that was found broken.
    broken: watch::Sender<u64>,
}

/// One of the connections that follow each other, each of which may lead to another server.
#[derive(Clone)]
pub(super) struct Current {
    connection: MultiplexedConnection,
    pub(super) number: u64,
}

/// What the task says.
#[derive(Clone)]
pub(super) enum State {
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
    Unsent,
    /// It was not sent, because the server owes answers.
    #[error("the server is silent")]
    Silent,
    /// It was not sent, because too many wait.
    #[error("too many wait")]
    Crowded,
    /// It was sent, and either the answer is an error or there was none.
    #[error(transparent)]
    Failed(RedisError),
    /// It was sent, and time was over before the answer came.
    #[error("no answer in time")]
    Late,
    /// It was sent, and what was answered makes no sense.
    #[error("the answer makes no sense")]
    Garbled,
    /// It was not obeyed, because keys are on their way between nodes, until time was over.
    #[error("{0}")]
    Moving(RedisError),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects in the background and stays connected.
    pub(super) fn open(target: Target) -> Self {
        let (report, state) = watch::channel(State::Connecting);
        let (broken, breaks) = watch::channel(0);
        tokio::spawn(Keeper::new(target, report, breaks).keep_connected());
        Self { shared: Arc::new(Shared { state, broken }) }
    }

    /// Sends a command once and awaits its answer.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, SendError> {
        let Current { mut connection, number } = self.connection().await?;
        // An error that Redis answers arrives as a value.
        let answer = connection.send_packed_command(command).await.and_then(unless_error);
        if answer.as_ref().map_or_else(is_lasting, is_lasting_within) {
            self.condemn(number);
        }
        answer.map_err(SendError::Failed)
    }

    /// Sends a command once, as one that the server shall obey although it is only about to own the keys, and
    /// awaits its answer.
    pub(super) async fn send_asking(&self, command: &Cmd) -> Result<Value, SendError> {
        let Current { mut connection, number } = self.connection().await?;
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let answer = connection.send_packed_commands(&both, 0, 2).await.and_then(second_answer);
        if answer.as_ref().map_or_else(is_lasting, is_lasting_within) {
            self.condemn(number);
        }
        answer.map_err(SendError::Failed)
    }

    /// Sends commands in one write, once, and awaits their answers; an error among these is a value.
    pub(super) async fn send_all(
        &self,
        over: &mut Current,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, SendError> {
        let answers = over.connection.send_packed_commands(commands, 0, commands.len()).await;
        if answers.as_ref().is_err_and(is_lasting) {
            self.condemn(over.number);
        }
        answers.map_err(SendError::Failed)
    }

    /// Waits for a sign of life on a connection, any answer: the server first answers what was sent before. Tells the
    /// connection's number.
    ///
    /// # Errors
    /// It broke; the number as well.
    pub(super) async fn hear(&self, mut over: Current) -> Result<u64, u64> {
        match over.connection.send_packed_command(&script::nothing()).await {
            Ok(_) => Ok(over.number),
            Err(_) => {
                self.condemn(over.number);
                Err(over.number)
            }
        }
    }

    /// Takes note of an error that a server answered on the connection `number`, as one that takes no writes is to be
    /// left.
    pub(super) fn note(&self, error: &RedisError, number: u64) {
        if is_lasting(error) {
            self.condemn(number);
        }
    }

    /// What the task says, now and later. It is no handle.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.shared.state.clone()
    }

    /// Waits until the first attempt to connect is over.
    pub(super) async fn settled(&self) {
        // Fails when the task is gone, and waiting is of no use.
        let _ = self.shared.state.clone().wait_for(|state| !matches!(state, State::Connecting)).await;
    }

    /// Whether a command would be sent at once.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), State::Up(..))
    }

    /// Waits until there is a connection, or no handle any more. The wait is no handle.
    pub(super) fn connected(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut state = self.shared.state.clone();
        async move { state.wait_for(|state| matches!(state, State::Up(..))).await.is_ok() }
    }

    /// Has the task replace the connection `number`, unless it did already.
    fn condemn(&self, number: u64) {
        self.shared.broken.send_if_modified(|broken| {
            let is_news = number > *broken;
            *broken = number.max(*broken);
            is_news
        });
    }

    /// The connection, once the first attempt to connect is over.
    async fn connection(&self) -> Result<Current, SendError> {
        let mut state = self.shared.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        let current = settled.ok().and_then(|state| state.current());
        current.unwrap_or_else(|| Err(SendError::NotConnected("closing".into())))
    }
}

impl SendError {
    /// Whether it will stay for as long as the connection does, which is replaced therefore.
    pub(super) fn is_lasting(&self) -> bool {
        matches!(self, Self::Failed(error) if is_lasting(error))
    }
}

impl State {
    /// The connection as it is now, or why there is none; nothing before the first attempt to connect is over.
    pub(super) fn current(&self) -> Option<Result<Current, SendError>> {
        match self {
            Self::Connecting => None,
            Self::Up(connection, number) => {
                Some(Ok(Current { connection: connection.clone(), number: *number }))
            }
            Self::Down(reason) => Some(Err(SendError::NotConnected(reason.clone()))),
        }
    }
}

/// The second of two answers, unless the first is the reason for an error in it.
fn second_answer(answers: Vec<Value>) -> Result<Value, RedisError> {
    let mut answers = answers.into_iter().map(unless_error);
    match (answers.next(), answers.next()) {
        // If the server owns the keys by now, the command was obeyed all the same.
        (_, Some(Ok(answer))) => Ok(answer),
        (Some(Err(error)), Some(Err(_))) => Err(error),
        (_, Some(Err(error))) => Err(error),
        (_, None) => Err((ErrorKind::UnexpectedReturnType, "one answer to two commands").into()),
    }
}

/// Whether the reply has such an error for one of several calls.
fn is_lasting_within(answer: &Value) -> bool {
    let Value::Array(parts) = answer else { return false };
    parts.iter().any(|part| matches!(part, Value::ServerError(error) if is_lasting(&error.clone().into())))
}

/// Whether an error will stay for as long as the connection does: it broke, or leads to a server that takes no
/// writes any more, as one that was demoted in a failover. Another connection may lead to the new master.
fn is_lasting(error: &RedisError) -> bool {
    let demoted = [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown].map(ErrorKind::Server);
    // Before Redis 7, what a script met is told within another error.
    let is_within = || error.detail().is_some_and(|detail| detail.contains("READONLY"));
    error.is_unrecoverable_error() || demoted.contains(&error.kind()) || is_within()
}
