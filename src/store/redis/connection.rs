//! One connection to one Redis, kept up by a task.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ::redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value, aio::MultiplexedConnection};
use tokio::{sync::watch, time::sleep};

/// The pause after a first failed attempt to connect; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between attempts to connect: how late a server that is back may be noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// So many calls in a row without an answer condemn the connection: the peer may be gone without a word.
const TIMEOUTS_IN_A_ROW: u32 = 64;

/// A handle on the connection; clones share it. The task ends when the last handle is gone.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    state: watch::Receiver<State>,
    /// The number of the latest connection that was found broken.
    broken: watch::Sender<u64>,
    timeouts: AtomicU32,
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
#[derive(Debug)]
pub(super) enum SendError {
    /// It was not sent.
    NotConnected(String),
    /// It was sent, and either the answer is an error or there was none.
    Failed(RedisError),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects in the background and stays connected.
    pub(super) fn open(client: Client) -> Self {
        let (report, state) = watch::channel(State::Connecting);
        let (broken, breaks) = watch::channel(0);
        tokio::spawn(keep_connected(client, report, breaks));
        Self { shared: Arc::new(Shared { state, broken, timeouts: AtomicU32::new(0) }) }
    }

    /// Sends a command once and awaits its answer.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, SendError> {
        let (mut connection, number) = self.connection().await?;
        // An error that Redis answers arrives as a value.
        let answer = connection.send_packed_command(command).await.and_then(Value::extract_error);
        match &answer {
            Err(error) if error.is_unrecoverable_error() => self.condemn(number),
            _ => self.shared.timeouts.store(0, Ordering::Relaxed),
        }
        answer.map_err(SendError::Failed)
    }

    /// Tells that an answer did not come in time.
    pub(super) fn timed_out(&self) {
        if self.shared.timeouts.fetch_add(1, Ordering::Relaxed) < TIMEOUTS_IN_A_ROW {
            return;
        }
        self.shared.timeouts.store(0, Ordering::Relaxed);
        if let State::Up(_, number) = &*self.shared.state.borrow() {
            self.condemn(*number);
        }
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

/// Connects, and connects again whenever the connection is found broken, until nobody holds a handle.
async fn keep_connected(client: Client, report: watch::Sender<State>, mut breaks: watch::Receiver<u64>) {
    // The wait for an answer is bounded by the caller.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    let mut pause = SHORTEST_PAUSE;
    let mut number = 0_u64;
    loop {
        match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => {
                number = number.saturating_add(1);
                pause = SHORTEST_PAUSE;
                report.send_replace(State::Up(connection, number));
                // Ends with an error when no handle is left.
                if breaks.wait_for(|broken| *broken >= number).await.is_err() {
                    return;
                }
                tracing::warn!("the connection to Redis broke");
                report.send_replace(State::Down("the connection broke".into()));
            }
            Err(error) => {
                // Once for each outage, not for each attempt.
                if !matches!(&*report.borrow(), State::Down(_)) || pause == SHORTEST_PAUSE {
                    tracing::warn!(%error, "can't connect to Redis");
                }
                report.send_replace(State::Down(error.to_string()));
                tokio::select! {
                    () = sleep(pause) => pause = pause.saturating_mul(2).min(LONGEST_PAUSE),
                    () = report.closed() => return,
                }
            }
        }
    }
}
