//! Background task that maintains a connection.

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
use tollgate_runtime::{backoff::Backoff, outage::OutageLog};

use super::metrics::{ConnectionGauge, LinkState};
use super::{connection::ConnectionState, target::Target};

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

/// Background task of a connection.
pub(super) struct Reconnector {
    target: Target,
    report: watch::Sender<ConnectionState>,
    breaks: watch::Receiver<u64>,
    /// Number of connections made so far.
    generation: u64,
    outage: OutageLog,
    gauge: ConnectionGauge,
}

impl Reconnector {
    pub(super) fn new(
        target: Target,
        report: watch::Sender<ConnectionState>,
        breaks: watch::Receiver<u64>,
    ) -> Self {
        let gauge = ConnectionGauge::connecting();
        Self { target, report, breaks, generation: 0, outage: OutageLog::default(), gauge }
    }

    /// Connects, and reconnects whenever the connection is found broken, until the last handle is dropped.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        loop {
            match self.target.connect().await {
                Ok(connection) => {
                    let started = Instant::now();
                    if self.serve(connection).await.is_err() {
                        return;
                    }
                    self.report.send_replace(ConnectionState::Down("connection closed".into()));
                    if self.outage.failed() {
                        tracing::warn!(server = %self.target, "Redis connection lost");
                    }
                    // A connection that breaks at once, as to a server that takes no writes, does not reset the
                    // backoff.
                    if started.elapsed() > MAX_BACKOFF {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    if self.outage.failed() {
                        tracing::warn!(server = %self.target, %error, "Redis connection failed");
                    }
                    self.report.send_replace(ConnectionState::Down(error.to_string()));
                }
            }
            self.gauge.set(LinkState::Down);
            tokio::select! {
                () = sleep(backoff.pause()) => {}
                // Ends when no handle is left.
                () = async { while self.breaks.changed().await.is_ok() {} } => return,
            }
        }
    }

    /// Publishes the connection, and those that replace it, until one breaks.
    ///
    /// # Errors
    /// The last handle was dropped.
    async fn serve(&mut self, mut connection: MultiplexedConnection) -> Result<(), watch::error::RecvError> {
        loop {
            let server = self.target.to_string();
            self.gauge.set(LinkState::Up);
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
                disconnected = breaks.wait_for(|broken| broken >= generation) => return disconnected.map(drop),
                () = probe_until_silent(connection.clone()) => return Ok(()),
                other = target.wait_for_failover() => connection = other,
                never = recovery => match never {},
            }
        }
    }
}

/// Probes the connection until a response is overdue.
async fn probe_until_silent(mut connection: MultiplexedConnection) {
    let ping = cmd("PING");
    loop {
        sleep(PROBE_INTERVAL).await;
        // An error reply is a value here, and shows that the server responds.
        if !matches!(timeout(PROBE_TIMEOUT, connection.send_packed_command(&ping)).await, Ok(Ok(_))) {
            return;
        }
    }
}
