//! The task that keeps a connection up.

use std::{
    convert::Infallible,
    future::pending,
    time::{Duration, Instant},
};

use ::redis::{aio::MultiplexedConnection, cmd};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{connection::State, target::Target};
use crate::{
    metrics::{Link, RedisConnection},
    store::chance::jittered,
};

/// The pause after a first failed attempt to connect; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between attempts to connect: how late a server that is back may be noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How long a connection has to last before it is told that there is one again.
const CALM: Duration = Duration::from_secs(2);

/// Between two looks whether the server still answers on the connection.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// How long the server may take to answer a look. A peer that is gone without a word is noticed by this, however
/// few or impatient the callers are.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The task behind a connection.
pub(super) struct Keeper {
    target: Target,
    report: watch::Sender<State>,
    breaks: watch::Receiver<u64>,
    /// How many connections there were.
    number: u64,
    /// Whether the last line said that there is no connection: each outage is told once, not each attempt to end
    /// it.
    is_told: bool,
    counted: RedisConnection,
}

impl Keeper {
    pub(super) fn new(target: Target, report: watch::Sender<State>, breaks: watch::Receiver<u64>) -> Self {
        let counted = RedisConnection::begin();
        Self { target, report, breaks, number: 0, is_told: false, counted }
    }

    /// Connects, and connects again whenever the connection is found broken, until nobody holds a handle.
    pub(super) async fn keep_connected(mut self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match self.target.connect().await {
                Ok(connection) => {
                    let begun = Instant::now();
                    if self.stay(connection).await.is_err() {
                        return;
                    }
                    self.report.send_replace(State::Down("the connection broke".into()));
                    if !self.is_told {
                        tracing::warn!(server = %self.target, "the connection to Redis broke");
                    }
                    // One that breaks at once, as on a server that takes no writes, is no reason to hurry.
                    if begun.elapsed() > LONGEST_PAUSE {
                        pause = SHORTEST_PAUSE;
                    }
                }
                Err(error) => {
                    if !self.is_told {
                        tracing::warn!(server = %self.target, %error, "can't connect to Redis");
                    }
                    self.report.send_replace(State::Down(error.to_string()));
                }
            }
            self.counted.becomes(Link::Down);
            self.is_told = true;
            tokio::select! {
                () = sleep(jittered(pause)) => pause = pause.saturating_mul(2).min(LONGEST_PAUSE),
                // Ends when no handle is left.
                () = async { while self.breaks.changed().await.is_ok() {} } => return,
            }
        }
    }

    /// Has the connection used, and those that take its place, until one breaks, or no handle is left, which is the
    /// error.
    async fn stay(&mut self, mut connection: MultiplexedConnection) -> Result<(), watch::error::RecvError> {
        loop {
            let server = self.target.to_string();
            self.counted.becomes(Link::Up);
            let Self { target, report, breaks, number, is_told, .. } = &mut *self;
            *number = number.saturating_add(1);
            report.send_replace(State::Up(connection.clone(), *number));
            let praise = async {
                sleep(CALM).await;
                if std::mem::take(is_told) {
                    tracing::info!(%server, "connected to Redis again");
                }
                pending::<Infallible>().await
            };
            tokio::select! {
                broke = breaks.wait_for(|broken| broken >= number) => return broke.map(drop),
                () = silence(connection.clone()) => return Ok(()),
                other = target.moved() => connection = other,
                never = praise => match never {},
            }
        }
    }
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
