//! StatsD exporter, with the metric names of envoyproxy/ratelimit, so that its dashboards keep working.
//!
//! Every interval, a separate thread reads the deltas of all counters ([`tollgate_metrics`]), formats them as lines of plain
//! StatsD or DogStatsD (`lines`), packs the lines into packets and sends these (`socket`). A delta is confirmed
//! once the operating system has accepted its packet, and is part of the next interval otherwise: a slow or unreachable
//! server costs one log line, and no counts.

mod lines;
mod settings;
mod socket;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::{sync::oneshot, time::timeout};
use tollgate_metrics::{DeltaSources, Deltas};
use tollgate_runtime::outage::OutageLog;

use self::lines::Lines;
use self::socket::{Packets, Socket};

pub use self::lines::{Rewrite, StatsdFormat};
pub use self::settings::{Rewrites, StatsdServer, StatsdSettings, Tags, Target};

/// Time limit for all packets of an interval.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the last packets, at shutdown.
const FINAL_SEND_TIMEOUT: Duration = Duration::from_millis(900);

/// Exports metrics every interval. After a drop, its thread ends and is not awaited.
#[derive(Debug)]
pub struct StatsdExporter {
    stop: Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl StatsdExporter {
    /// Starts to export the counts of `sources` since the start of the process, if there are settings of a server, which may be
    /// unreachable.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn start(settings: StatsdSettings, sources: &'static DeltaSources) -> io::Result<Option<Self>> {
        let Some(server) = settings.server.clone() else { return Ok(None) };
        let ((stop, stopped), (end, ended)) = (channel(), oneshot::channel());
        // A panic in the thread is logged and ends the exporter only.
        thread::Builder::new().name("statsd".to_owned()).spawn(move || {
            ExportLoop::new(server, settings, sources).run(&stopped);
            drop(end);
        })?;
        Ok(Some(Self { stop, ended }))
    }

    /// Sends the remaining counts, for at most a second.
    pub async fn stop(self) {
        drop(self.stop);
        let limit = FINAL_SEND_TIMEOUT + Duration::from_millis(100);
        if timeout(limit, self.ended).await.is_err() {
            tracing::warn!("shutdown: timed out sending the last counts");
        }
    }
}

struct ExportLoop {
    target: Target,
    interval: Duration,
    lines: Lines,
    deltas: Deltas,
    /// The open connection, with TCP.
    socket: Option<Socket>,
    outage: OutageLog,
    /// Failed intervals.
    failures: usize,
    /// Whether too long lines were logged.
    has_logged_too_long: bool,
}

impl ExportLoop {
    fn new(server: StatsdServer, settings: StatsdSettings, sources: &'static DeltaSources) -> Self {
        let (tags, rewrites) = (settings.tags.unwrap_or_default(), settings.rewrites.concat());
        Self {
            interval: settings.interval,
            lines: Lines::new(server.format, tags, rewrites),
            deltas: Deltas::new(sources),
            target: server.target,
            socket: None,
            outage: OutageLog::default(),
            failures: 0,
            has_logged_too_long: false,
        }
    }

    /// Exports at the end of each interval, and once more at the stop.
    fn run(mut self, stop: &Receiver<()>) {
        let mut ends = Instant::now();
        loop {
            // After an export longer than an interval, the next one starts a full interval later.
            ends = ends.max(Instant::now().checked_sub(self.interval).unwrap_or(ends));
            ends = ends.checked_add(self.interval).unwrap_or(ends);
            match stop.recv_timeout(ends.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => self.export(SEND_TIMEOUT),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // There is no next interval, so every failure is logged.
        if let Err(error) = self.send(Instant::now() + FINAL_SEND_TIMEOUT) {
            tracing::warn!(server = %self.target, %error, "shutdown: failed to send the last counts");
        }
    }

    /// Sends the deltas and logs the start and the end of an outage.
    fn export(&mut self, limit: Duration) {
        let sent = self.send(Instant::now() + limit);
        let target = &self.target;
        match &sent {
            Err(error) if self.outage.failed() => {
                tracing::warn!(server = %target, %error, "StatsD export failed; keeping the counts");
            }
            Ok(_) if self.outage.recovered() => tracing::info!(server = %target, "StatsD export recovered"),
            Ok(_) | Err(_) => {}
        }
        self.failures = self.failures.wrapping_add(usize::from(sent.is_err()));
        if let Ok(too_long @ 1..) = sent
            && !self.has_logged_too_long
        {
            self.has_logged_too_long = true;
            tracing::warn!(server = %target, metrics = too_long, "metrics dropped: lines longer than a packet");
        }
    }

    /// Sends the deltas and returns the number of lines that are too long.
    fn send(&mut self, until: Instant) -> io::Result<usize> {
        let kept = self.socket.take().filter(Socket::is_reusable);
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
