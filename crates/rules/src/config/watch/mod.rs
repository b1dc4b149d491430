//! Reloads a configuration when it changes.
//!
//! Files change in many ways: an editor writes in place or renames a new file over the old one, Kubernetes swaps the link
//! `..data`, a deployment swaps a link above the directory or deletes and recreates it. So any event around the directory
//! has the same effect: wait until the events stop, renew the watches, read all files, and report the configuration if its
//! content differs. A slow poll finds changes without events, as on network file systems.

mod surroundings;

use std::{
    io,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use notify::{
    EventKind,
    event::{AccessKind, AccessMode},
};

use self::surroundings::Surroundings;
use super::{
    Fingerprint, LoadError, Loaded, Options, build,
    files::{DirectoryListing, DirectoryStamp},
};

/// Time without events after which the files are read.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Maximum time from the first event until the files are read.
const MAX_DEBOUNCE: Duration = Duration::from_millis(500);
/// Interval of polls for changes without events.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of polls without a working notifier.
const POLL_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_millis(500);

/// Watches a configuration on its own thread until it is dropped. Dropping does not wait for the thread, which may be
/// compiling many rules, or waiting for a disk that does not respond.
#[derive(Debug)]
pub struct Watcher {
    signals: Sender<Signal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Signal {
    /// Paths of an event; empty if events were lost.
    Changed(Vec<PathBuf>),
    Stop,
}

impl Watcher {
    /// Calls `on_change` with each version of the configuration, valid or not, that differs from the previous one; the first
    /// version is compared with `seen`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn spawn(
        directory: &Path,
        options: Options,
        seen: Option<Fingerprint>,
        on_change: impl FnMut(Result<Loaded, LoadError>) + Send + 'static,
    ) -> io::Result<Self> {
        let (signals, received) = channel();
        let watch = Watch {
            directory: std::path::absolute(directory)?,
            options,
            seen,
            stamp: None,
            surroundings: Surroundings::default(),
            notifier: None,
            signals: signals.clone(),
            received,
            on_change,
        };
        let thread = thread::Builder::new().name("config-watch".to_owned()).spawn(|| watch.run())?;
        Ok(Self { signals, thread: Some(thread) })
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

/// State of the thread.
struct Watch<F> {
    directory: PathBuf,
    options: Options,
    seen: Option<Fingerprint>,
    /// Stamp of the directory when it was last read.
    stamp: Option<DirectoryStamp>,
    surroundings: Surroundings,
    notifier: Option<notify::RecommendedWatcher>,
    signals: Sender<Signal>,
    received: Receiver<Signal>,
    on_change: F,
}

/// Reason for which the thread wakes up.
enum Wake {
    Event,
    Poll,
    Stop,
}

impl<F: FnMut(Result<Loaded, LoadError>)> Watch<F> {
    fn run(mut self) {
        self.refresh();
        loop {
            match self.wait() {
                Wake::Stop => return,
                Wake::Event => self.refresh(),
                Wake::Poll => {
                    if DirectoryListing::of(&self.directory).ok().map(|listing| listing.stamp()) != self.stamp
                    {
                        self.refresh();
                    }
                }
            }
        }
    }

    /// Waits for a relevant event and the end of its burst, or for the next poll.
    fn wait(&self) -> Wake {
        let poll = if self.notifier.is_some() { POLL_INTERVAL } else { POLL_INTERVAL_WITHOUT_EVENTS };
        let start = Instant::now();
        let mut first: Option<Instant> = None;
        loop {
            let left = match first {
                None => poll.saturating_sub(start.elapsed()),
                Some(first) => DEBOUNCE.min(MAX_DEBOUNCE.saturating_sub(first.elapsed())),
            };
            let timeout = if first.is_some() { Wake::Event } else { Wake::Poll };
            // Checked first, so that a flood of events cannot delay it.
            if left.is_zero() {
                return timeout;
            }
            match self.received.recv_timeout(left) {
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
                Ok(Signal::Changed(paths)) => {
                    if first.is_none() && self.surroundings.concern(&paths) {
                        first = Some(Instant::now());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return timeout,
            }
        }
    }

    /// Renews the watches, reads all files, and reports the configuration if its content differs from the last one.
    fn refresh(&mut self) {
        let listing = self.watch();
        self.stamp = listing.as_ref().ok().map(DirectoryListing::stamp);
        let outcome = match listing {
            Ok(listing) => {
                let sources = listing.read();
                let fingerprint = sources.fingerprint(self.options.strict);
                if self.seen == Some(fingerprint) {
                    return;
                }
                self.seen = Some(fingerprint);
                build(&sources, fingerprint, self.options)
            }
            Err(error) => {
                let error = LoadError::Directory { directory: self.directory.clone(), error };
                let fingerprint = Some(error.fingerprint());
                if self.seen == fingerprint {
                    return;
                }
                self.seen = fingerprint;
                Err(error)
            }
        };
        (self.on_change)(outcome);
    }

    /// Watches the surroundings of the directory and lists it, in this order, so that no change is missed in between.
    fn watch(&mut self) -> io::Result<DirectoryListing> {
        let mut listing = DirectoryListing::of(&self.directory);
        // Directories may have moved while the watches were placed.
        for _ in 0..3 {
            self.surroundings = Surroundings::of(&self.directory, listing.as_ref().ok());
            self.notifier = self.notifier();
            listing = DirectoryListing::of(&self.directory);
            if Surroundings::of(&self.directory, listing.as_ref().ok()) == self.surroundings {
                break;
            }
        }
        listing
    }

    /// Creates a notifier for the surroundings; `None` on failure. It is renewed each time, because the watch of a directory
    /// that was deleted and recreated has no effect.
    fn notifier(&self) -> Option<notify::RecommendedWatcher> {
        let signals = self.signals.clone();
        let notifier = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let paths = match event {
                Ok(event) if !is_change(event.kind) => return,
                Ok(event) => event.paths,
                Err(_) => Vec::new(),
            };
            // An error means that the thread has ended.
            let _ = signals.send(Signal::Changed(paths));
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

/// Whether an event may be a change; the watcher's own reads are not.
const fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => matches!(access, AccessKind::Close(AccessMode::Write)),
        _ => true,
    }
}
