//! Handles of watchers, which run on threads of their own.

use std::{
    io,
    path::Path,
    sync::mpsc::{Sender, channel},
    thread::{self, JoinHandle},
};

use super::{EVENT_DELAY, Settling, Signal, Surroundings, Watch};
use crate::{
    Rules,
    config::{Fingerprint, LoadError, Loaded, Options, Overlay, build, files::Sources},
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
        let compile = move |sources: Sources, fingerprint| build(sources, fingerprint, options);
        let is_early = move |loaded: &Loaded| lacks_rules(&loaded.rules);
        Self::start(directory, options.strict, seen, (compile, is_early, on_change))
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
        let compile = move |sources, fingerprint| Overlay::of(&stated, sources, fingerprint);
        Self::start(directory, false, seen, (compile, |_: &Overlay| false, on_change))
    }

    fn start<T, C, L, F>(
        directory: &Path,
        strict: bool,
        seen: Option<Fingerprint>,
        (compile, is_early, on_change): (C, L, F),
    ) -> io::Result<Self>
    where
        C: Fn(Sources, Fingerprint) -> Result<T, LoadError> + Send + 'static,
        L: Fn(&T) -> bool + Send + 'static,
        F: FnMut(Result<T, LoadError>) + Send + 'static,
    {
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
