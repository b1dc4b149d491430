//! One connection to one server, kept up by a task.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use ::redis::{
    Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection, cmd,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::target::Target;

/// The pause after a first failed attempt to connect; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between attempts to connect: how late a server that is back may be noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Between two looks whether the server still answers on the connection.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// How long the server may take to answer a look. A peer that is gone without a word is noticed by this, however
/// few or impatient the callers are.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

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

#[derive(Clone)]
enum State {
    /// The first attempt is under way: calls wait for it.
    Connecting,
    /// Connected, for the so-manieth time.
    Up(MultiplexedConnection, u64),
    /// Attempts fail, for this reason: calls fail at once.
    Down(String),
}

/// Why a command got no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// It was not sent.
    #[error("not connected: {0}")]
    NotConnected(String),
    /// It was sent, and either the answer is an error or there was none.
    #[error(transparent)]
    Failed(RedisError),
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
        tokio::spawn(keep_connected(target, report, breaks));
        Self { shared: Arc::new(Shared { state, broken }) }
    }

    /// Sends a command once and awaits its answer.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, SendError> {
        let (mut connection, number) = self.connection().await?;
        // An error that Redis answers arrives as a value.
        let answer = connection.send_packed_command(command).await.and_then(Value::extract_error);
        if answer.as_ref().is_err_and(is_lasting) {
            self.condemn(number);
        }
        answer.map_err(SendError::Failed)
    }

    /// Sends a command once, as one that the server shall obey although it is only about to own the keys, and
    /// awaits its answer.
    pub(super) async fn send_asking(&self, command: &Cmd) -> Result<Value, SendError> {
        let (mut connection, number) = self.connection().await?;
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let answer = connection.send_packed_commands(&both, 0, 2).await.and_then(second_answer);
        if answer.as_ref().is_err_and(is_lasting) {
            self.condemn(number);
        }
        answer.map_err(SendError::Failed)
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

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), SendError> {
        let mut state = self.shared.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        match settled.as_deref() {
            Ok(State::Up(connection, number)) => Ok((connection.clone(), *number)),
            Ok(State::Down(reason)) => Err(SendError::NotConnected(reason.clone())),
            Ok(State::Connecting) | Err(_) => Err(SendError::NotConnected("closing".into())),
        }
    }
}

/// The second of two answers, unless the first is the reason for an error in it.
fn second_answer(answers: Vec<Value>) -> Result<Value, RedisError> {
    let mut answers = answers.into_iter().map(Value::extract_error);
    match (answers.next(), answers.next()) {
        // If the server owns the keys by now, the command was obeyed all the same.
        (_, Some(Ok(answer))) => Ok(answer),
        (Some(Err(error)), Some(Err(_))) => Err(error),
        (_, Some(Err(error))) => Err(error),
        (_, None) => Err((ErrorKind::UnexpectedReturnType, "one answer to two commands").into()),
    }
}

/// Connects, and connects again whenever the connection is found broken, until nobody holds a handle.
async fn keep_connected(mut target: Target, report: watch::Sender<State>, mut breaks: watch::Receiver<u64>) {
    let mut pause = SHORTEST_PAUSE;
    let mut number = 0_u64;
    // Each outage is told once, not each attempt to end it.
    let mut is_told = false;
    loop {
        match target.connect().await {
            Ok(connection) => {
                number = number.saturating_add(1);
                let begun = Instant::now();
                report.send_replace(State::Up(connection.clone(), number));
                if is_told {
                    tracing::info!(server = %target, "connected to Redis again");
                }
                let has_moved = tokio::select! {
                    // Ends with an error when no handle is left.
                    broke = breaks.wait_for(|broken| *broken >= number) => match broke {
                        Ok(_) => false,
                        Err(_) => return,
                    },
                    () = silence(connection) => false,
                    () = target.moved() => true,
                };
                report.send_replace(State::Down("the connection broke".into()));
                if !has_moved {
                    tracing::warn!(server = %target, "the connection to Redis broke");
                }
                is_told = true;
                // One that breaks at once, as on a server that takes no writes, is no reason to hurry.
                if begun.elapsed() > LONGEST_PAUSE {
                    pause = SHORTEST_PAUSE;
                }
            }
            Err(error) => {
                if !is_told {
                    tracing::warn!(server = %target, %error, "can't connect to Redis");
                    is_told = true;
                }
                report.send_replace(State::Down(error.to_string()));
            }
        }
        tokio::select! {
            () = sleep(pause) => pause = pause.saturating_mul(2).min(LONGEST_PAUSE),
            // Ends when no handle is left.
            () = async { while breaks.changed().await.is_ok() {} } => return,
        }
    }
}

/// Whether an error will stay for as long as the connection does: it broke, or leads to a server that takes no
/// writes any more, as one that was demoted in a failover. Another connection may lead to the new master.
fn is_lasting(error: &RedisError) -> bool {
    let demoted = [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown].map(ErrorKind::Server);
    // Before Redis 7, what a script met is told within another error.
    let is_within = || error.detail().is_some_and(|detail| detail.contains("READONLY"));
    error.is_unrecoverable_error() || demoted.contains(&error.kind()) || is_within()
}

/// Ends when the server does not answer on the connection any more.
async fn silence(mut connection: MultiplexedConnection) {
    let ping = cmd("PING");
    loop {
        sleep(PROBE_EVERY).await;
        // An error that the server answers is a value here, and a sign of life too.
        if !matches!(timeout(PROBE_TIMEOUT, connection.send_packed_command(&ping)).await, Ok(Ok(_))) {
            return;
        }
    }
}
