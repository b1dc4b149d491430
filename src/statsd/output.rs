//! The thread that sends.

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::timeout};

use super::{lines::Lines, packets::Packets, settings::StatsdSettings, socket::Socket, target::Target};
use crate::{legacy_stats, metrics::Deltas};

/// How long the server may take for all packets of an interval.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take for the last ones, when the process ends.
const LAST: Duration = Duration::from_millis(900);

/// Sends what was counted, every interval. Dropped, it ends by itself, and nobody waits for that.
#[derive(Debug)]
pub struct Statsd {
    stop: Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Statsd {
    /// Starts to send what was counted since the process began. The server need not be there.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start(settings: StatsdSettings) -> io::Result<Self> {
        let ((stop, stopped), (end, ended)) = (channel(), oneshot::channel());
        // Nobody relies on it: a panic in there is logged, and ends no more than this.
        thread::Builder::new().name("statsd".to_owned()).spawn(move || {
            Output::new(settings).run(&stopped);
            drop(end);
        })?;
        Ok(Self { stop, ended })
    }

    /// Sends what is left, or gives that up after a second.
    pub async fn stop(self) {
        drop(self.stop);
        let most = LAST.saturating_add(Duration::from_millis(100));
        if timeout(most, self.ended).await.is_err() {
            tracing::warn!("the last counts are not sent: the StatsD server does not answer");
        }
    }
}

struct Output {
    target: Target,
    interval: Duration,
    lines: Lines,
    deltas: Deltas,
    /// The connection, where there is one that lasts.
    socket: Option<Socket>,
    link: Link,
    /// How often it failed.
    failures: usize,
    /// Whether it was told that there are lines that are too long.
    has_told: bool,
}

/// How it went the last time, so that only changes are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Works,
    Fails,
}

impl Output {
    fn new(settings: StatsdSettings) -> Self {
        Self {
            lines: Lines::new(&settings),
            deltas: Deltas::new(&legacy_stats::DELTAS),
            target: settings.target,
            interval: settings.interval,
            socket: None,
            link: Link::Works,
            failures: 0,
            has_told: false,
        }
    }

    /// Sends at the end of each interval, and once more when it is told to stop.
    fn run(mut self, stop: &Receiver<()>) {
        let mut ends = Instant::now();
        loop {
            // After a long one there is no hurry.
            ends = ends.max(Instant::now().checked_sub(self.interval).unwrap_or(ends));
            ends = ends.checked_add(self.interval).unwrap_or(ends);
            match stop.recv_timeout(ends.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => self.tell(PATIENCE),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
        }
    }

    /// Sends what was counted, and logs where that begins to fail, or to work again.
    fn tell(&mut self, patience: Duration) {
        let now = Instant::now();
        let sent = self.send(now.checked_add(patience).unwrap_or(now));
        let target = &self.target;
        match (&sent, self.link) {
            (Err(error), Link::Works) => {
                tracing::warn!("{target} does not take what was counted, which waits until it does: {error}");
            }
            (Ok(_), Link::Fails) => tracing::info!("{target} takes what was counted again"),
            (Ok(_), Link::Works) | (Err(_), Link::Fails) => {}
        }
        self.link = if sent.is_ok() { Link::Works } else { Link::Fails };
        self.failures = self.failures.wrapping_add(usize::from(sent.is_err()));
        if let Ok(too_long @ 1..) = sent
            && !self.has_told
        {
            self.has_told = true;
            tracing::warn!(
                "{too_long} metrics are not sent to {target}: a line of each is longer than a packet"
            );
        }
    }

    /// Sends what is left. Nothing waits for a next time any more, so that every failure is told.
    fn end(&mut self) {
        let now = Instant::now();
        if let Err(error) = self.send(now.checked_add(LAST).unwrap_or(now)) {
            tracing::warn!("the last counts are not sent to {}: {error}", self.target);
        }
    }

    /// Sends what was counted, and says how many lines could not be.
    fn send(&mut self, until: Instant) -> io::Result<usize> {
        let kept = self.socket.take().filter(Socket::is_lasting);
        let mut socket = kept.map_or_else(|| Socket::open(&self.target, self.failures, until), Ok)?;
        let mut packets = Packets::new(&mut socket, until);
        for delta in self.deltas.read() {
            let line = self.lines.of(&delta);
            packets.push(&line, delta.receipt)?;
        }
        let too_long = packets.finish()?;
        self.socket = Some(socket);
        Ok(too_long)
    }
}
