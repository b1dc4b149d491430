//! Watches a directory, and reads its files when they have changed.
//!
//! Files change in many ways: an editor writes in place or renames a new file over the old one, Kubernetes swaps the link
//! `..data`, a deployment swaps a link above the directory or deletes and recreates it. So any event around the directory
//! has the same effect: wait until the events stop and the files are complete ([`crate::settling`]), read all files, and
//! report them if their content differs. A slow poll finds changes without events, as on network file systems.

#[cfg(test)]
mod tests;

use std::path::{self, Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use notify::EventKind;
use notify::event::{AccessKind, AccessMode};

use crate::listing::{DirectoryListing, DirectoryStamp};
use crate::settling::{Settling, wall_clock};
use crate::{DirectoryError, Fingerprint, SourceFiles, surroundings::Surroundings};

/// Time without events after which the files are read.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Maximum time from the first event until the files are read.
const MAX_DEBOUNCE: Duration = Duration::from_millis(500);
/// Interval of polls for changes without events.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of polls without a working notifier, and while files are incomplete.
const SHORT_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time after reading in which an event shows that a file was changed before it was read.
const EVENT_DELAY: Duration = Duration::from_millis(50);
/// Time after which incomplete files are reported.
const UNFINISHED_REPORT_DELAY: Duration = Duration::from_secs(10);

/// Reply to files that a [`Watcher`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The files take effect, or are refused.
    Taken,
    /// The files lack what others may be about to bring: a deployment may delete files before it writes others. They are
    /// reported again once the directory was quiet for three seconds.
    Early {
        /// The files that may be missing, for the report of a long wait.
        awaiting: &'static str,
    },
}

/// Watches a directory on a thread of its own until it is dropped. Dropping does not wait for the thread, which may be
/// compiling many rules, or waiting for a disk that does not respond.
#[derive(Debug)]
pub struct Watcher {
    signals: Sender<Signal>,
    thread: Option<JoinHandle<Result<(), Stopped>>>,
}

impl Watcher {
    /// Calls `on_change` with the files of each version that differs from the previous one, and with errors; the first
    /// version is compared with `seen`. The second argument is whether the directory is quiet, so that a reply of
    /// [`Reply::Early`] has no effect. If `strict`, the names of ignored files make a difference.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn spawn(
        directory: &Path,
        strict: bool,
        seen: Option<Fingerprint>,
        on_change: impl FnMut(Result<SourceFiles, DirectoryError>, bool) -> Reply + Send + 'static,
    ) -> io::Result<Self> {
        let watch = Watch::new(path::absolute(directory)?, strict, seen, on_change);
        let signals = watch.signals.clone();
        let thread = thread::Builder::new().name("config-watch".to_owned()).spawn(|| watch.run())?;
        Ok(Self { signals, thread: Some(thread) })
    }

    /// Returns a function that has the files reported again, although they are unchanged.
    pub fn reload(&self) -> impl Fn() + Send + Sync + use<> {
        let signals = self.signals.clone();
        move || {
            // An error means that the thread has ended.
            let _ = signals.send(Signal::Reload);
        }
    }

    /// Stops the watcher, and waits for its thread without a time limit: for threads that may block.
    pub fn stop(mut self) {
        let thread = self.thread.take();
        drop(self);
        if let Some(thread) = thread {
            // Fails only after a panic, which is logged.
            let _ = thread.join();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // An error means that the thread has already ended.
        let _ = self.signals.send(Signal::Stop);
    }
}

#[derive(Debug)]
enum Signal {
    Changed(EventKind, Vec<PathBuf>),
    /// Events were lost.
    Lost,
    /// The files are to be reported again, even if they are unchanged.
    Reload,
    Stop,
}

/// State of the thread.
struct Watch<F> {
    directory: PathBuf,
    /// Whether the names of files that are not read matter.
    strict: bool,
    seen: Option<Fingerprint>,
    /// Stamp of the directory when it was last listed.
    stamp: Option<DirectoryStamp>,
    settling: Settling,
    unfinished: Option<Unfinished>,
    surroundings: Surroundings,
    notifier: Option<notify::RecommendedWatcher>,
    /// Whether a watched directory may have been replaced.
    is_notifier_outdated: bool,
    /// Whether an event arrived while the files were read.
    has_missed_event: bool,
    /// [`EVENT_DELAY`], unless time is simulated.
    event_delay: Duration,
    signals: Sender<Signal>,
    received: Receiver<Signal>,
    on_change: F,
}

/// Wait for incomplete files.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    since: Instant,
    is_reported: bool,
}

/// Reason for which the thread wakes up.
enum Wake {
    Event,
    Poll,
    /// The time for another look at incomplete files.
    Recheck,
}

/// The watcher was dropped, which is the only end.
#[derive(Debug)]
struct Stopped;

impl<F: FnMut(Result<SourceFiles, DirectoryError>, bool) -> Reply> Watch<F> {
    fn new(directory: PathBuf, strict: bool, seen: Option<Fingerprint>, on_change: F) -> Self {
        let (signals, received) = channel();
        Self {
            directory,
            strict,
            seen,
            stamp: None,
            settling: Settling::default(),
            unfinished: None,
            surroundings: Surroundings::default(),
            notifier: None,
            is_notifier_outdated: false,
            has_missed_event: false,
            event_delay: EVENT_DELAY,
            signals,
            received,
            on_change,
        }
    }

    fn run(mut self) -> Result<(), Stopped> {
        let mut listing = self.list();
        loop {
            let recheck = self.refresh(listing, Instant::now())?;
            listing = loop {
                match self.wait(recheck)? {
                    Wake::Event => break self.list(),
                    Wake::Recheck => break DirectoryListing::of(&self.directory),
                    Wake::Poll => {
                        let found = DirectoryListing::of(&self.directory).ok();
                        if found.map(|listing| listing.stamp()) != self.stamp {
                            // There was no event, so the watches may have no effect.
                            self.is_notifier_outdated = true;
                            break self.list();
                        }
                    }
                }
            };
        }
    }

    /// Waits for a relevant event and the end of its burst, for the time of the recheck, or for the next poll.
    fn wait(&mut self, recheck: Option<Instant>) -> Result<Wake, Stopped> {
        let poll = if self.notifier.is_some() { POLL_INTERVAL } else { SHORT_POLL_INTERVAL };
        let start = Instant::now();
        let mut first: Option<Instant> = mem::take(&mut self.has_missed_event).then_some(start);
        loop {
            let until_poll = poll.saturating_sub(start.elapsed());
            let until_recheck = recheck.map(|at| at.saturating_duration_since(Instant::now()));
            let (left, wake) = match (first, until_recheck) {
                (Some(first), _) => (DEBOUNCE.min(MAX_DEBOUNCE.saturating_sub(first.elapsed())), Wake::Event),
                (None, Some(left)) => (left, Wake::Recheck),
                (None, None) => (until_poll, Wake::Poll),
            };
            // Checked first, so that a flood of events cannot delay it.
            if left.is_zero() {
                return Ok(wake);
            }
            match self.received.recv_timeout(left) {
                Ok(signal) => first = first.or(self.handle(signal)?.then(Instant::now)),
                Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
                Err(RecvTimeoutError::Timeout) => return Ok(wake),
            }
        }
    }

    /// Takes account of a signal, and returns whether the configuration may have changed.
    fn handle(&mut self, signal: Signal) -> Result<bool, Stopped> {
        match signal {
            Signal::Stop => Err(Stopped),
            Signal::Reload => {
                self.seen = None;
                Ok(true)
            }
            Signal::Lost => {
                self.settling.lose_events(Instant::now());
                Ok(true)
            }
            Signal::Changed(kind, paths) => {
                if !self.surroundings.concern(&paths) {
                    return Ok(false);
                }
                self.is_notifier_outdated |= self.surroundings.restructured_by(&paths);
                self.settling.writers.record(kind, &paths, |path| self.surroundings.contain(path));
                Ok(true)
            }
        }
    }

    /// Reads all files if they are complete, and reports them if their content differs from the last one. Returns the time
    /// at which to look again.
    fn refresh(
        &mut self,
        listing: Result<DirectoryListing, DirectoryError>,
        now: Instant,
    ) -> Result<Option<Instant>, Stopped> {
        self.stamp = listing.as_ref().ok().map(DirectoryListing::stamp);
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) => {
                self.report(error);
                return Ok(None);
            }
        };
        let unfinished = self.settling.observe(&listing, now, wall_clock());
        if !unfinished.is_empty() {
            self.wait_for_writers(unfinished, now);
            // The stat of a network file system may be outdated.
            self.settling.revalidate();
            return Ok(now.checked_add(SHORT_POLL_INTERVAL));
        }
        let files = SourceFiles::read(listing);
        let fingerprint = files.fingerprint(self.strict);
        if self.seen == Some(fingerprint) {
            self.unfinished = None;
            return Ok(None);
        }
        if self.changed_while_reading()? {
            return Ok(Some(now));
        }
        let quiet_at = self.settling.quiet_at().filter(|at| now < *at);
        let reply = (self.on_change)(Ok(files), quiet_at.is_none());
        if let (Reply::Early { awaiting }, Some(quiet_at)) = (reply, quiet_at) {
            self.wait_for_writers(vec![awaiting.to_owned()], now);
            return Ok(Some(quiet_at));
        }
        self.unfinished = None;
        self.seen = Some(fingerprint);
        Ok(None)
    }

    /// Reports an error that differs from the last one.
    fn report(&mut self, error: DirectoryError) {
        let fingerprint = Some(error.fingerprint());
        if self.seen != fingerprint {
            self.seen = fingerprint;
            (self.on_change)(Err(error), true);
        }
    }

    /// Reports files once that are incomplete for long.
    fn wait_for_writers(&mut self, files: Vec<String>, now: Instant) {
        let unfinished = self.unfinished.get_or_insert(Unfinished { since: now, is_reported: false });
        let waited = now.saturating_duration_since(unfinished.since);
        if !unfinished.is_reported && waited >= UNFINISHED_REPORT_DELAY {
            unfinished.is_reported = true;
            self.report(DirectoryError::Unfinished { files, waited });
        }
    }

    /// Whether a file was changed before it was read: its event may arrive shortly after.
    fn changed_while_reading(&mut self) -> Result<bool, Stopped> {
        let start = Instant::now();
        loop {
            match self.received.recv_timeout(self.event_delay.saturating_sub(start.elapsed())) {
                Ok(signal) => self.has_missed_event |= self.handle(signal)?,
                Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        let listing = DirectoryListing::of(&self.directory);
        let is_open = |listing: &DirectoryListing| {
            let writers = &self.settling.writers;
            listing.stamps().any(|(_, stamp)| writers.is_writing(stamp) || writers.is_finished(stamp))
        };
        Ok(listing.as_ref().ok().map(DirectoryListing::stamp) != self.stamp
            || listing.is_ok_and(|it| is_open(&it)))
    }

    /// Lists the directory and watches its surroundings, in this order, so that no change is missed in between.
    fn list(&mut self) -> Result<DirectoryListing, DirectoryError> {
        let mut listing = DirectoryListing::of(&self.directory);
        self.is_notifier_outdated |= self.notifier.is_none();
        // Directories may have moved while the watches were placed.
        for _ in 0..3 {
            let surroundings = Surroundings::of(&self.directory, listing.as_ref().ok());
            if !self.is_notifier_outdated && surroundings == self.surroundings {
                break;
            }
            self.surroundings = surroundings;
            self.is_notifier_outdated = false;
            self.notifier = self.notifier();
            // The former notifier may have seen closes that it did not report.
            self.settling.lose_closes(Instant::now());
            listing = DirectoryListing::of(&self.directory);
        }
        listing
    }

    /// Creates a notifier for the surroundings; `None` on failure. It is renewed when a directory may have been replaced,
    /// because the watch of a directory that was deleted and recreated has no effect.
    fn notifier(&self) -> Option<notify::RecommendedWatcher> {
        const WRITTEN: AccessKind = AccessKind::Close(AccessMode::Write);
        let signals = self.signals.clone();
        let notifier = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let signal = match event {
                // The watcher's own reads are no changes.
                Ok(event) if matches!(event.kind, EventKind::Access(access) if access != WRITTEN) => return,
                Ok(event) if !event.paths.is_empty() => Signal::Changed(event.kind, event.paths),
                Ok(_) | Err(_) => Signal::Lost,
            };
            // An error means that the thread has ended.
            let _ = signals.send(signal);
        });
        match notifier.and_then(|notifier| self.surroundings.watched_by(notifier)) {
            Ok(notifier) => Some(notifier),
            Err(error) => {
                tracing::warn!(%error, "file events unavailable; polling the configuration");
                None
            }
        }
    }
}
