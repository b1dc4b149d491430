//! Background task that maintains a connection.

use std::{
    convert::Infallible,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use ::redis::{Value, aio::MultiplexedConnection, cmd};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tollgate_runtime::{backoff::Backoff, foreign_text, log_budget::LogBudget, outage::OutageLog};

use super::{
    connection::ConnectionState,
    servers::{ConnectionGauge, LinkState, Server},
    target::Target,
};

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

/// Log lines on connections that fail, for all connections of a store: nodes of a cluster can name others without end.
pub(super) fn failure_lines() -> Arc<LogBudget> {
    Arc::new(LogBudget::new(MAX_FAILURE_LINES, FAILURE_LINE_INTERVAL))
}

/// Background task of a connection.
pub(super) struct Reconnector {
    target: Target,
    report: watch::Sender<ConnectionState>,
    breaks: watch::Receiver<u64>,
    /// Number of connections made so far.
    generation: u64,
    outage: OutageLog,
    failure_lines: Arc<LogBudget>,
    gauge: ConnectionGauge,
}

impl Reconnector {
    pub(super) fn new(
        target: Target,
        server: Arc<Server>,
        (report, breaks): (watch::Sender<ConnectionState>, watch::Receiver<u64>),
        failure_lines: Arc<LogBudget>,
    ) -> Self {
        let gauge = ConnectionGauge::connecting(server);
        Self { target, report, breaks, generation: 0, outage: OutageLog::default(), failure_lines, gauge }
    }

    /// Connects, and reconnects whenever the connection is found broken, until the last handle is dropped.
    pub(super) async fn run(mut self) {
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
                    let error = foreign_text::bounded(&error.to_string());
                    if self.outage.failed()
                        && let Some(suppressed) = self.failure_lines.take()
                    {
                        tracing::warn!(server = %self.target, %error, suppressed, "Redis connection failed");
                    }
                    self.report.send_replace(ConnectionState::Down(error));
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
