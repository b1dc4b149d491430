//! Whether the store decides, told once for each change.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::store::StoreError;

/// The shortest time between two lines about failures: a store that fails now and then is told of now and then.
const QUIET: Duration = Duration::from_secs(10);

/// How long nothing may fail before it is told that the store decides again: while a shard of a cluster is lost, the
/// others decide between its failures.
const CALM: Duration = Duration::from_secs(1);

/// Logs when a store begins to fail, with the reason, and when it decides again.
#[derive(Debug, Default)]
pub(super) struct Condition {
    /// Whether the last line said that the store fails.
    is_told: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    /// When a line last said that the store fails.
    told: Option<Instant>,
    /// When it last failed.
    failed: Option<Instant>,
}

impl Condition {
    /// Takes note of how a call ended.
    pub(super) fn note(&self, error: Option<&StoreError>) {
        // A plain read first: most calls change nothing.
        if error.is_none() && !self.is_told.load(Ordering::Relaxed) {
            return;
        }
        let mut times = self.times.lock();
        let Some(error) = error else {
            if times.failed.is_none_or(|failed| failed.elapsed() >= CALM) {
                self.is_told.store(false, Ordering::Relaxed);
                tracing::info!("Redis decides again");
            }
            return;
        };
        times.failed = Some(Instant::now());
        let is_due = times.told.is_none_or(|told| told.elapsed() >= QUIET);
        if is_due && !self.is_told.swap(true, Ordering::Relaxed) {
            times.told = times.failed;
            tracing::warn!(%error, "Redis does not decide; each limit is decided as its on_store_error says");
        }
    }
}
