//! One of the requests that are in flight at a time on a connection, and then the next one.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fastrand::Rng;
use tokio::{
    select,
    time::{Sleep, sleep},
};

use super::{
    Job, Span,
    connection::{Connection, Failure, Sender},
    pace::OpenLoop,
};

/// When the streams of a thread send.
#[derive(Clone, Debug)]
pub(super) enum Pace {
    /// Each when it has an answer.
    Closed,
    /// When a request is due.
    Open(Arc<OpenLoop>),
}

/// Sends one request after the other.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) job: Arc<Job>,
    pub(super) thread: usize,
    pub(super) span: Span,
    pub(super) pace: Pace,
    pub(super) connection: Arc<Connection>,
    pub(super) random: Rng,
}

impl Stream {
    /// Asks until the time is over or the user has had enough, and stays for the last answer: what is in flight may be
    /// charged, so its key is to count it.
    pub(super) async fn run(mut self) {
        let mut sender = self.connection.sender();
        let mut watchdog = Watchdog::new(self.job.settings.timeout);
        while let Some(due) = self.next().await {
            let key = self.job.keys.draw(&mut self.random);
            let message = self.job.requests.of(key);
            self.job.admitted.sent(key);
            let outcome = self.ask(&mut sender, &mut watchdog, message).await;
            self.count(key, due, outcome);
        }
    }

    /// Since when the next request is due.
    async fn next(&self) -> Option<Instant> {
        match &self.pace {
            Pace::Closed if self.job.stop.is_cancelled() => None,
            Pace::Closed => Some(Instant::now()).filter(|now| *now < self.span.end),
            Pace::Open(open) => open.next().await,
        }
    }

    async fn ask(
        &self,
        sender: &mut Sender,
        watchdog: &mut Watchdog,
        message: Bytes,
    ) -> Result<bool, Failure> {
        select! {
            biased;
            answer = self.connection.ask(sender, message) => answer,
            () = watchdog.bark(Instant::now()) => Err(Failure::late(self.job.settings.timeout)),
        }
    }

    fn count(&self, key: usize, due: Instant, outcome: Result<bool, Failure>) {
        let latency = due.elapsed();
        if let Ok(passes) = outcome {
            self.job.admitted.answered(key, passes);
        }
        if let Some(tally) = self.job.tallies.get(self.thread) {
            let mut tally = tally.lock();
            tally.ended = tally.ended.saturating_add(1);
            if due >= self.span.measure {
                tally.count(outcome, latency);
            }
        }
    }
}

/// Tells when a request has taken too long, with one timer for all requests of a stream: it is set again only when it
/// goes off, so that a request costs none.
#[derive(Debug)]
struct Watchdog {
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Watchdog {
    fn new(timeout: Duration) -> Self {
        Self { timeout, timer: Box::pin(sleep(timeout)) }
    }

    /// Waits until a request sent at `sent` has taken too long.
    async fn bark(&mut self, sent: Instant) {
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
    async fn a_watchdog_barks_for_each_request_when_its_own_time_is_over() {
        let timeout = Duration::from_millis(30);
        let mut watchdog = Watchdog::new(timeout);
        for _ in 0..2 {
            let sent = Instant::now();
            // Answered in time, most of them.
            for _ in 0..5 {
                select! {
                    () = watchdog.bark(Instant::now()) => panic!("too early"),
                    () = sleep(Duration::from_millis(5)) => {}
                }
            }
            let last = Instant::now();
            watchdog.bark(last).await;
            assert!(last.elapsed() >= timeout && sent.elapsed() < timeout * 20);
        }
    }
}
