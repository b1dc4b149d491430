//! Loads a configuration again when it changes.
//!
//! Changes come in many ways: an editor writes in place or renames a new file over the old one, Kubernetes
//! swaps the link `..data`, a deployment swaps a link above the directory or deletes and creates it again. So
//! any event around the directory leads to the same: wait until it is quiet, place the watches anew, read
//! everything, and speak up when the content is another. A slow poll finds what events missed, as on network
//! file systems, which have none.

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
    files::{Listing, Look},
};

/// Quiet after the last event before the files are read.
const QUIET: Duration = Duration::from_millis(100);
/// The longest wait after the first event, however many follow.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Between two looks for what events missed.
const POLL: Duration = Duration::from_secs(5);
/// Between two looks where there are no events.
const POLL_ALONE: Duration = Duration::from_millis(500);

/// Watches a configuration on a thread of its own, until it is dropped. Its end is not waited for then: it may be at work
/// on many rules, or wait for a disk that does not answer.
#[derive(Debug)]
pub struct Watcher {
    signals: Sender<Signal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Signal {
    /// Something happened to these paths; none at all means that events were lost.
    Touched(Vec<PathBuf>),
    Stop,
}

impl Watcher {
    /// Calls `on_change` with each version of the configuration that differs from the one before it, good or
    /// bad, beginning with what differs from `seen`.
    ///
    /// # Errors
    /// When no thread can be started.
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
            look: None,
            surroundings: Surroundings::default(),
            notifier: None,
            signals: signals.clone(),
            received,
            on_change,
        };
        let thread = thread::Builder::new().name("config-watch".to_owned()).spawn(|| watch.run())?;
        Ok(Self { signals, thread: Some(thread) })
    }

    /// Ends it and waits until it has ended, for as long as that takes: for threads that may wait.
    pub fn stop(mut self) {
        let thread = self.thread.take();
        drop(self);
        if let Some(thread) = thread {
            // Cannot fail but by a panic, which is logged.
            let _ = thread.join();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // An error means that the thread has ended already.
        let _ = self.signals.send(Signal::Stop);
    }
}

/// What the thread keeps.
struct Watch<F> {
    directory: PathBuf,
    options: Options,
    seen: Option<Fingerprint>,
    /// What the directory looked like when it was last read.
    look: Option<Look>,
    surroundings: Surroundings,
    notifier: Option<notify::RecommendedWatcher>,
    signals: Sender<Signal>,
    received: Receiver<Signal>,
    on_change: F,
}

/// Why the thread wakes up.
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
                    if Listing::of(&self.directory).ok().map(|listing| listing.look()) != self.look {
                        self.refresh();
                    }
                }
            }
        }
    }

    /// Waits for an event that matters and for the quiet after it, or for the next look.
    fn wait(&self) -> Wake {
        let poll = if self.notifier.is_some() { POLL } else { POLL_ALONE };
        let start = Instant::now();
        let mut first: Option<Instant> = None;
        loop {
            let left = match first {
                None => poll.saturating_sub(start.elapsed()),
                Some(first) => QUIET.min(LONGEST_WAIT.saturating_sub(first.elapsed())),
            };
            let timeout = if first.is_some() { Wake::Event } else { Wake::Poll };
            // Asked first, so that a flood of events can't put it off.
            if left.is_zero() {
                return timeout;
            }
            match self.received.recv_timeout(left) {
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
                Ok(Signal::Touched(paths)) => {
                    if first.is_none() && self.surroundings.concern(&paths) {
                        first = Some(Instant::now());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return timeout,
            }
        }
    }

    /// Places the watches, reads everything, and speaks up when it is not what was seen last.
    fn refresh(&mut self) {
        let listing = self.watch();
        self.look = listing.as_ref().ok().map(Listing::look);
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

    /// Places watches on everything around the directory and lists it, in this order, so that no change falls
    /// between the two.
    fn watch(&mut self) -> io::Result<Listing> {
        let mut listing = Listing::of(&self.directory);
        // What is listed may have moved while the watches were placed.
        for _ in 0..3 {
            self.surroundings = Surroundings::of(&self.directory, listing.as_ref().ok());
            self.notifier = self.notifier();
            listing = Listing::of(&self.directory);
            if Surroundings::of(&self.directory, listing.as_ref().ok()) == self.surroundings {
                break;
            }
        }
        listing
    }

    /// A notifier for the surroundings, unless there can be none. It is made anew each time, because a watch on a directory that was
    /// deleted and created again is a watch on nothing.
    fn notifier(&self) -> Option<notify::RecommendedWatcher> {
        let signals = self.signals.clone();
        let notifier = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let paths = match event {
                Ok(event) if !is_change(event.kind) => return,
                Ok(event) => event.paths,
                Err(_) => Vec::new(),
            };
            // An error means that nobody waits any more.
            let _ = signals.send(Signal::Touched(paths));
        });
        match notifier.and_then(|notifier| self.surroundings.watched_by(notifier)) {
            Ok(notifier) => Some(notifier),
            Err(error) => {
                tracing::warn!(%error, "file events unavailable; polling the rules");
                None
            }
        }
    }
}

/// Whether an event may be a change; reading, which the watcher does itself, is none.
const fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => matches!(access, AccessKind::Close(AccessMode::Write)),
        _ => true,
    }
}
