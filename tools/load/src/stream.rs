//! A stream: sends one request after the other on a connection, one in flight at a time.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand::rngs::SmallRng;
use tokio::{
    select,
    time::{Sleep, sleep},
};

use super::{
    Phases, Run,
    connection::{Connection, Handle},
    open_loop::OpenLoop,
    request::RequestError,
};

/// When the streams of a thread send requests.
#[derive(Clone, Debug)]
pub(super) enum Pacing {
    /// On the response to the previous request.
    Closed,
    /// When a request is due.
    Open(Arc<OpenLoop>),
}

/// Sender of one request at a time.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) run: Arc<Run>,
    pub(super) thread: usize,
    pub(super) phases: Phases,
    pub(super) pacing: Pacing,
    pub(super) connection: Arc<Connection>,
    pub(super) random: SmallRng,
}

impl Stream {
    /// Sends requests until the end or a stop, and waits for the last response: a request in flight may be charged, so
    /// its key must count it.
    pub(super) async fn run(mut self) {
        let mut handle = self.connection.handle();
        let mut watchdog = Watchdog::new(self.run.settings.timeout);
        while let Some(due) = self.next().await {
            let key = self.run.keys.draw(&mut self.random);
            let message = self.run.requests.of(key);
            self.run.admissions.sent(key);
            let outcome = self.send(&mut handle, &mut watchdog, message).await;
            self.count(key, due, outcome);
        }
    }

    /// Due time of the next request.
    async fn next(&self) -> Option<Instant> {
        match &self.pacing {
            Pacing::Closed if self.run.stop.is_cancelled() => None,
            Pacing::Closed => Some(Instant::now()).filter(|now| *now < self.phases.end),
            Pacing::Open(open) => open.next().await,
        }
    }

    async fn send(
        &self,
        handle: &mut Handle,
        watchdog: &mut Watchdog,
        message: Bytes,
    ) -> Result<bool, RequestError> {
        select! {
            biased;
            result = self.connection.send(handle, message) => result,
            () = watchdog.expired(Instant::now()) => Err(RequestError::timed_out(self.run.settings.timeout)),
        }
    }

    fn count(&self, key: usize, due: Instant, outcome: Result<bool, RequestError>) {
        let latency = due.elapsed();
        if let Ok(passes) = outcome {
            self.run.admissions.answered(key, passes);
        }
        if let Some(tally) = self.run.tallies.get(self.thread) {
            let mut tally = tally.lock();
            tally.ended = tally.ended.saturating_add(1);
            if due >= self.phases.measure {
                tally.count(outcome, latency);
            }
        }
    }
}

/// Request timeout with one timer for all requests of a stream, which is reset only when it fires, so that a request costs
/// no timer.
#[derive(Debug)]
struct Watchdog {
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Watchdog {
    fn new(timeout: Duration) -> Self {
        Self { timeout, timer: Box::pin(sleep(timeout)) }
    }

    /// Waits until a request sent at `sent` has timed out.
    async fn expired(&mut self, sent: Instant) {
        loop {
            self.timer.as_mut().await;
            let Some(late) = sent.checked_add(self.timeout) else { return std::future::pending().await };
            if Instant::now() >= late {
                return;
            }
            self.timer.as_mut().reset(late.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watchdog_expires_at_the_timeout_of_each_request() {
        let timeout = Duration::from_millis(30);
        let mut watchdog = Watchdog::new(timeout);
        for _ in 0..2 {
            let sent = Instant::now();
            // Answered in time, most of them.
            for _ in 0..5 {
                select! {
                    () = watchdog.expired(Instant::now()) => panic!("too early"),
                    () = sleep(Duration::from_millis(5)) => {}
                }
            }
            let last = Instant::now();
            watchdog.expired(last).await;
            assert!(last.elapsed() >= timeout && sent.elapsed() < timeout * 20);
        }
    }
}
