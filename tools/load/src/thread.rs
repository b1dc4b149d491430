//! A thread on a runtime of its own, and its streams: each sends one request after the other on a connection, one in flight
//! at a time.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, pin::Pin, sync::Arc};

use rand::{SeedableRng as _, rngs::SmallRng};
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use tokio::time::{Sleep, sleep};
use tokio::{runtime::Builder, select, task::JoinSet};

use super::connection::Connection;
use super::open_loop::{OpenLoop, Timer};
use super::{Phases, Run, request::RequestError};

/// The start signal of a thread that is connected, or the error that prevented it.
pub(super) type Ready = Result<oneshot::Sender<Phases>, RequestError>;

/// Starts thread number `thread`, which connects and then reports to `ready`.
pub(super) fn start(
    thread: usize,
    run: Arc<Run>,
    ready: UnboundedSender<Ready>,
) -> io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let timer = {
        let _inside = runtime.enter();
        Timer::new()?
    };
    thread::Builder::new().name(format!("load-{thread}")).spawn(move || {
        runtime.block_on(async {
            let connections = match connect(&run, thread).await {
                Ok(connections) => connections,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let (start, started) = oneshot::channel();
            // Without a start, another thread could not connect.
            let _ = ready.send(Ok(start));
            drop(ready);
            if let Ok(phases) = started.await {
                send_requests(run, thread, phases, connections, timer).await;
            }
        });
    })
}

/// Opens this thread's share of the connections, which are dealt round-robin to the threads and the targets.
async fn connect(run: &Run, thread: usize) -> Result<Vec<Arc<Connection>>, RequestError> {
    let settings = &run.settings;
    let targets = settings.targets.iter().cycle();
    let mine = targets.take(settings.connections).skip(thread).step_by(settings.threads.max(1));
    let mut connections = Vec::new();
    for target in mine {
        let connection = Connection::open(target, settings.timeout, settings.send_deadline).await?;
        connections.push(Arc::new(connection));
    }
    Ok(connections)
}

async fn send_requests(
    run: Arc<Run>,
    thread: usize,
    phases: Phases,
    connections: Vec<Arc<Connection>>,
    mut timer: Timer,
) {
    let settings = &run.settings;
    let open_loop = settings.rate.map(|rate| OpenLoop::new(rate, thread, settings.threads, phases));
    let open_loop = open_loop.map(Arc::new);
    // Each stream draws from its own sequence.
    let mut seeds = SmallRng::seed_from_u64(settings.seed);
    for _ in 0..thread {
        SmallRng::from_rng(&mut seeds);
    }
    let mut seeds = SmallRng::from_rng(&mut seeds);
    let mut streams = JoinSet::new();
    // Connections in the inner loop, so that the first requests of an open loop use different ones.
    for _ in 0..settings.streams {
        for connection in &connections {
            let (run, connection, open_loop) = (Arc::clone(&run), Arc::clone(connection), open_loop.clone());
            let random = SmallRng::from_rng(&mut seeds);
            streams.spawn(Stream { run, thread, phases, open_loop, connection, random }.run());
        }
    }
    if let Some(open_loop) = open_loop {
        let unsent = open_loop.announce(&mut timer, &run.stop).await;
        if let Some(tally) = run.tallies.get(thread) {
            tally.lock().unsent = unsent;
        }
    }
    streams.join_all().await;
}

/// Sender of one request at a time.
#[derive(Debug)]
struct Stream {
    run: Arc<Run>,
    thread: usize,
    phases: Phases,
    /// Releases requests when they are due; without it, each is sent on the response to the previous one.
    open_loop: Option<Arc<OpenLoop>>,
    connection: Arc<Connection>,
    random: SmallRng,
}

impl Stream {
    /// Sends requests until the end or a stop, and waits for the last response: a request in flight may be charged, so
    /// its key must count it.
    async fn run(mut self) {
        let mut handle = self.connection.handle();
        let mut watchdog = Watchdog::new(self.run.settings.timeout);
        while let Some(due) = self.next().await {
            let key = self.run.keys.draw(&mut self.random);
            let message = self.run.requests.of(key);
            self.run.admissions.sent(key);
            let outcome = select! {
                biased;
                result = self.connection.send(&mut handle, message) => result,
                () = watchdog.expired(Instant::now()) => {
                    Err(RequestError::timed_out(self.run.settings.timeout))
                }
            };
            self.count(key, due, outcome);
        }
    }

    /// Due time of the next request.
    async fn next(&self) -> Option<Instant> {
        match &self.open_loop {
            Some(open_loop) => open_loop.next().await,
            None if self.run.stop.is_cancelled() => None,
            None => Some(Instant::now()).filter(|now| *now < self.phases.end),
        }
    }

    fn count(&self, key: usize, due: Instant, outcome: Result<bool, RequestError>) {
        let latency = due.elapsed();
        if let Ok(passes) = outcome {
            self.run.admissions.answered(key, passes);
        }
        if let Some(tally) = self.run.tallies.get(self.thread) {
            let mut tally = tally.lock();
            tally.ended += 1;
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
