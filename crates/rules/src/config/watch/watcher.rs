//! Handles of watchers, which run on threads of their own, and loading at startup, when no events have shown yet which files are
//! still being written.

use std::{
    io,
    path::Path,
    sync::mpsc::{Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    EVENT_DELAY, Signal, Surroundings, Watch,
    settling::{Settling, wall_clock},
};
use crate::{
    Rules,
    config::{
        Fingerprint, LoadError, Loaded, Options, Overlay, build,
        files::{DirectoryListing, Sources, revalidate},
    },
};

/// Watches a configuration on its own thread until it is dropped. Dropping does not wait for the thread, which may be
/// compiling many rules, or waiting for a disk that does not respond.
#[derive(Debug)]
pub struct Watcher {
    signals: Sender<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// Makes a watcher compile the files again, although they are unchanged.
#[derive(Clone, Debug)]
pub struct Reload(Sender<Signal>);

impl Reload {
    /// Makes the watcher compile the files again.
    pub fn request(&self) {
        // An error means that the thread has ended.
        let _ = self.0.send(Signal::Reload);
    }
}

impl Watcher {
    /// Calls `on_change` with each version of the configuration, valid or not, that differs from the previous one; the first
    /// version is compared with `seen`. `lacks_rules` tests whether a version lacks rules that are active; such a version is
    /// reported only after the directory was quiet for a while.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn spawn(
        directory: &Path,
        options: Options,
        seen: Option<Fingerprint>,
        lacks_rules: impl Fn(&Rules) -> bool + Send + 'static,
        on_change: impl FnMut(Result<Loaded, LoadError>) + Send + 'static,
    ) -> io::Result<Self> {
        let compile = move |sources| build(sources, options);
        let is_early = move |loaded: &Loaded| lacks_rules(&loaded.rules);
        Self::start(directory, options.strict, seen, compile, is_early, on_change)
    }

    /// Calls `on_change` with each version of an overlay, valid or not, that differs from the previous one; the first
    /// version is compared with `seen`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn spawn_overlay(
        directory: &Path,
        seen: Option<Fingerprint>,
        on_change: impl FnMut(Result<Overlay, LoadError>) + Send + 'static,
    ) -> io::Result<Self> {
        let stated = directory.to_owned();
        let compile = move |sources| Overlay::of(&stated, sources);
        Self::start(directory, false, seen, compile, |_| false, on_change)
    }

    fn start<T>(
        directory: &Path,
        strict: bool,
        seen: Option<Fingerprint>,
        compile: impl Fn(Sources) -> Result<T, LoadError> + Send + 'static,
        is_early: impl Fn(&T) -> bool + Send + 'static,
        on_change: impl FnMut(Result<T, LoadError>) + Send + 'static,
    ) -> io::Result<Self> {
        let (signals, received) = channel();
        let watch = Watch {
            directory: std::path::absolute(directory)?,
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
            signals: signals.clone(),
            received,
            compile,
            is_early,
            on_change,
        };
        let thread = thread::Builder::new().name("config-watch".to_owned()).spawn(|| watch.run())?;
        Ok(Self { signals, thread: Some(thread) })
    }

    /// Returns a handle by which the files are compiled again.
    pub fn reload(&self) -> Reload {
        Reload(self.signals.clone())
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

/// Interval between two looks at files that were changed recently.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time to wait for files that keep changing.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Loads all YAML files of a directory as [`load`](crate::config::load) does, once none of them has changed for three
/// seconds. Files that Kubernetes publishes by a link, and older files, are loaded at once. Blocks for up to a minute.
///
/// # Errors
/// [`LoadError::Unfinished`] if files keep changing, or else [`LoadError`] with all problems.
pub fn load_finished(directory: &Path, options: &Options) -> Result<Loaded, LoadError> {
    build(read_finished(directory)?, *options)
}

/// Reads the files of a directory once none of them has changed for three seconds.
pub(in crate::config) fn read_finished(directory: &Path) -> Result<Sources, LoadError> {
    let (start, mut settling, mut is_logged) = (Instant::now(), Settling::default(), false);
    loop {
        settling.unsettled().for_each(revalidate);
        let listing = DirectoryListing::of(directory)?;
        let unfinished = settling.observe(&listing, Instant::now(), wall_clock());
        if unfinished.is_empty() {
            let stamp = listing.stamp();
            let sources = listing.read();
            if DirectoryListing::of(directory)?.stamp() == stamp {
                return Ok(sources);
            }
        } else if start.elapsed() >= MAX_WAIT {
            return Err(LoadError::Unfinished { files: unfinished, waited: start.elapsed() });
        } else if !is_logged {
            is_logged = true;
            tracing::info!(files = unfinished.join(", "), "waiting for files that changed just now");
        }
        thread::sleep(RECHECK_INTERVAL);
    }
}
