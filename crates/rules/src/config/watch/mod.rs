//! Reloads a configuration when it changes.
//!
//! Files change in many ways: an editor writes in place or renames a new file over the old one, Kubernetes swaps the link
//! `..data`, a deployment swaps a link above the directory or deletes and recreates it. So any event around the directory
//! has the same effect: wait until the events stop and the files are complete ([`settling`]), read all files, and report
//! the configuration if its content differs. A slow poll finds changes without events, as on network file systems.
//!
//! A configuration that lacks active rules is reported only after the directory was quiet for [`settling::SETTLE_TIME`]:
//! a deployment may delete files before it writes others.

mod settling;
mod surroundings;
mod watcher;

use std::{
    mem,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use notify::{
    EventKind,
    event::{AccessKind, AccessMode},
};

pub(super) use self::watcher::read_finished;
pub use self::watcher::{Reload, Watcher, load_finished};
use self::{
    settling::{Settling, wall_clock},
    surroundings::Surroundings,
};
use super::{
    Fingerprint, LoadError,
    files::{DirectoryListing, DirectoryStamp, Sources, revalidate},
};

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

#[derive(Debug)]
enum Signal {
    Changed(EventKind, Vec<PathBuf>),
    /// Events were lost.
    Lost,
    /// The files are to be compiled again, even if they are unchanged.
    Reload,
    Stop,
}

/// State of the thread.
struct Watch<C, L, F> {
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
    compile: C,
    /// Whether a version is reported only after the directory was quiet for a while.
    is_early: L,
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
    Stop,
}

/// The watcher was dropped.
struct Stopped;

impl<T, C, L, F> Watch<C, L, F>
where
    C: Fn(Sources) -> Result<T, LoadError>,
    L: Fn(&T) -> bool,
    F: FnMut(Result<T, LoadError>),
{
    fn run(mut self) {
        // `Stopped` is the only end.
        let _ = self.watch();
    }

    fn watch(&mut self) -> Result<(), Stopped> {
        let mut listing = self.list();
        loop {
            let recheck = self.refresh(listing, Instant::now())?;
            listing = loop {
                match self.wait(recheck) {
                    Wake::Stop => return Err(Stopped),
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
    fn wait(&mut self, recheck: Option<Instant>) -> Wake {
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
                return wake;
            }
            match self.received.recv_timeout(left) {
                Ok(signal) => match self.handle(signal) {
                    Ok(is_relevant) if is_relevant && first.is_none() => first = Some(Instant::now()),
                    Ok(_) => {}
                    Err(Stopped) => return Wake::Stop,
                },
                Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
                Err(RecvTimeoutError::Timeout) => return wake,
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

    /// Reads all files if they are complete, and reports the configuration if its content differs from the last one.
    /// Returns the time at which to look again.
    fn refresh(
        &mut self,
        listing: Result<DirectoryListing, LoadError>,
        now: Instant,
    ) -> Result<Option<Instant>, Stopped> {
        self.stamp = listing.as_ref().ok().map(DirectoryListing::stamp);
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) => {
                self.report(error.fingerprint(), Err(error));
                return Ok(None);
            }
        };
        let unfinished = self.settling.observe(&listing, now, wall_clock());
        if !unfinished.is_empty() {
            self.wait_for_writers(unfinished, now);
            // The stat of a network file system may be outdated; opening a file renews it.
            self.settling.unsettled().for_each(revalidate);
            return Ok(now.checked_add(SHORT_POLL_INTERVAL));
        }
        let sources = listing.read();
        let fingerprint = sources.fingerprint(self.strict);
        if self.seen == Some(fingerprint) {
            self.unfinished = None;
            return Ok(None);
        }
        if self.changed_while_reading()? {
            return Ok(Some(now));
        }
        let outcome = (self.compile)(sources);
        let is_early = outcome.as_ref().is_ok_and(|loaded| (self.is_early)(loaded));
        if let Some(quiet_at) = self.settling.quiet_at().filter(|at| is_early && now < *at) {
            self.wait_for_writers(vec!["files that remove rules".to_owned()], now);
            return Ok(Some(quiet_at));
        }
        self.unfinished = None;
        self.report(fingerprint, outcome);
        Ok(None)
    }

    /// Reports an outcome that differs from the last one.
    fn report(&mut self, fingerprint: Fingerprint, outcome: Result<T, LoadError>) {
        if self.seen != Some(fingerprint) {
            self.seen = Some(fingerprint);
            (self.on_change)(outcome);
        }
    }

    /// Reports files once that are incomplete for long.
    fn wait_for_writers(&mut self, files: Vec<String>, now: Instant) {
        let unfinished = self.unfinished.get_or_insert(Unfinished { since: now, is_reported: false });
        let waited = now.saturating_duration_since(unfinished.since);
        if !unfinished.is_reported && waited >= UNFINISHED_REPORT_DELAY {
            unfinished.is_reported = true;
            let error = LoadError::Unfinished { files, waited };
            self.report(error.fingerprint(), Err(error));
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
    fn list(&mut self) -> Result<DirectoryListing, LoadError> {
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

#[cfg(test)]
mod tests;
